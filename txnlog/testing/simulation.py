"""One simulated run: a seed becomes a world, its faults and its actors; afterwards everything is checked.

1. The scheduled part: actors work while faults befall requests, actors and objects, until the budget of requests is
   used up.
2. Liveness: faults are off, damage is repaired; what is under way must end, and subscriptions must come to their end.
3. What is still late arrives. Then a fresh client reads everything, and the history is judged.
4. The states agree: from zero, from the newest checkpoint, and what every living client holds in memory.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from txnlog.common.format_limits import EXPIRY_GRACE_MS, FORMAT_VERSION
from txnlog.engine.promises import forgetting_promises
from txnlog.engine.runtime import Runtime
from txnlog.errors import InvalidTransactionState, TxnLogError
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.actions import AnyAction, Protocol, Verdict
from txnlog.format.actions import Namespace as NamespaceAction
from txnlog.format.codec import Entry
from txnlog.format.features import HOLES
from txnlog.log.log_reader import Log
from txnlog.log.root_log import create_log
from txnlog.store.wrappers import PrefixStore
from txnlog.testing import audit
from txnlog.testing.actors import ACTOR_KINDS, COPIER, MORE_KINDS, TRUNCATOR, ActorKind
from txnlog.testing.actors.compactor import small_steps
from txnlog.testing.actors.copier import back_up, bring_back, go_on, new_name
from txnlog.testing.actors.ending import complete
from txnlog.testing.actors.failover import Standby
from txnlog.testing.actors.pipeline import Pipeline
from txnlog.testing.actors.writer import begin_with
from txnlog.testing.client import Client, rows_of
from txnlog.testing.compactions import ended_of, keyed_of, removed_of
from txnlog.testing.expiries import expired_of
from txnlog.testing.faults import NO_FAULTS, Faults
from txnlog.testing.history import History, Recorder
from txnlog.testing.keyed import KEY
from txnlog.testing.operation_parts import Created
from txnlog.testing.restored import Original
from txnlog.testing.scheduler import Actor, Crashed, Scheduler, Task
from txnlog.testing.simulated_store import IDENTITY, ActorStore, SimulatedStore, StoreAtRest
from txnlog.testing.truncations import truncated_of
from txnlog.testing.workloads import ADDITIONS, Workload
from txnlog.testing.world import (
    DEAD_LETTERS,
    FAILOVER,
    FAILOVER_LEASE_MS,
    LEASE_MS,
    MOST_REDELIVERIES,
    NAMESPACE,
    SCHEMA,
    SHARED,
    SUBSCRIPTIONS,
    TOPICS,
    World,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

T = TypeVar("T")

BUDGET: Final = (70, 180)
"""Requests of the scheduled part."""

ACTORS: Final = (3, 5)
_ACTORS_OF: Final[Mapping[Workload, tuple[int, int]]] = {"crowded": (1, 2), "restored": (2, 3), "compacted": (2, 4)}
"""Where those who are added have most of the work."""

_BESIDES: Final = (1, 2)
_MORE_BEGINNINGS: Final = 3
"""So many messages are there where they have keys, so that there is something to compact."""

_COMPACTED: Final[Mapping[str, dict[str, Any]]] = {
    "orders": {"delete_retention_ms": 500},
    "audit": {"delete_retention_ms": 0, "min_compaction_lag_ms": 1_000},
}
"""How topics are compacted until somebody gives them other settings."""

_NO_MERGES: Final = 1 << 30
_MERGE_INTERVAL: Final = 5
"""In the workloads that were added later: seeds of the others do what they did."""

KIND_TAKES_PART: Final = 0.5
RESTART_MS: Final = 1_500.0
DAMAGE_EVERY_MS: Final = 700.0

MOST_EVENTS: Final = 60_000
"""Of one phase: a hundred times what a slow one takes. A run that needs more makes no progress."""
MOST_REQUESTS: Final = 2_000
"""Of one run. Those of 200,000 took 496 at most, but for a client that asked without a pause."""


@dataclass(frozen=True)
class Failure:
    """Something that must never happen.

    Attributes:
        kind: the anomaly of the history, or ``crash``, ``log``, ``liveness``, ``offsets``, ``state``, ``store``.
        message: what was seen.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass
class Report:
    """What a run came to.

    Attributes:
        seed: gives the same run again.
        failures: empty, or the client (or this simulation) has a bug.
        requests: sent to the store, in all phases.
        actors: names of the actors, which begin with their kind.
        faults: those that were on.
        labels: the situations that were reached.
        history: every operation.
        trace: every request, fault and operation, a line each.
        trace_hash: the same for every run of the seed.
    """

    seed: int
    failures: list[Failure]
    requests: int
    actors: tuple[str, ...]
    faults: Faults
    labels: Counter[str]
    history: History
    _scheduler: Scheduler = field(repr=False)

    @property
    def trace(self) -> list[str]:
        """A line for each event."""
        return self._scheduler.trace_lines()

    @property
    def trace_hash(self) -> str:
        """Over the trace."""
        return self._scheduler.trace_hash()


class Simulation:
    """One run of one seed.

    Args:
        seed: decides everything.
        kinds: the kinds of actors to draw from, the first is in every run; left out, some of those that there are.
        faults: those to have instead of drawn ones.
        workload: what there is besides, and how much more work: ``"plain"``, nothing, so that a seed does what it
            always did, or one of ``txnlog.testing.workloads.ADDITIONS``, which says what it adds.
    """

    def __init__(
        self,
        seed: int,
        *,
        kinds: Mapping[str, ActorKind] | None = None,
        faults: Faults | None = None,
        workload: Workload = "plain",
    ) -> None:
        self.scheduler = Scheduler(seed, on_error=self._on_error)
        chance = self.scheduler.chance
        self.faults = Faults.draw(chance) if faults is None else faults
        self.store = SimulatedStore(self.scheduler, self.faults)
        self.store.crash_hook = self._restart
        self._added = ADDITIONS.get(workload)
        founded = _founded(keyed=self._added is not None and self._added.keyed)
        self.store.objects.update(founded.shared_store.objects)
        self.world = World(
            self.store,
            Recorder(founded.recorder.history()),
            budget=chance.randint(*BUDGET),
            trusts_clock=chance.random() < 0.5,
            checkpoint_interval=chance.choice((12, 30, 1_000)),
            create_attempts=chance.choice((2, 4, 12)),
            next_value=founded.next_value,
            keyed=founded.keyed,
        )
        self.failures: list[Failure] = []
        self._kinds = dict(ACTOR_KINDS if kinds is None else kinds)
        if self._added is not None:
            self.world.merge_interval = _MERGE_INTERVAL
            self.world.budget *= self._added.budget
        self._others = _ACTORS_OF.get(workload, ACTORS)
        self._some = kinds is None
        self._lives: dict[str, tuple[Actor, Callable[[Client], None]]] = {}
        self._waiting = 0

    # --- the phases -------------------------------------------------------------------------------------------------

    def run(self) -> Report:
        """All phases. Never raises: what goes wrong is a failure."""
        names = self._cast()
        with _quiet(self.failures), forgetting_promises(), small_steps(self.world, self.scheduler.seed):
            kinds = ACTOR_KINDS | self._kinds | MORE_KINDS
            for name in names:
                self._begin_life(name, kinds[name.rstrip("0123456789")], 0)
            if "damage" in self.faults.rates:
                self.scheduler.after(DAMAGE_EVERY_MS, self._maybe_damage)
            self._phase("the scheduled part", lambda: self.world.over)
            self._end_faults()
            if self._phase("liveness: operations under way", self._all_ended) and self._all_ended():
                self._audit()
            self._shut_down()
            self.world.clients.clear()
        self.failures.extend(Failure("store", text) for text in self.store.violations)
        if self.store.requests > MOST_REQUESTS * (1 if self._added is None else self._added.budget):
            self.failures.append(Failure("liveness", f"{self.store.requests} requests: somebody asks again and again"))
        history = self.world.recorder.history()
        self.failures.extend(Failure(item.anomaly, str(item)) for item in audit.judge(history))
        return Report(
            self.scheduler.seed,
            self.failures,
            self.store.requests,
            tuple(names),
            self.faults,
            self.scheduler.labels,
            history,
            self.scheduler,
        )

    def _cast(self) -> list[str]:
        """Names of the actors: their kind and a number.

        Each kind may take part in half of the runs only, with a weight of its own: so that some have many of one kind,
        and few kinds meet each other more often than many.
        """
        chance = self.scheduler.chance
        first, *others = self._kinds
        chosen = [first, *(kind for kind in others if not self._some or chance.random() < KIND_TAKES_PART)]
        weights = [chance.random() for _ in chosen]
        drawn = [first, *chance.choices(chosen, weights, k=chance.randint(*self._others) - 1)]
        if self._added is not None:
            drawn += [self._added.kind] * chance.choice(self._added.counts)
            if self._added.besides:
                drawn += chance.sample(self._added.besides, chance.randint(*_BESIDES))
        return [f"{kind}{number}" for number, kind in enumerate(drawn)]

    def _phase(self, name: str, done: Callable[[], bool]) -> bool:
        """Run until ``done()``, or until nobody has anything to do; False, and a failure, if there was no end."""
        if not self.scheduler.run(done, MOST_EVENTS):
            alive = [f"{actor!r}" for actor, _ in self._lives.values() if self._busy(actor)]
            self.failures.append(Failure("liveness", f"{name} did not end; at work: {', '.join(alive)}"))
            return False
        return True

    def _end_faults(self) -> None:
        self.store.set_faults(NO_FAULTS)
        self.store.repair()
        self.world.faultless = True
        for actor, _ in self._lives.values():
            actor.skew_ms, actor.stopped_at_ms = 0, None
        self.scheduler.trace("faults end")

    def _all_ended(self) -> bool:
        return self._waiting == 0 and not any(self._busy(actor) for actor, _ in self._lives.values())

    @staticmethod
    def _busy(actor: Actor) -> bool:
        """Whether the actor's own work goes on; its background tasks wait for ever."""
        return actor.alive and bool(actor.tasks) and actor.tasks[0].name == "main" and actor.tasks[0].is_alive()

    # --- lives ------------------------------------------------------------------------------------------------------

    def _begin_life(self, name: str, kind: Callable[[Client], None], life: int) -> Actor:
        actor = Actor(self.scheduler, name, life)
        self._lives[name] = (actor, kind)
        actor.start(lambda: kind(Client(self.world, actor)), "main")
        return actor

    def _restart(self, actor: Actor) -> None:
        """A crashed actor begins its next life after a while."""
        self.scheduler.label("crash")
        _, kind = self._lives[actor.name]
        self.world.clients.pop(str(actor), None)
        if not self.world.faultless:
            self._waiting += 1
            self.scheduler.after(
                self.scheduler.chance.random() * RESTART_MS, lambda: self._next_life(actor.name, kind, actor.life + 1)
            )

    def _next_life(self, name: str, kind: Callable[[Client], None], life: int) -> None:
        self._waiting -= 1
        if not self.world.over:
            self._begin_life(name, kind, life)

    def _maybe_damage(self) -> None:
        if self.world.over:
            return
        if self.store.damaged:
            self.store.repair()
        elif self.store.may_damage():
            self.store.damage()
        self.scheduler.after(DAMAGE_EVERY_MS, self._maybe_damage)

    def _on_error(self, task: Task, error: BaseException) -> None:
        """No error but those that the actors expect may come out of the client."""
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = "" if where is None else f" at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}"
        self.failures.append(Failure("crash", f"{task.actor!r} {task.name}: {type(error).__name__}: {error}{place}"))

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _alone(self, name: str, work: Callable[[Client], None]) -> bool:
        """Let one fresh client work without faults; whether it came to its end."""
        actor = self._begin_life(name, work, 0)
        return self._phase(name, lambda: not self._busy(actor))

    def _audit(self) -> None:
        """One fresh client gets every subscription to its end; when nothing is late any more it reads everything.

        Transactions that nobody ended are ended by its first entry.
        """
        self.world.merge_interval = _NO_MERGES  # what it reads is compared with the log as it was replayed

        def look(client: Client) -> None:
            ns = client.open()
            while True:  # until all that is open or leased is overdue, also what landed late meanwhile
                state = ns._connection.follower.state
                ends = [item.deadline_ms or 0 for item in state.transactions.values()]
                ends += [lease.until_ms for cursor in state.cursors.values() for lease in cursor.leases]
                client.sleep(max(0, max(ends, default=0) - client.runtime.now_ms()) + EXPIRY_GRACE_MS + 1)
                known = ns._connection.follower.version
                if ns._connection.follower.refresh() == known:
                    break
            for item in ns.transactions(state="PREPARED"):
                with contextlib.suppress(InvalidTransactionState):  # forced, and reported late: the history knows
                    complete(client, ns, str(item.txn_id))
            for place in dict.fromkeys((SUBSCRIPTIONS[0], *self.world.subscribed)):
                self._drain(Standby(client, ns) if place == FAILOVER else Pipeline(client, ns, *place))
            self.store.deliver_everything()
            log = Log(PrefixStore(StoreAtRest(self.store), NAMESPACE), _Direct())
            replayed, entries = audit.replay(log, self._problem)
            for label in (*audit.labels_of(entries), *audit.merged_of(entries)):
                self.scheduler.label(label)
            if replayed.transactions:
                self._problem("liveness", f"transactions stay open: {list(replayed.transactions)}")
            self._final(client, ns, replayed, entries)
            self._compare_states(log, replayed, entries)
            if COPIER in (self._added or ()):
                self._restore(client, ns, entries)

        self._alone("auditor", look)

    def _drain(self, role: Pipeline) -> None:
        """Receive and acknowledge until nothing is left; where nothing comes any more, the audit says so.

        Who waits for its place waits for another lease where something late landed since: it may be a sign of life.
        """
        late = len(self.store.late)
        role.reopen()
        if isinstance(role, Standby):
            role.client.sleep(FAILOVER_LEASE_MS + 1)
        while role.left:
            before, late = late, len(self.store.late)
            messages = role.receive(1_000)
            if len(messages):
                role.acknowledge(None, messages)
            elif role.epoch is None and len(self.store.late) < before:
                role.client.sleep(FAILOVER_LEASE_MS + 1)
            else:
                return

    def _final(self, client: Client, ns: Namespace, replayed: State, entries: Sequence[Entry]) -> None:
        """Every row and every cursor as a client reads them, and every outcome as the whole log has it."""
        token = self.world.recorder.invoke(client.name, "final")
        snapshot = ns.snapshot()
        rows = rows_of(ns, snapshot)
        cursors = audit.cursors_of(ns, self.world.subscribed)
        ends = {place: snapshot.end_offsets(place[0]) for place in cursors}
        starts = {(replayed.topics[topic].folder, p): offset for (topic, p), offset in replayed.starts.items()}
        dead = audit.dead_letters(snapshot, DEAD_LETTERS, SHARED[1])
        if dead:
            self.scheduler.label("a dead letter")
        missing = tuple(audit.missing_files(replayed, self._at_rest, self._problem))
        if starts or any(record.extent is not None for record in replayed.segments.values()):
            self.store.objects.update(self.store.buried)
            rows = audit.all_rows(ns, entries, rows)
        audit.check_ends(rows, ends, cursors, self._problem, starts)
        keyed = tuple(keyed_of(rows, self.world.keyed))
        removed = tuple(removed_of(ns, entries, self.world.compactors)) if keyed else ()
        if ended_of(keyed, removed):
            self.scheduler.label("a key ended for good")
        truncated = truncated_of(ns, entries) if TRUNCATOR in (self._added or ()) else ()
        if truncated:
            self.scheduler.label("a topic was truncated")
        self.world.recorder.ok(
            token,
            rows=rows,
            outcomes=audit.ends_of(replayed, self.world.transactions),
            cursors=cursors,
            dead=dead,
            missing=missing,
            expired=tuple(expired_of(entries, rows, self.world.retainers)) if self.world.retainers else (),
            created=tuple(
                Created(replayed.topics[s.topic].name, s.name, s.id) for s in replayed.subscriptions.values()
            ),
            keyed=keyed,
            removed=removed,
            truncated=truncated,
        )
        self.scheduler.trace("final", rows)

    def _restore(self, client: Client, ns: Namespace, entries: Sequence[Entry]) -> None:
        """Every backup that was reported as made is whole; what was restored of them is the original, and goes on."""
        self.store.objects.update(self.store.buried)
        world, original = self.world, Original(ns, entries, self.store, self._problem)
        for version in sorted(world.backups):
            original.check_backup(version, _Direct())  # before the next one copies what these lack
        for name in sorted(world.restoring):
            bring_back(client, name)
        back_up(client, newest=True)
        bring_back(client, new_name(client, max(world.backups)), newest=True)
        for name, version in sorted(world.restored.items()):
            original.check_restored(name, version, go_on(client, name, version), _Direct())

    def _problem(self, kind: str, message: str) -> None:
        self.failures.append(Failure(kind, message))

    def _at_rest(self, key: str) -> bytes | None:
        found = self.store.objects.get(f"{NAMESPACE}/{key}")
        return None if found is None else found[0]

    def _compare_states(self, log: Log, replayed: State, entries: Sequence[Entry]) -> None:
        """Replay from zero, from the newest checkpoint (the auditor's), and every client's state are the same."""
        for name, client in self.world.clients.items():
            if client.ns is not None and not client.store.misled:
                follower = client.ns._connection.follower
                follower.log = log  # a client that came to its end asks the store no more: its state goes on here
                for entry in entries[follower.version + 1 :]:
                    follower.apply_entry(entry)
                audit.compare_state(name, replayed, follower, self._problem)

    def _shut_down(self) -> None:
        """End every task that still waits."""
        for actor, _ in self._lives.values():
            if actor.alive:
                actor.alive = False
                self.scheduler.unwind(actor)


# --- a namespace to begin with ----------------------------------------------------------------------------------------


@lru_cache(maxsize=2)
def _founded(*, keyed: bool = False) -> World:
    """A root whose store passed its probe, with a namespace, its topics and some messages: the same in every process.

    ``keyed``: the topics have a key, and are to be compacted by it.

    The probe itself races real threads; it has tests of its own.
    """
    scheduler = Scheduler(0)
    store = SimulatedStore(scheduler)
    world = World(store, Recorder(), budget=1_000, keyed=frozenset(TOPICS if keyed else ()))
    actor = Actor(scheduler, "founder")

    def found(client: Client) -> None:
        start: list[AnyAction] = [
            Protocol(FORMAT_VERSION, FORMAT_VERSION),
            NamespaceAction(keys.CATALOG_FOLDER, 0),
            Verdict(IDENTITY.store_kind, IDENTITY.endpoint_hash, 1),
        ]
        catalog = PrefixStore(ActorStore(store, actor), keys.CATALOG_FOLDER)
        create_log(catalog, client.runtime, start, client.runtime.unique())
        ns = client.open()
        if keyed:
            ns.enable(HOLES)
        for topic, partitions in TOPICS.items():
            if keyed:
                ns.create_topic(topic, partitions=partitions, key=KEY, cleanup_policy="compact", **_COMPACTED[topic])
            else:
                ns.create_topic(topic, schema=SCHEMA, partitions=partitions)
        client.call(
            "create_subscription",
            lambda: ns.create_subscription(
                *SHARED,
                type="shared",
                lease_ms=LEASE_MS,
                allow_short_lease=True,
                max_redeliveries=MOST_REDELIVERIES,
                dead_letter_topic=DEAD_LETTERS,
            ),
            topic=SHARED[0],
            subscription=SHARED[1],
            shared=True,
            max_redeliveries=MOST_REDELIVERIES,
        )
        ns.create_subscription(*FAILOVER, type="failover", lease_ms=FAILOVER_LEASE_MS, allow_short_lease=True)
        for _ in range(_MORE_BEGINNINGS if keyed else 1):
            for topic, partitions in TOPICS.items():
                for partition in range(partitions):
                    begin_with(client, ns, topic, partition)

    actor.start(lambda: found(Client(world, actor)), "main")
    scheduler.run()
    assert actor.tasks[0].error is None, actor.tasks[0].error
    return world


def founded_objects() -> dict[str, bytes]:
    """What is on the store then."""
    return {key: data for key, (data, _) in _founded(keyed=False).shared_store.objects.items()}


class _Direct(Runtime):
    """For looking at a log when the run is over: one call after the other."""

    def run_all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make the calls in order."""
        return [call() for call in calls]


# --- the surroundings -------------------------------------------------------------------------------------------------


class _Collector(logging.Handler):
    """Takes what the client logs as an error, with its traceback: best-effort work that failed by a bug."""

    def __init__(self, failures: list[Failure]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        """A failure, unless the actor crashed while it was at it, or the store failed."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, Crashed | TxnLogError):
            self._failures.append(Failure("log", f"{record.getMessage()}: {error!r}"))


@contextlib.contextmanager
def _quiet(failures: list[Failure]) -> Iterator[None]:
    """Logged errors become failures, and nothing is shown."""
    logger: Any = logging.getLogger("txnlog")
    handler = _Collector(failures)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(handler)


__all__ = ["Failure", "Report", "Simulation", "founded_objects"]
