"""Does this store decide create-if-absent atomically? Ask it, before anything depends on the answer.

Three questions, each under fresh keys below a given folder:

1. In sequence: a second create of a key must not get the answer *created*, nor change what is there.
2. Many at once: of 16 threads that create one key, one may get the answer *created*.
3. Overtaking: a small create starts while a big one is under way, at a moment that is moved, round by round, to where
   the two are decided. A server that looks and writes without a lock is open in between; the big body holds it open.

An answer UNKNOWN is resolved by reading, as an append does. A store that passes gets a :class:`Passed`, which the
caller records; one that fails raises UnsafeStore. No probe can prove a store right: this one measures, and
:class:`Effort` says how much. ``docs/stores.md`` has the figures.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from txnlog.engine.effects import Result, result_of
from txnlog.engine.worker import start_thread
from txnlog.errors import Durable, RetriableError, StoreError, TxnLogError, UnsafeStore
from txnlog.store.base import Created, ObjectNotFound, Store
from txnlog.store.identity import StoreIdentity, identity_of

_ATTEMPTS: Final = 5
"""Creates of one key until the store says something definite."""

_START_SECONDS: Final = 60
"""Until all threads of a race have started."""

_SMALL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a probe tries. What gives a key away twice in a share p of the rounds escapes with (1-p)^rounds.

    Attributes:
        threads: racers for one key.
        rounds: keys raced for, at most.
        overtaking_rounds: rounds with a big and a small body, at most.
        overtaking_bytes: size of the big body; less where the link is slow.
        seconds: what each of the two races may take, once it has had its least number of rounds.
        patience_seconds: what the least rounds with a big body may take; on a slower link the body shrinks until they
            do. A busy machine must not pass for a slow link: a small body gives some servers no gap to be caught in.
    """

    threads: int = 16
    rounds: int = 128
    overtaking_rounds: int = 32
    overtaking_bytes: int = 16 << 20
    seconds: float = 1.0
    patience_seconds: float = 20.0

    least_rounds: int = 8
    least_overtaking_rounds: int = 16


FULL: Final = Effort()
"""128 rounds let a file system that fails 21 rounds of 200 escape once in a million. A slow store gets 8 at least; that
is enough there: what makes it slow lies between its look and its write as well, and leaves it open in most rounds."""

LIGHT: Final = Effort(threads=8, rounds=8, overtaking_rounds=4, overtaking_bytes=1 << 20, least_overtaking_rounds=2)
"""For a folder or memory, where ``link(2)`` or one step of a dictionary decides, raced for in the conformance suite:
what remains to be asked is whether this very file system keeps to it. Some 30 ms."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A store that passed.

    Attributes:
        identity: the store, as a log records it.
        rounds: keys that threads raced for.
        overtaking_rounds: keys that a small body raced for against a big one.
        elapsed_ms: duration of the probe.
    """

    identity: StoreIdentity
    rounds: int
    overtaking_rounds: int
    elapsed_ms: int


def probe(store: Store, prefix: str, *, effort: Effort | None = None) -> Passed:
    """Test ``store`` with objects below ``prefix`` (a folder with its ``/``), which are deleted afterwards if possible.

    Raises:
        UnsafeStore: two creates of a key got the answer *created*, or one changed what another had written.
        StoreError: the store refused or never gave a definite answer; nothing is known of it.
    """
    identity = identity_of(store)
    if not identity.sends_condition:
        raise UnsafeStore(
            f"{identity.store_kind} is not known to leave create-if-absent to the service: most file systems of fsspec "
            "look first and write then"
        )
    if effort is None:
        effort = _effort_for(identity)
    started = time.monotonic()
    with _arena(store, prefix) as arena:
        _ask_in_sequence(arena)
        rounds = race_many(arena, effort)
        overtaking_rounds = race_overtaking(arena, effort)
    elapsed_ms = int((time.monotonic() - started) * 1000)
    return Passed(identity, rounds, overtaking_rounds, elapsed_ms)


def _effort_for(identity: StoreIdentity) -> Effort:
    return LIGHT if identity.store_kind in {"local", "memory"} else FULL


def needed_bytes(store: Store) -> int:
    """About how much space a probe needs at most, until it deletes its objects: the big ones count."""
    effort = _effort_for(identity_of(store))
    return (effort.overtaking_rounds + 2) * effort.overtaking_bytes


class Arena:
    """Fresh keys below one folder, and the rule by which the answers of a race are judged."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.keys: list[str] = []
        self._folder = folder

    def fresh_key(self) -> str:
        """A key that nobody used before."""
        self.keys.append(f"{self._folder}{len(self.keys):04d}")
        return self.keys[-1]

    def winner(self, key: str, bodies: Sequence[bytes], answers: Sequence[Created]) -> int | None:
        """Which racer's body is the object; None if none of them was stored. Raises UnsafeStore if that cannot be."""
        created = [number for number, answer in enumerate(answers) if answer is Created.CREATED]
        if len(created) > 1:
            raise UnsafeStore(
                f"the store reported {len(created)} of {len(answers)} creates of one key as the one that made it: "
                f"it looks first and writes then ({self.store!r})"
            )
        try:
            found = self.store.get(key)
        except ObjectNotFound:
            if created:
                raise UnsafeStore(f"an object is not there right after its create ({self.store!r})") from None
            return None
        stored = [number for number, body in enumerate(bodies) if body == found]
        if not stored or (created and created != stored):
            raise UnsafeStore(f"an object changed after its create ({self.store!r})")
        return stored[0]


def race_many(arena: Arena, effort: Effort) -> int:
    """Let many threads race for one key, round by round; the number of rounds that proved something."""
    bodies = [_body(number, _SMALL_BYTES) for number in range(effort.threads)]
    proved = 0
    deadline = time.monotonic() + effort.seconds
    for number in range(effort.rounds):
        if number >= effort.least_rounds and time.monotonic() > deadline:
            break
        proved += _race(arena, bodies, [0.0] * effort.threads) is not None
    _require_answers(proved, "a race")
    return proved


def race_overtaking(arena: Arena, effort: Effort) -> int:
    """Let a small create overtake a big one, round by round; the number of rounds that proved something."""
    size, duration = _affordable_size(arena, effort)
    bodies = [_body(0, size), _body(1, _SMALL_BYTES)]
    # Where the two are decided is not known: begin in the middle, wait longer while the small one is first, shorter
    # while it is late, in steps that get smaller; their length varies so that they do not settle next to the gap.
    delay, step = duration / 2, duration / 4
    proved = 0
    deadline = time.monotonic() + effort.seconds
    for number in range(effort.overtaking_rounds):
        if number >= effort.least_overtaking_rounds and time.monotonic() > deadline:
            break
        winner = _race(arena, bodies, [0.0, delay])
        proved += winner is not None
        varied = step * (0.5 + (number * 0.618) % 1)
        delay = min(max(delay + (varied if winner == 1 else -varied), 0.0), 2 * duration)
        step = max(step * 0.75, duration / 64)
    _require_answers(proved, "a race of a small object against a big one")
    return proved


def _affordable_size(arena: Arena, effort: Effort) -> tuple[int, float]:
    """The size of the big body and how long its create takes, judged by a smaller one."""
    size = min(effort.overtaking_bytes, 1 << 20)
    while True:
        began = time.monotonic()
        _create_definitely(arena, _body(0, size))
        duration = time.monotonic() - began
        larger = min(size * 4, effort.overtaking_bytes)
        if larger == size or duration * (larger / size) * effort.least_overtaking_rounds > effort.patience_seconds:
            return size, duration
        size = larger


def _race(arena: Arena, bodies: Sequence[bytes], delays: Sequence[float]) -> int | None:
    key = arena.fresh_key()
    start = threading.Barrier(len(bodies))
    answers: list[Result[Created]] = [Result(None)] * len(bodies)

    def create(body: bytes, delay: float) -> Created:
        start.wait(_START_SECONDS)
        if delay:
            time.sleep(delay)
        return arena.store.create(key, body)

    def run(number: int) -> None:
        answers[number] = result_of(partial(create, bodies[number], delays[number]))

    # Not a pool of the standard library: that takes no call, and cannot be imported, once the script has ended.
    threads = [
        threading.Thread(target=run, args=(number,), name="txnlog-probe", daemon=True) for number in range(len(bodies))
    ]
    try:
        for thread in threads:
            start_thread(thread)
    except RetriableError:
        start.abort()  # those that wait for the others
        raise
    for thread in threads:
        thread.join()
    return arena.winner(key, bodies, [answer.get() for answer in answers])


def _ask_in_sequence(arena: Arena) -> None:
    first, second = _body(0, _SMALL_BYTES), _body(1, _SMALL_BYTES)
    absent = arena.fresh_key()
    try:
        arena.store.get(absent)
    except ObjectNotFound:
        pass
    else:
        raise UnsafeStore(f"a key that was never written holds an object ({arena.store!r})")
    key = _create_definitely(arena, first)
    for body in (second, first):
        # The same bytes again as well: a store that takes them for "the same, so created" would hide a lost race.
        if arena.store.create(key, body) is Created.CREATED:
            raise UnsafeStore(f"the store reported a second create of a key as the one that made it ({arena.store!r})")
        if arena.store.get(key) != first:
            raise UnsafeStore(f"a second create replaced what the first had written ({arena.store!r})")


def _create_definitely(arena: Arena, body: bytes) -> str:
    """A fresh key that holds ``body`` for certain."""
    key = arena.fresh_key()
    for _ in range(_ATTEMPTS):
        answer = arena.store.create(key, body)
        if arena.winner(key, [body], [answer]) is not None:
            return key
    raise _inconclusive("a create")


def _require_answers(proved: int, what: str) -> None:
    if proved == 0:
        raise _inconclusive(what)


def _inconclusive(what: str) -> StoreError:
    return StoreError(
        f"the probe of the store got no definite answer to {what}",
        advice="try again when the store answers reliably",
        durable=Durable.NOTHING,
    )


def _body(number: int, size: int) -> bytes:
    """A body that says whose it is, so that a mixture of two would show."""
    return number.to_bytes(2, "big") * (size // 2)


@contextlib.contextmanager
def _arena(store: Store, prefix: str) -> Iterator[Arena]:
    assert prefix.endswith("/"), prefix
    arena = Arena(store, f"{prefix}{secrets.token_hex(8)}/")
    try:
        yield arena
    finally:
        for key in arena.keys:
            # Rights to delete are not needed to append: what cannot be removed stays, named as what it is.
            with contextlib.suppress(TxnLogError):
                store.delete(key)


__all__ = [
    "FULL",
    "LIGHT",
    "Arena",
    "Effort",
    "Passed",
    "needed_bytes",
    "probe",
    "race_many",
    "race_overtaking",
]
