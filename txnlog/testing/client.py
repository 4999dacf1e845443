"""One life of a simulated client: it opens the namespace, calls, and has every call written down."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from txnlog.api.opening import open_namespace
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    FencedError,
    InvalidInputError,
    RetriableError,
    StoreError,
    TxnLogError,
)
from txnlog.testing.keyed import numbers_of
from txnlog.testing.operation_kinds import Kind
from txnlog.testing.scheduler import Actor
from txnlog.testing.simulated_runtime import SimulatedRuntime
from txnlog.testing.simulated_store import ActorStore
from txnlog.testing.world import (
    DEAD_LETTERS,
    NAMESPACE,
    ROOT,
    World,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.snapshot import Snapshot
    from txnlog.client.connection import Connection
    from txnlog.results import Committed, TransactionInfo

R = TypeVar("R")


class Client:
    """One life of one actor: its store, runtime and generator, and the recording of what it calls."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor
        self.name = str(actor)
        self.scheduler = actor.scheduler
        self.chance: random.Random = actor.scheduler.chance
        self.store = ActorStore(world.shared_store, actor)
        self.ns: Namespace | None = None
        world.clients[self.name] = self
        self.runtime = SimulatedRuntime(actor, world.shared_store, trusts_clock=world.trusts_clock)

    def over(self) -> bool:
        """Whether to come to an end."""
        return self.world.over

    def hits(self, probability: float) -> bool:
        """A coin."""
        return self.chance.random() < probability

    def sleep(self, milliseconds: float) -> None:
        """Wait for virtual time, as the program around a client would."""
        self.runtime.sleep_ms(milliseconds)

    def open(self, mode: Any = "rw") -> Namespace:
        """The namespace, however often opening it has to be tried; made where it does not exist."""
        while True:
            try:
                ns = open_namespace(
                    ROOT,
                    NAMESPACE,
                    mode=mode,
                    create=mode == "rw",
                    store=self.store,
                    runtime=self.runtime,
                )
            except (StoreError, RetriableError, CorruptionError, InvalidInputError) as error:
                self.note(error)
                self.sleep(self.chance.random() * 200)
            else:
                ns._connection.session.checkpointer.interval = self.world.checkpoint_interval
                ns._connection.session.checkpointer.spread = 4
                ns._connection.session.auto_merger.interval = self.world.merge_interval
                if mode == "rw":
                    ns._connection.appender.create_attempts = self.world.create_attempts
                self.ns = ns
                if ns._connection.follower.base is not None:
                    self.scheduler.label("opened from a checkpoint")
                return ns

    def call(
        self,
        kind: Kind,
        call: Callable[[], R],
        result: Callable[[R], dict[str, Any]] = lambda _value: {},
        found: Callable[[], dict[str, Any]] = dict,
        **arguments: Any,
    ) -> R:
        """Make a call and write it down: what was asked, what was answered, or that it never returned.

        ``found`` is asked at the call's end, however it ends: arguments that only the call itself could find out.
        """
        recorder = self.world.recorder
        token = recorder.invoke(self.name, kind, **arguments)
        self.scheduler.trace(self.actor, "calls", kind, arguments)
        try:
            try:
                value = call()
            finally:
                recorder.amend(token, **found())
        except Exception as error:
            self.failed(token, kind, error)
            raise
        shown = result(value)
        recorder.ok(token, **shown)
        self.scheduler.trace(self.actor, "returned", kind, shown)
        return value

    def folder(self, topic: str) -> str:
        """The folder of the topic that has this name now: its name in the history, where a name can come again."""
        return self.connection.topic_handle(topic).record.folder

    def known_folder(self, topic: str) -> str:
        """The folder of the topic that the newest call by this name went to."""
        return self.connection._handles[topic].record.folder

    @property
    def connection(self) -> Connection:
        """What the client knows of the namespace that it opened."""
        assert self.ns is not None, "opened first"
        return self.ns._connection

    def produce(
        self,
        call: Callable[[], R],
        result: Callable[[R], dict[str, Any]] = lambda _value: {},
        *,
        topic: str,
        **arguments: Any,
    ) -> R:
        """A call that produces to a topic by its name: where it is made again meanwhile, the rows are the new one's."""
        return self.call(
            "produce", call, result, lambda: {"topic": self.known_folder(topic)}, topic=self.folder(topic), **arguments
        )

    def failed(self, token: int, kind: str, error: BaseException) -> None:
        """Write down that a call raised."""
        self.world.recorder.failed(token, error)
        self.scheduler.trace(self.actor, "failed", kind, type(error).__name__)
        self.scheduler.label(f"{kind}: {type(error).__name__}")
        if isinstance(error, CoordinatorFenced):
            self.scheduler.label("refused: a number of a closed block")

    def note(self, error: TxnLogError) -> None:
        """An error was met outside of recorded calls; damage may only be reported where there is some."""
        self.scheduler.label(f"{type(error).__name__} while opening")
        self.check_damage(error)

    def check_damage(self, error: BaseException) -> None:
        """Raise CorruptionError again unless an object is, or was, damaged."""
        if isinstance(error, CorruptionError):
            if not self.world.shared_store.was_damaged:
                raise error
            self.scheduler.label("damage was reported")


def live(client: Client, step: Callable[[], None], reopen: Callable[[], None]) -> None:
    """Take steps until the end; after being fenced open what is needed again, after other errors go on."""
    ready = False
    while not client.over():
        try:
            if not ready:
                reopen()
                ready = True
            step()
        except FencedError:
            client.sleep(client.chance.random() * 300)
            ready = False
        except CorruptionError as error:
            client.check_damage(error)
            client.sleep(100)
        except TxnLogError:
            client.sleep(client.chance.random() * 20)


# --- results as the history has them ----------------------------------------------------------------------------------


def reported_commit(client: Client, result: Committed) -> dict[str, Any]:
    """A commit's answer."""
    if result.dropped:
        client.scheduler.label("committed without what was dropped")
    return {**reported_produce(client, result), "skipped": result.skipped, "dropped": result.dropped}


def reported_produce(client: Client, result: Committed) -> dict[str, Any]:
    """A plain produce's answer. Only the newest topic of a name can have got rows."""
    offsets = {
        (client.known_folder(topic), partition): found for (topic, partition), found in (result.offsets or {}).items()
    }
    return {"version": result.version, "offsets": offsets, "duplicate": result.duplicate}


def reported_outcome(info: TransactionInfo) -> dict[str, Any]:
    """What the log says of a transaction."""
    return {"state": info.state, "version": info.version}


Rows = dict[tuple[str, int], tuple[tuple[int, int, str, int], ...]]
"""By topic and partition offset, value, TxnID and version of every message."""


def rows_of(ns: Namespace, snapshot: Snapshot) -> Rows:
    """Everything that a snapshot shows, by topic (its folder, which names the incarnation) and partition.

    Dead letters are left out: they are messages of another topic.
    """
    found: dict[tuple[str, int], list[tuple[int, int, str, int]]] = {}
    for topic in snapshot.topics():
        if topic == DEAD_LETTERS:
            continue
        folder = ns._connection.topic_record(topic, snapshot.version).folder
        table = snapshot.read(topic, include_metadata=True)
        columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "_txn_id", "_version")]
        for partition, offset, txn, version, value in zip(*columns, numbers_of(table), strict=True):
            found.setdefault((folder, partition), []).append((offset, value, txn.hex(), version))
    return {key: tuple(rows) for key, rows in found.items()}


__all__ = ["Client", "Rows", "live", "reported_commit", "reported_outcome", "reported_produce", "rows_of"]
