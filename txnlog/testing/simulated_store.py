"""An object store whose requests are things in flight: each meets a fate that the seed draws.

A request leaves an actor, travels, is applied at some moment of virtual time (or never, or twice) and its answer comes
back, or does not. What is applied is atomic, as on every store txnlog appends to: the faults are in between and around.
All actors of a simulation share one :class:`SimulatedStore`; each sees it through an :class:`ActorStore` of its own.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

from txnlog.errors import Durable, StoreError
from txnlog.format import keys
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound
from txnlog.store.identity import StoreIdentity, make_identity
from txnlog.store.key_guard import check_key, check_prefix
from txnlog.store.memory import MemoryStore
from txnlog.store.wrappers import StoreCall
from txnlog.testing.faults import LONGEST_PAUSE_MS, NO_FAULTS, STORMS, FaultDice, Faults
from txnlog.testing.scheduler import START_MS, Actor, Scheduler

kind_of: Final = lru_cache(maxsize=8192)(keys.kind_of)

Listed = list[ObjectInfo]

IDENTITY: Final = make_identity("simulated", "", "")

_WRITES: Final = frozenset({StoreCall.CREATE, StoreCall.PUT, StoreCall.DELETE})
_READS: Final = frozenset({StoreCall.GET, StoreCall.GET_RANGE, StoreCall.INFO})
_OVERWRITES: Final = frozenset({StoreCall.PUT, StoreCall.DELETE})
_UPLOADS: Final = frozenset({"segment", "checkpoint"})
_UNHEARD: Final = frozenset({"lost", "dropped", "delayed"})
_REFUSED: Final = frozenset({"429", "500", "503"})
_TIMEOUTS_MS: Final = (50.0, 4_000.0)
_STORM_REQUESTS: Final = (2, 12)
_LATE_MS: Final = (0.0, 60.0, 3_000.0, 100_000.0)
"""Bounds of the three ways to be late: by a moment, by a few requests, by as much as a transaction's timeout."""

_SLOWEST_MS: Final = 40.0
_JUMP_MS: Final = 120_000


@dataclass(slots=True, eq=False)
class Request:
    """One request in flight.

    Attributes:
        number: in the order of sending.
        actor: who sent it.
        call: what it asks for.
        key: of the object, or the prefix of a listing.
        data: what a create or a put writes.
        fate: the fault that it meets, ``""`` for none.
    """

    number: int
    actor: Actor
    call: StoreCall
    key: str
    data: bytes
    fate: str

    @property
    def is_upload(self) -> bool:
        """Whether it brings an object that is big enough to be torn."""
        return self.call in {StoreCall.CREATE, StoreCall.PUT} and kind_of(self.key) in _UPLOADS


@dataclass(frozen=True, slots=True)
class Damage:
    """An object at rest that is not what was written: ``original`` is None where there is nothing to restore."""

    key: str
    kind: str
    original: bytes


class SimulatedStore:
    """The objects, what is in flight to them, and what is still to arrive.

    Attributes:
        objects: bytes and modification time in epoch milliseconds, by key.
        in_flight: requests under way, by number.
        late: requests that nobody waits for any more and that will be applied yet, by number.
        damaged: objects that are damaged at present, by key.
        was_damaged: whether any object ever was.
        listed_wrong: whether any listing ever lacked something.
        unknown_outcome: entries that some actor sent and has no answer for, with that actor's name.
        violations: what actors asked for that no client may ever ask a store for.
        requests: how many were sent so far.
        crash_hook: called when an actor crashed, so that somebody starts it again.
    """

    def __init__(self, scheduler: Scheduler, faults: Faults = NO_FAULTS) -> None:
        self.scheduler = scheduler
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.in_flight: dict[int, Request] = {}
        self.late: dict[int, Request] = {}
        self.damaged: dict[str, Damage] = {}
        self.buried: dict[str, tuple[bytes, int]] = {}
        self.was_damaged = False
        self.listed_wrong = False
        self.unknown_outcome: set[tuple[str, Actor]] = set()
        self.violations: list[str] = []
        self.requests = 0
        self.crash_hook: Callable[[Actor], None] = lambda _actor: None
        self._dice = FaultDice(faults, scheduler.chance)

    def set_faults(self, faults: Faults) -> None:
        """From here on other faults; what is late stays late."""
        self._dice = FaultDice(faults, self.scheduler.chance)

    def now_ms(self) -> int:
        """The store's own clock, which nothing disturbs."""
        return START_MS + int(self.scheduler.now_ms)

    # --- requests of actors -----------------------------------------------------------------------------------------

    def send(self, actor: Actor, call: StoreCall, key: str, data: bytes = b"", *, storm: str = "") -> Request:
        """Put a request on its way and let virtual time pass until it arrives.

        The actor may crash meanwhile (then this does not return), or be paused, or find its clock moved.
        """
        actor.check_alive()
        scheduler = self.scheduler
        self.requests += 1
        if call in _OVERWRITES and kind_of(key) == "entry" and not self._is_healed(key, data):
            self.violations.append(f"{actor!r} sent a {call.value} of {key}: a slot that was used never changes")
        request = Request(
            self.requests, actor, call, key, data, storm or self._dice.for_request(writes=call in _WRITES)
        )
        self.in_flight[request.number] = request
        scheduler.sleep(scheduler.chance.random() * _SLOWEST_MS)
        self.disturb(actor)
        del self.in_flight[request.number]
        return request

    def _is_healed(self, key: str, data: bytes) -> bool:
        """Whether an overwrite of an object that was damaged only puts what was there before."""
        return self.was_damaged and data == (
            self.damaged[key].original if key in self.damaged else self.objects.get(key, (b"", 0))[0]
        )

    def disturb(self, actor: Actor) -> None:
        """A point at which an actor may crash, be paused, or have its clock moved. A pause takes effect at once."""
        fault = self._dice.for_actor()
        if not fault:
            return
        chance = self.scheduler.chance
        if fault == "crash":
            self.crash(actor)
        elif fault == "pause":
            duration_ms = LONGEST_PAUSE_MS ** chance.random()
            self.scheduler.trace(actor, "paused", int(duration_ms))
            actor.pause(duration_ms)
            self.scheduler.sleep(0.0)
        else:
            self._move_clock(actor)

    def _move_clock(self, actor: Actor) -> None:
        chance = self.scheduler.chance
        kind = chance.choice(("jump", "stop", "right"))
        if kind == "jump":
            actor.skew_ms += chance.randint(-_JUMP_MS, _JUMP_MS)
            actor.stopped_at_ms = None
        elif kind == "stop":
            actor.stopped_at_ms = actor.clock_ms()
        else:
            actor.skew_ms, actor.stopped_at_ms = 0, None
        self.scheduler.trace(actor, "clock", kind, actor.skew_ms)
        self.scheduler.label(f"clock: {kind}")

    def crash(self, actor: Actor) -> None:
        """End an actor. What it has in flight is dropped, applied now, or applied later. Raises Crashed inside it."""
        for request in [item for item in self.in_flight.values() if item.actor is actor]:
            del self.in_flight[request.number]
            if request.call in _WRITES:
                end = self.scheduler.chance.choice(("dropped", "applied", "delayed"))
                self.scheduler.trace(actor, "dies with", request.call.value, request.key, end)
                if kind_of(request.key) == "entry":
                    self.scheduler.label(f"crash with an entry in flight, {end}")
                if end == "applied":
                    self._apply_quietly(request)
                elif end == "delayed":
                    self.send_late(request)
        actor.alive = False
        self.crash_hook(actor)
        self.scheduler.crash(actor)

    # --- what is late -----------------------------------------------------------------------------------------------

    def send_late(self, request: Request) -> None:
        """Have a request applied at some later moment; nobody waits for its answer."""
        chance = self.scheduler.chance
        self.late[request.number] = request
        kind = int(chance.random() * 3)
        delay = chance.uniform(_LATE_MS[kind], _LATE_MS[kind + 1])
        self.scheduler.after(delay, lambda: self._arrive_late(request))

    def deliver_everything(self) -> None:
        """Apply all that is late now, in the order of sending."""
        for request in list(self.late.values()):
            self._arrive_late(request)

    def _arrive_late(self, request: Request) -> None:
        if self.late.pop(request.number, None) is None:
            return
        result = self._apply_quietly(request)
        if request.call is StoreCall.CREATE and kind_of(request.key) == "entry":
            sender = "of the living" if request.actor.alive else "after its sender's death"
            if result is Created.CREATED:
                self.scheduler.label(f"late entry landed {sender}")
            elif self.objects[request.key][0] == request.data:
                self.scheduler.label("late entry found itself in the slot")
            else:
                self.scheduler.label("late entry found the slot occupied by another")

    def _apply_quietly(self, request: Request) -> object:
        try:
            return self.apply(request)
        except ObjectNotFound:
            return None

    # --- the store proper -------------------------------------------------------------------------------------------

    def apply(self, request: Request) -> object:
        """Carry a request out, atomically. Raises ObjectNotFound."""
        key, data, objects = request.key, request.data, self.objects
        result: object = None
        if request.call in _READS:
            result = objects.get(key)
        elif request.call is StoreCall.CREATE:
            result = Created.UNKNOWN if key in objects else Created.CREATED
            if result is Created.CREATED:
                objects[key] = (data, self.now_ms())
        elif request.call is StoreCall.PUT:
            objects[key] = (data, self.now_ms())
            if kind_of(key) == "proposal":
                self.scheduler.label("who collects was said" if key.endswith(".json") else "a proposal was put")
            self.damaged.pop(key, None)
        elif request.call is StoreCall.DELETE:
            gone = objects.pop(key, None)
            if gone is not None and kind_of(key) == "segment":
                self.buried[key] = gone
        else:
            result = [
                ObjectInfo(name, len(found), modified_ms)
                for name, (found, modified_ms) in sorted(objects.items())
                if name.startswith(key)
            ]
        self.scheduler.trace(
            request.actor, request.call.value, key, zlib.crc32(data), request.fate, result is Created.CREATED or ""
        )
        if result is None and request.call in _READS:
            raise ObjectNotFound(key)
        return result

    # --- damage at rest ---------------------------------------------------------------------------------------------

    def may_damage(self) -> bool:
        """Whether the dice say that an object is damaged now."""
        return self._dice.damages()

    def damage(self) -> None:
        """Damage one object at rest, if there is one whose damage has to be noticed.

        Those are segments, parts and manifests of checkpoints, and entries that a later one vouches for. Entries are
        not deleted: a slot that was used never becomes free is what the protocol asks of a store, not what it checks.
        Nor is an entry harmed whose sender still asks whether it is there: what lies there is its only answer.
        """
        chance = self.scheduler.chance
        asked = {key for key, actor in self.unknown_outcome if actor.alive}
        tail = max((key for key in self.objects if kind_of(key) == "entry"), default="")
        found = [
            key
            for key in self.objects
            if key not in self.damaged
            and (kind_of(key) in _UPLOADS or (kind_of(key) == "entry" and key < tail and key not in asked))
        ]
        if not found:
            return
        key = chance.choice(found)
        kinds = ["flip", "cut", "swap", "deletion"][: 3 if kind_of(key) == "entry" else 4]
        kind = chance.choice(kinds)
        original, modified_ms = self.objects[key]
        broken = bytearray(original)
        if kind == "flip":
            broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        elif kind == "cut":
            del broken[chance.randrange(len(broken)) :]
        elif kind == "swap":
            broken = bytearray(self.objects[chance.choice([other for other in found if other != key] or [key])][0])
        if bytes(broken) == original and kind != "deletion":
            return
        self.damaged[key] = Damage(key, kind, original)
        self.was_damaged = True
        if kind == "deletion":
            del self.objects[key]
        else:
            self.objects[key] = (bytes(broken), modified_ms)
        self.scheduler.trace("damage", kind, key)
        self.scheduler.label(f"damage at rest: {kind} of {kind_of(key)}")

    def repair(self) -> None:
        """Restore every damaged object from its copy."""
        for key, damage in self.damaged.items():
            self.objects[key] = (damage.original, self.now_ms())
            self.scheduler.trace("repair", key)
        self.damaged.clear()


class StoreAtRest(MemoryStore):
    """The objects as they lie there, to be read without requests: for looking at a run from outside."""

    def __init__(self, shared: SimulatedStore) -> None:
        super().__init__()
        self._shared = shared

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All keys that begin so, in order."""
        return (
            ObjectInfo(key, len(data), at)
            for key, (data, at) in sorted(self._shared.objects.items())
            if key.startswith(prefix)
        )

    def _object(self, key: str) -> tuple[bytes, int]:
        found = self._shared.objects.get(key)
        if found is None:
            raise ObjectNotFound(key)
        return found


class ActorStore:
    """The store as one actor sees it: sends its requests and turns their fates into answers.

    Attributes:
        misled: whether it ever gave damaged bytes away. A client that applied them stays with its CorruptionError.
    """

    def __init__(self, shared: SimulatedStore, actor: Actor) -> None:
        self.shared = shared
        self.actor = actor
        self.misled = False
        self._storm: tuple[str, int] = ("", 0)
        self._unknown: dict[str, bytes] = {}

    @property
    def identity(self) -> StoreIdentity:
        """One for all simulated stores: its verdict is in the root log from the beginning."""
        return IDENTITY

    def create(self, key: str, data: bytes) -> Created:
        """Create if absent; UNKNOWN where the outcome is, or StoreError with what may be durable."""
        entry = kind_of(key) == "entry"
        if entry:
            self.shared.unknown_outcome.add((key, self.actor))
        request = self._send(StoreCall.CREATE, key, data)
        if entry and key in self._unknown:
            self.shared.scheduler.label("slot free after an unknown outcome: the same bytes again")
            if self._unknown[key] != data:
                self.shared.violations.append(f"{self.actor!r} put other bytes into {key}, whose outcome is unknown")
        try:
            answer = self._answered(request)
        except StoreError as error:
            if entry and error.durable is not Durable.NOTHING:
                self._unknown[key] = data
            raise
        if answer is None:
            if entry:
                self._unknown[key] = data
            return Created.UNKNOWN
        assert isinstance(answer, Created), answer
        if entry:
            self._label_create(key, data, answer)
        return answer

    def _resolve(self, key: str) -> bytes | None:
        """Its slot is occupied: the bytes whose outcome was unknown, if any were."""
        self.shared.unknown_outcome.discard((key, self.actor))
        return self._unknown.pop(key, None)

    def _label_create(self, key: str, data: bytes, answer: Created) -> None:
        scheduler = self.shared.scheduler
        if answer is Created.CREATED:
            if self._resolve(key) is not None:
                scheduler.label("entry of unknown outcome created by a later put")
            commits = data.count(b'"action":"commit"')
            if commits > 1:
                scheduler.label("several commits in one entry")
            if b'"reason":"timeout"' in data:
                scheduler.label("an overdue transaction ended with an entry")
            if b'"checkpoint":' in data:
                scheduler.label("an entry names a checkpoint")
        elif key not in self._unknown:
            scheduler.label("lost a race for a slot")

    def put(self, key: str, data: bytes) -> None:
        """Write; StoreError(MAYBE) where the outcome is unknown."""
        self._answered(self._send(StoreCall.PUT, key, data))

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """The whole object, as it is at rest."""
        found = self._answered(self._send(StoreCall.GET, key))
        assert isinstance(found, tuple), found
        data: bytes = found[0]
        sent = self._resolve(key)
        if sent is not None:
            self.shared.scheduler.label(
                "ambiguous put resolved as mine" if sent == data else "ambiguous put resolved as another's"
            )
        if key in self.shared.damaged:
            self.misled = True
            self.shared.scheduler.label(f"damaged {kind_of(key)} was read")
        return data

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)`` as they are at rest."""
        found = self._answered(self._send(StoreCall.GET_RANGE, key))
        assert isinstance(found, tuple), found
        data: bytes = found[0]
        return data[start:end]

    def info(self, key: str) -> ObjectInfo:
        """Size and modification time by the store's clock."""
        found = self._answered(self._send(StoreCall.INFO, key))
        assert isinstance(found, tuple), found
        return ObjectInfo(key, len(found[0]), found[1])

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Keys in order; with a stale listing without the newest, without random ones, or without any."""
        request = self._send(StoreCall.LIST, prefix)
        found = self._answered(request)
        infos = cast("Listed", found)
        if request.fate == "stale_list":
            infos = self._stale(infos)
        return iter(infos)

    def _stale(self, found: Listed) -> Listed:
        chance = self.shared.scheduler.chance
        self.shared.listed_wrong = True
        self.shared.scheduler.label("stale listing")
        kind = chance.choice(("newest", "random", "all"))
        if kind == "all":
            return []
        if kind == "random":
            return [item for item in found if chance.random() < 0.5]
        newest = max((item.modified_ms for item in found), default=0)
        return [item for item in found if item.modified_ms < newest]

    def delete(self, key: str) -> None:
        """Remove; StoreError(MAYBE) where the outcome is unknown."""
        self._answered(self._send(StoreCall.DELETE, key))

    def url(self, key: str) -> str:
        """``simulated://key``; nobody can follow it."""
        return f"simulated://{check_key(key)}"

    def sync(self, key: str) -> None:
        """Nothing, as on every object store."""
        self.actor.check_alive()
        check_key(key)

    def __repr__(self) -> str:
        return f"<ActorStore of {self.actor!r}>"

    # --- fates ------------------------------------------------------------------------------------------------------

    def _send(self, call: StoreCall, key: str, data: bytes = b"") -> Request:
        _ = check_prefix(key) if call is StoreCall.LIST else check_key(key)
        storm, left = self._storm
        if left:
            self._storm = (storm, left - 1)
        request = self.shared.send(self.actor, call, key, data, storm=storm if left else "")
        if request.fate == "storm":
            chance = self.shared.scheduler.chance
            request.fate = chance.choice(STORMS)
            self._storm = (request.fate, chance.randint(*_STORM_REQUESTS))
            self.shared.scheduler.label(f"storm of {request.fate}")
        return request

    def _answered(self, request: Request) -> object:
        """The answer to the client. None: UNKNOWN, for a create; raises StoreError for other faults, ObjectNotFound."""
        if request.fate and self._goes_wrong(request):
            return None
        return self.shared.apply(request)

    def _goes_wrong(self, request: Request) -> bool:
        """Let a fault take its course: True for a create that is answered UNKNOWN, else StoreError; False for none."""
        fate, scheduler = request.fate, self.shared.scheduler
        if fate in _UNHEARD or (fate == "torn" and request.is_upload):
            self._end_unheard(request)
            scheduler.sleep(scheduler.chance.uniform(*_TIMEOUTS_MS))
            return self._unanswered(request)
        if fate in _REFUSED:
            if fate == "500" and scheduler.chance.random() < 0.5:
                self._apply(request)
            return self._unanswered(request)
        if fate == "expired":
            scheduler.trace(self.actor, "expired", request.call.value, request.key)
            raise StoreError("credentials expired (simulated)", durable=Durable.NOTHING)
        if fate == "duplicated" and request.call in _WRITES:
            self.shared.send_late(request)
        return fate == "409" and request.call is StoreCall.CREATE

    def _end_unheard(self, request: Request) -> None:
        """What becomes of a request whose answer nobody hears: applied, applied late, or dropped."""
        scheduler, late = self.shared.scheduler, request.fate == "delayed"
        if request.fate == "torn":
            late = scheduler.chance.random() < 0.5
            scheduler.label("torn upload arrives late" if late else "torn upload never arrives")
        if request.fate == "lost":
            self._apply(request)
        elif late and request.call in _WRITES:
            self.shared.send_late(request)

    def _apply(self, request: Request) -> None:
        with contextlib.suppress(ObjectNotFound):
            self.shared.apply(request)

    def _unanswered(self, request: Request) -> bool:
        """True for UNKNOWN, as a create may answer; else StoreError, which says what may have been written."""
        self.shared.scheduler.trace(self.actor, request.fate, request.call.value, request.key)
        if request.call is StoreCall.CREATE and self.shared.scheduler.chance.random() < 0.5:
            return True
        raise StoreError(
            f"{request.call.value} of {request.key}: {request.fate} (simulated)",
            durable=Durable.MAYBE if request.call in _WRITES else Durable.NOTHING,
        )


__all__ = ["IDENTITY", "ActorStore", "Damage", "Request", "SimulatedStore", "StoreAtRest"]
