"""What simulated clients do: a table of kinds of actor, each a function that lives until the schedule is over.

A kind is a callable ``(client) -> None``: it opens the namespace, works through ``client.call`` so that every operation
stands in the history, and returns when ``client.over()``. After a crash the same function starts again from nothing.
Users add their own: ``Simulation(seed, kinds={**ACTOR_KINDS, "mine": my_function})``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

import txnlog
from txnlog.errors import (
    AbortableError,
    CorruptionError,
    FencedError,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    StoreError,
    TxnLogError,
)
from txnlog.limits import MIN_GRACE_MS
from txnlog.testing.history import Recorder
from txnlog.testing.operations import Kind
from txnlog.testing.scheduler import Actor
from txnlog.testing.simulated_runtime import SimulatedRuntime
from txnlog.testing.simulated_store import ActorStore, SimulatedStore

if TYPE_CHECKING:
    from txnlog.consumer import Consumer
    from txnlog.messages import Messages
    from txnlog.namespace import Namespace
    from txnlog.producer import Producer
    from txnlog.results import Committed, TransactionInfo
    from txnlog.snapshot import Snapshot
    from txnlog.transaction import Transaction

R = TypeVar("R")

ROOT: Final = "simulated://root"
NAMESPACE: Final = "sim"
SCHEMA: Final = pa.schema([pa.field("value", pa.int64(), nullable=False)])
TOPICS: Final = {"orders": 2, "audit": 1}
"""The lasting topics and their partitions."""

PRODUCERS: Final = ("loader", "twin")
SUBSCRIPTIONS: Final = (("orders", "billing"), ("audit", "billing"))
SHARED: Final = ("orders", "workers")
"""The topic and name of the Shared subscription."""

LEASE_MS: Final = 400
MOST_REDELIVERIES: Final = 1
DEAD_LETTERS: Final = "orders-dead"
"""The topic that takes what was redelivered more often; its rows are messages of another topic."""

TIMEOUTS_MS: Final = (400, 5_000, 60_000)
NIGHT_MS: Final = (MIN_GRACE_MS, 2 * MIN_GRACE_MS)
"""How long everybody stands still before a vacuum: some blocks of numbers are silent for its grace then."""


@dataclass
class World:
    """What all clients of a run know of each other: it stands for the people who run them.

    Attributes:
        shared_store: the store.
        recorder: of the history.
        budget: requests after which clients come to an end.
        trusts_clock: whether clients do without checking their clocks against the store's.
        checkpoint_interval: entries after which a client makes a checkpoint by itself.
        create_attempts: puts of one entry before its outcome is reported as unknown.
        transactions: TxnIDs that were begun, in order.
        temporary: topics that an administrator made and may have dropped.
        dropping: topics whose drop is under way, or in doubt: it takes whatever topic has the name when it is decided.
        decisions: what the outside system decided about prepared transactions, by token: what it never heard of is
            aborted by whoever asks first.
        faultless: True once all faults are off.
        clients: those that did not crash, by name.
    """

    shared_store: SimulatedStore
    recorder: Recorder
    budget: int
    trusts_clock: bool = True
    checkpoint_interval: int = 20
    create_attempts: int = 12
    transactions: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    dropping: set[str] = field(default_factory=set)
    decisions: dict[str, bool] = field(default_factory=dict)
    faultless: bool = False
    clients: dict[str, Client] = field(default_factory=dict)
    next_value: int = 0
    next_topic: int = 0

    def values(self, count: int) -> tuple[int, ...]:
        """Numbers that nobody produced before."""
        first = self.next_value
        self.next_value += count
        return tuple(range(first, first + count))

    @property
    def over(self) -> bool:
        """Whether the scheduled part has ended."""
        return self.faultless or self.shared_store.requests >= self.budget


class Client:
    """One life of one actor: its store, runtime and generator, and the recording of what it calls."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor
        self.name = str(actor)
        self.scheduler = actor.scheduler
        self.chance: random.Random = actor.scheduler.chance
        self.store = ActorStore(world.shared_store, actor)
        self.folders: dict[str, str] = {}
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
                ns = txnlog.open(
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
                ns.link.checkpointer.interval = self.world.checkpoint_interval
                ns.link.checkpointer.spread = 4
                if mode == "rw":
                    ns.appender.create_attempts = self.world.create_attempts
                self.ns = ns
                if ns.follower.base is not None:
                    self.scheduler.label("opened from a checkpoint")
                return ns

    def call(
        self,
        kind: Kind,
        call: Callable[[], R],
        result: Callable[[R], dict[str, Any]] = lambda _value: {},
        **arguments: Any,
    ) -> R:
        """Make a call and write it down: what was asked, what was told, or that it never returned."""
        recorder = self.world.recorder
        token = recorder.invoke(self.name, kind, **arguments)
        self.scheduler.trace(self.actor, "calls", kind, arguments)
        try:
            value = call()
        except Exception as error:
            recorder.failed(token, error)
            self.scheduler.trace(self.actor, "failed", kind, type(error).__name__)
            self.scheduler.label(f"{kind}: {type(error).__name__}")
            raise
        told = result(value)
        recorder.ok(token, **told)
        self.scheduler.trace(self.actor, "returned", kind, told)
        return value

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


def told_commit(client: Client, result: Committed) -> dict[str, Any]:
    """A commit's answer."""
    return {**told_produce(client, result), "skipped": result.skipped}


def told_produce(client: Client, result: Committed) -> dict[str, Any]:
    """A plain produce's answer. Only the newest topic of a name can have taken rows."""
    offsets = {
        (client.folders.get(topic, topic), partition): found
        for (topic, partition), found in (result.offsets or {}).items()
    }
    return {"version": result.version, "offsets": offsets, "duplicate": result.duplicate}


def told_outcome(info: TransactionInfo) -> dict[str, Any]:
    """What the log says of a transaction."""
    return {"state": info.state, "version": info.version}


def rows_of(ns: Namespace, snapshot: Snapshot) -> dict[tuple[str, int], tuple[tuple[int, int, str, int], ...]]:
    """Everything that a snapshot shows, by topic (its folder, which names the incarnation) and partition.

    Dead letters are left out: they are messages of another topic.
    """
    found: dict[tuple[str, int], list[tuple[int, int, str, int]]] = {}
    for topic in snapshot.topics():
        if topic == DEAD_LETTERS:
            continue
        folder = ns.topic_record(topic, snapshot.version).folder
        table = snapshot.read(topic, include_metadata=True)
        columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "value", "_txn_id", "_version")]
        for partition, *row in zip(*columns, strict=True):
            found.setdefault((folder, partition), []).append((row[0], row[1], row[2].hex(), row[3]))
    return {key: tuple(rows) for key, rows in found.items()}


# --- producing --------------------------------------------------------------------------------------------------------


class Writer:
    """Produces plainly and in transactions, under a name that others use too, or under none."""

    def __init__(self, client: Client, name: str | None) -> None:
        self.client = client
        self.name = name
        self.ns = client.open()
        self.producer: Producer | None = None

    def reopen(self) -> None:
        """Take the name over, from a zombie or from the living."""
        name = self.name
        if name is None:
            self.producer = self.ns.producer()
            return
        self.producer = self.client.call(
            "open_producer", lambda: self.ns.producer(name), lambda item: {"epoch": item.epoch}, name=name
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Producer and epoch, as the history has them."""
        assert self.producer is not None, "opened first"
        return {"producer": self.producer.name, "epoch": self.producer.epoch}

    def step(self) -> None:
        """One of the things that producers do."""
        client = self.client
        drawn = client.chance.random()
        if drawn < 0.25:
            self.produce_plainly()
        elif drawn < 0.4 and self.name is not None:
            self.produce_sequenced()
        elif drawn < 0.5:
            self.commit_several()
        elif drawn < 0.6 and self.name is not None:
            self.transact_sequenced()
        else:
            self.transact()
        if client.hits(0.3):
            client.sleep(client.chance.random() * 50)

    def place(self) -> tuple[str, str, int]:
        """A topic, its name in the history, and a partition."""
        client = self.client
        names = [*TOPICS, *client.world.temporary[-1:]]
        topic = client.chance.choice(names)
        return topic, self.folder(topic), client.chance.randrange(TOPICS.get(topic, 1))

    def folder(self, topic: str) -> str:
        """The folder of the topic that has this name now: its name in the history."""
        folder = self.client.folders[topic] = self.ns.topic_handle(topic).record.folder
        return folder

    def produce_plainly(self) -> None:
        """One call outside of transactions."""
        assert self.producer is not None, "opened first"
        producer = self.producer
        topic, folder, partition = self.place()
        values = self.client.world.values(self.client.chance.randint(1, 3))
        self.client.call(
            "produce",
            lambda: producer.produce(topic, table_of(values), partition),
            lambda result: told_produce(self.client, result),
            txn=None,
            topic=folder,
            partition=partition,
            values=values,
            **self.identity,
        )

    def produce_sequenced(self) -> None:
        """A batch with its sequence, sent again until an answer is there: it must not be there twice."""
        assert self.producer is not None, "opened first"
        client, producer = self.client, self.producer
        topic, _, partition = self.place()
        last = producer.last_sequence(topic, partition)
        sequence = 0 if last is None else last + 1
        folder = self.folder(topic)
        values = client.world.values(client.chance.randint(1, 3))
        self.send_again(topic, partition, values, sequence, folder)

    def send_again(
        self, topic: str, partition: int, values: tuple[int, ...], sequence: int, folder: str | None = None
    ) -> None:
        """Send a batch until an answer is there."""
        assert self.producer is not None, "opened first"
        client, producer = self.client, self.producer
        folder = folder or self.folder(topic)
        for attempt in range(4):
            if self.folder(topic) != folder:
                return  # dropped and made again meanwhile: another topic
            try:
                client.call(
                    "produce",
                    lambda: producer.produce(topic, table_of(values), partition, sequence=sequence),
                    lambda result: told_produce(client, result),
                    txn=None,
                    topic=folder,
                    partition=partition,
                    values=values,
                    sequence=sequence,
                    **self.identity,
                )
            except (RetriableError, StoreError):
                client.sleep(10)
            else:
                if attempt or client.hits(0.8):
                    return  # else the answer got lost on the way to its program, which sends the batch again

    def begin(self) -> Transaction:
        """A transaction, whose id is noted where an administrator finds it."""
        assert self.producer is not None, "opened first"
        options: dict[str, Any] = {}
        if self.client.hits(0.15):
            version = self.client.world.next_value + self.client.chance.randint(-9, 0)
            options = {"txn_app_id": "nightly", "txn_version": max(0, version)}
        txn = self.producer.begin(timeout_ms=self.client.chance.choice(TIMEOUTS_MS), **options)
        self.client.world.transactions.append(str(txn.id))
        self.client.call("begin", lambda: None, txn=str(txn.id), **self.identity)
        return txn

    def fill(self, txn: Transaction) -> None:
        """Some rows in some partitions, perhaps flushed in between."""
        client = self.client
        for _ in range(client.chance.randint(1, 3)):
            topic, folder, partition = self.place()
            produce_in(client, txn, topic, folder, partition, client.chance.randint(1, 3), **self.identity)
            if client.hits(0.2):
                txn.flush()
            if client.hits(0.1):
                client.sleep(client.chance.choice((5, 100, 1_000)))

    def transact(self) -> None:
        """A transaction over several topics, ended in one of many ways."""
        txn = self.begin()
        self.fill(txn)
        end_somehow(self.client, self.ns, txn)

    def transact_sequenced(self) -> None:
        """A transaction with sequences; what is not committed is sent again under the same ones."""
        assert self.producer is not None, "opened first"
        client = self.client
        topic = client.chance.choice(tuple(TOPICS))
        partition = client.chance.randrange(TOPICS[topic])
        last = self.producer.last_sequence(topic, partition)
        sequence = 0 if last is None else last + 1
        batches = [client.world.values(client.chance.randint(1, 2)) for _ in range(client.chance.randint(1, 2))]
        for _ in range(3):
            txn = self.begin()
            following = sequence
            for values in batches:
                self.produce_in(txn, topic, partition, values, following)
                following += len(values)
                if client.hits(0.3):
                    txn.flush()
            try:
                end_somehow(client, self.ns, txn)
            except OutOfOrderSequence:
                raise
            except AbortableError:
                client.scheduler.label("a transaction with sequences is done again")
            if txn.state != "ABORTED":
                return
        self.send_again(topic, partition, batches[0], sequence)

    def produce_in(self, txn: Transaction, topic: str, partition: int, values: tuple[int, ...], sequence: int) -> None:
        """A batch with its sequence, in a transaction."""
        self.client.call(
            "produce",
            lambda: txn.produce(topic, table_of(values), partition, sequence=sequence),
            txn=str(txn.id),
            topic=self.folder(topic),
            partition=partition,
            values=values,
            sequence=sequence,
            **self.identity,
        )

    def commit_several(self) -> None:
        """Several transactions whose commits are under way at once, and may share an entry."""
        client = self.client
        under_way: list[tuple[Transaction, int, Any]] = []
        for _ in range(client.chance.randint(2, 3)):
            txn = self.begin()
            self.fill(txn)
            token = client.world.recorder.invoke(client.name, "commit", txn=str(txn.id))
            under_way.append((txn, token, txn.commit_async()))
        for _, token, future in under_way:
            client.scheduler.wait_for(future.done)
            error = future.exception()
            if error is None:
                client.world.recorder.ok(token, **told_commit(client, future.result()))
            else:
                client.world.recorder.failed(token, error)
                client.scheduler.label(f"commit_async: {type(error).__name__}")


def table_of(values: Sequence[int]) -> pa.Table:
    """Rows of these values."""
    return pa.Table.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def produce_in(
    client: Client, txn: Transaction, topic: str, folder: str, partition: int, count: int, **identity: Any
) -> None:
    """Rows of a transaction."""
    values = client.world.values(count)
    client.call(
        "produce",
        lambda: txn.produce(topic, table_of(values), partition),
        txn=str(txn.id),
        topic=folder,
        partition=partition,
        values=values,
        **identity,
    )


def end(client: Client, ns: Namespace, txn: Transaction) -> None:
    """Commit (mostly), abort, or forget a transaction; an unknown outcome is asked for in one of several ways."""
    drawn = client.chance.random()
    if drawn < 0.1:
        client.scheduler.label("a transaction was left open")
        return
    if drawn < 0.2:
        client.call("abort", txn.abort, txn=str(txn.id))
        return
    for _ in range(3):
        try:
            commit(client, txn)
        except AbortableError:
            if client.hits(0.3):
                client.scheduler.label("commit again after an abortable error")
                commit(client, txn)
            raise
        except (OutcomeUnknown, StoreError):
            drawn = client.chance.random()
            if drawn < 0.3:
                ask(client, ns, str(txn.id))
                return
            if drawn < 0.5:
                client.call("outcome", lambda: ns.transaction(txn.id), told_outcome, txn=str(txn.id))
            client.scheduler.label("commit again after a doubt")
        else:
            if client.hits(0.9):
                return
            client.scheduler.label("commit again after success")


def commit(client: Client, txn: Transaction) -> None:
    """Ask for the commit."""
    result = client.call("commit", txn.commit, lambda result: told_commit(client, result), txn=str(txn.id))
    if result.skipped:
        client.scheduler.label("a batch was skipped")


def end_somehow(client: Client, ns: Namespace, txn: Transaction) -> None:
    """End a transaction by its own hand, or let an outside system decide about it."""
    if client.hits(0.2):
        prepare(client, ns, txn)
    else:
        end(client, ns, txn)


def prepare(client: Client, ns: Namespace, txn: Transaction) -> None:
    """Prepare, have it decided outside, and perhaps carry the decision out; else somebody else has to."""
    for _ in range(3):
        try:
            client.call("prepare", txn.prepare, txn=str(txn.id))
        except (OutcomeUnknown, StoreError):
            if client.hits(0.2):
                client.call("abort", txn.abort, txn=str(txn.id))
                return
        else:
            break
    else:
        return
    if client.hits(0.2):
        client.scheduler.label("prepared, and nobody heard of it")
        return
    client.world.decisions.setdefault(str(txn.id), client.hits(0.7))
    if client.hits(0.6):
        complete(client, ns, str(txn.id))


def complete(client: Client, ns: Namespace, token: str) -> None:
    """Carry out what was decided about a prepared transaction; perhaps again, perhaps the other way, too."""
    decision = client.world.decisions.setdefault(token, False)
    client.scheduler.label(f"completed: {decision}")
    tell_decision(client, ns, token, commit=decision)
    if client.hits(0.2):
        tell_decision(client, ns, token, commit=decision)
    if client.hits(0.2):
        try:
            tell_decision(client, ns, token, commit=not decision)
        except InvalidTransactionState:
            client.scheduler.label("the opposite decision was refused")


def tell_decision(client: Client, ns: Namespace, token: str, *, commit: bool) -> None:
    """Call complete()."""

    def result(done: Committed | None) -> dict[str, Any]:
        if done is None:
            return {}
        # Another client may have produced the rows: which incarnation of a topic took them, the log says.
        offsets = {
            (ns.topic_record(topic, done.version).folder, partition): found
            for (topic, partition), found in (done.offsets or {}).items()
        }
        return {"version": done.version, "offsets": offsets}

    client.call("complete", lambda: ns.complete(token, commit=commit), result, txn=token, commit=commit)


def ask(client: Client, ns: Namespace, txn: str) -> None:
    """Make an outcome definite."""
    info = client.call("outcome", lambda: ns.abort(txn, by="simulation", why="asked"), told_outcome, txn=txn)
    client.scheduler.label(f"asked for an outcome: {info.state}")


def writer(client: Client) -> None:
    """A producer with one of two names, so that most runs have several with one name: each a zombie to the next."""
    role = Writer(client, client.chance.choice((*PRODUCERS, PRODUCERS[0], None)))
    live(client, role.step, role.reopen)


# --- consuming --------------------------------------------------------------------------------------------------------


class Pipeline:
    """Consumes one topic and produces to another: in one transaction, or with plain acknowledgements."""

    def __init__(self, client: Client, ns: Namespace, topic: str, subscription: str) -> None:
        self.client = client
        self.ns = ns
        self.topic = topic
        self.subscription = subscription
        self.consumer: Consumer | None = None
        self.epoch = 0

    def reopen(self) -> None:
        """Take the subscription over."""
        client = self.client

        def take_over() -> Consumer:
            return self.ns.consumer(self.topic, self.subscription)

        self.consumer = client.call(
            "open_consumer",
            take_over,
            lambda _consumer: {"epoch": self.shown_epoch()},
            topic=self.topic,
            subscription=self.subscription,
        )
        self.epoch = self.shown_epoch()

    @property
    def shared(self) -> bool:
        """Whether others take messages of the subscription at the same time."""
        return (self.topic, self.subscription) == SHARED

    @property
    def place(self) -> dict[str, Any]:
        """Topic, subscription and epoch, as the history has them."""
        return {"topic": self.topic, "subscription": self.subscription, "epoch": self.epoch}

    def shown_epoch(self) -> int:
        """The subscription's epoch as this client knows it."""
        return epoch_of(self.ns, self.topic, self.subscription)

    def receive(self, most: int, timeout_ms: int = 0) -> Messages:
        """Some messages, or none."""
        assert self.consumer is not None, "opened first"
        consumer = self.consumer
        messages = self.client.call(
            "receive",
            lambda: consumer.receive(most, timeout_ms),
            lambda messages: {"messages": told_messages(messages)},
            **self.place,
        )
        if self.shared and len(messages):
            again = any(messages.redelivery_counts)
            self.client.scheduler.label(f"shared messages came {'again' if again else 'the first time'}")
        return messages

    def step(self) -> None:
        """Receive, and do one of the things that consumers do with messages."""
        client = self.client
        messages = self.receive(client.chance.choice((1, 3, 10)), client.chance.choice((0, 0, 100)))
        if not len(messages):
            client.sleep(client.chance.random() * 60)
            return
        if client.hits(0.3):
            messages = messages[: client.chance.randint(1, len(messages))]
        drawn = client.chance.random()
        if self.shared and client.hits(0.4):
            if client.hits(0.6):
                self.give_back(messages)  # else their leases end
        elif drawn < 0.65:
            self.transact(messages)
        elif drawn < 0.85:
            self.acknowledge(None, messages)
        elif drawn < 0.93:
            self.give_back(messages)
        elif drawn < 0.97 and not self.shared:
            self.seek()

    def transact(self, messages: Messages) -> None:
        """Acknowledge and produce in one transaction."""
        client = self.client
        txn = self.ns.begin(timeout_ms=client.chance.choice(TIMEOUTS_MS))
        client.world.transactions.append(str(txn.id))
        client.call("begin", lambda: None, txn=str(txn.id))
        self.acknowledge(txn, messages)
        if client.hits(0.7):
            produce_in(client, txn, "audit", "audit", 0, client.chance.randint(1, 2))
        if client.hits(0.2):
            txn.flush()
        if client.hits(0.2):
            client.sleep(client.chance.choice((5, 300, 2_000)))
        if client.hits(0.15):
            client.scheduler.label("messages given back while they are pending")
            self.give_back(messages)
            self.step()
        end_somehow(client, self.ns, txn)

    def acknowledge(self, txn: Transaction | None, messages: Messages) -> None:
        """Take messages off the subscription, one by one or up to here, in a transaction or plainly."""
        assert self.consumer is not None, "opened first"
        cumulative = not self.shared and self.client.hits(0.3)
        acknowledge = self.consumer.acknowledge if txn is None else txn.acknowledge
        self.client.call(
            "acknowledge",
            lambda: acknowledge(messages, cumulative=cumulative),
            # A plain one appended just now, or found nothing to do at what this client knows.
            lambda _none: {"version": self.ns.follower.version} if txn is None else {},
            txn=None if txn is None else str(txn.id),
            ranges=told_ranges(messages, cumulative=cumulative),
            cumulative=cumulative,
            **self.place,
        )

    def give_back(self, messages: Messages) -> None:
        """Have them delivered again."""
        assert self.consumer is not None, "opened first"
        consumer = self.consumer
        self.client.call(
            "negative_acknowledge",
            lambda: consumer.negative_acknowledge(messages),
            ranges=told_ranges(messages, cumulative=False),
            **self.place,
        )

    def seek(self) -> None:
        """Begin anew at some offset."""
        assert self.consumer is not None, "opened first"
        consumer, client = self.consumer, self.client
        ends = self.ns.snapshot().end_offsets(self.topic)
        positions = {partition: client.chance.randint(0, offset) for partition, offset in sorted(ends.items())}
        client.call(
            "seek",
            lambda: consumer.seek(positions),
            lambda _none: {"epoch": self.shown_epoch()},
            topic=self.topic,
            subscription=self.subscription,
            positions=positions,
        )
        self.epoch = self.shown_epoch()


def epoch_of(ns: Namespace, topic: str, subscription: str) -> int:
    """The epoch that the log shows to a client; right after the client raised it, its own."""
    state = ns.follower.state
    return state.subscriptions[state.subscription_names[ns.topic_record(topic).id, subscription]].epoch


def told_messages(messages: Messages) -> tuple[tuple[int, int, int, int], ...]:
    """Partition, offset, value and redeliveries of each message."""
    table = messages.table
    return tuple(
        zip(
            table.column("_partition").to_pylist(),
            table.column("_offset").to_pylist(),
            table.column("value").to_pylist(),
            messages.redelivery_counts,
            strict=True,
        )
    )


def told_ranges(messages: Messages, *, cumulative: bool) -> tuple[tuple[int, int, int], ...]:
    """Partition, start and end of what is acknowledged."""
    if cumulative:
        return tuple((partition, 0, offset) for partition, offset in sorted(messages.end_offsets.items()))
    return tuple(
        (partition, start, stop) for partition, found in sorted(messages.ranges().items()) for start, stop in found
    )


def pipeline(client: Client) -> None:
    """A consumer of one of the subscriptions; several of them fence each other."""
    role = Pipeline(client, client.open(), *client.chance.choice((*SUBSCRIPTIONS, SUBSCRIPTIONS[0])))
    live(client, role.step, role.reopen)


def shared(client: Client) -> None:
    """One of the consumers of the Shared subscription."""
    role = Pipeline(client, client.open(), *SHARED)
    live(client, role.step, role.reopen)


# --- looking and administering ----------------------------------------------------------------------------------------


def reader(client: Client) -> None:
    """Reads everything, at the newest version or at an older one."""
    ns = client.open(mode="r") if client.hits(0.5) else client.open()

    def read_all(version: int | None) -> tuple[Snapshot, Any]:
        snapshot = ns.snapshot(version)
        return snapshot, rows_of(ns, snapshot)

    def step() -> None:
        version = client.chance.randint(0, ns.follower.version) if client.hits(0.3) else None
        client.call(
            "read",
            lambda: read_all(version),
            lambda found: {"version": found[0].version, "rows": found[1]},
            version=version,
        )
        if client.hits(0.2) and client.world.transactions:
            txn = client.chance.choice(client.world.transactions)
            client.call("outcome", lambda: ns.transaction(txn), told_outcome, txn=txn)
        client.sleep(client.chance.random() * 2_000)

    live(client, step, lambda: None)


def checkpointer(client: Client) -> None:
    """Makes checkpoints, more often than anybody would."""
    ns = client.open()

    def step() -> None:
        version = ns.checkpoint()
        client.scheduler.label("a checkpoint was made")
        client.scheduler.trace(client.actor, "checkpoint", version)
        client.sleep(client.chance.random() * 5_000)

    live(client, step, lambda: None)


def resolver(client: Client) -> None:
    """Completes what others prepared, as the outside system decided."""
    ns = client.open()

    def step() -> None:
        for item in ns.transactions(state="PREPARED"):
            client.scheduler.label("completed by another client")
            complete(client, ns, str(item.txn_id))
        client.sleep(client.chance.random() * 1_500)

    live(client, step, lambda: None)


def vacuumer(client: Client) -> None:
    """Lets time stand still for everybody else, then deletes what nobody needs any more."""
    ns = client.open()

    def night() -> None:
        client.scheduler.trace(client.actor, "night")
        client.scheduler.pass_over(client.chance.uniform(*NIGHT_MS))
        for other in client.world.clients.values():
            if other is not client and client.hits(0.5):
                other.actor.pause(client.chance.uniform(0, 3_000))  # it sleeps until the vacuum is over

    def step() -> None:
        client.sleep(client.chance.random() * 1_500)
        if client.hits(0.7):
            night()
        result = client.call(
            "vacuum",
            lambda: ns.vacuum(retain_ms=0, grace_ms=MIN_GRACE_MS),
            lambda told: {"oldest_readable": told.oldest_readable},
        )
        if result.closed_blocks:
            client.scheduler.label("a vacuum closed blocks")
        if result.unnamed_files:
            client.scheduler.label("a vacuum deleted files that nobody named")
        if result.aborted_files:
            client.scheduler.label("a vacuum deleted files of aborted transactions")

    live(client, step, lambda: None)


def admin(client: Client) -> None:
    """Aborts what others do, fences their names, makes and drops topics."""
    ns = client.open()
    world = client.world

    def fence() -> None:
        name = client.chance.choice(PRODUCERS)
        if name in ns.follower.state.producers:
            client.call("open_producer", lambda: ns.fence(name), lambda epoch: {"epoch": epoch}, name=name)

    def make_topic() -> None:
        known = [name for name in world.temporary if name not in world.dropping]
        if known and client.hits(0.5):
            name = client.chance.choice(known)  # perhaps one that was dropped: another incarnation
        else:
            world.next_topic += 1
            name = f"extra{world.next_topic}"
        ns.create_topic(name, schema=SCHEMA, partitions=1, if_not_exists=True)
        world.temporary.append(name)

    def drop_topic() -> None:
        name = world.temporary[-1]
        folder = ns.topic_handle(name).record.folder
        if name not in world.dropping:
            world.dropping.add(name)
            client.call("drop_topic", lambda: ns.drop_topic(name), topic=folder)
            world.dropping.discard(name)

    def step() -> None:
        drawn = client.chance.random()
        if drawn < 0.5 and world.transactions:
            ask(client, ns, client.chance.choice(world.transactions[-6:]))
        elif drawn < 0.65:
            fence()
        elif drawn < 0.8:
            make_topic()
        elif world.temporary:
            drop_topic()
        client.sleep(client.chance.random() * 1_000)

    live(client, step, lambda: None)


ActorKind = Callable[[Client], None]
ACTOR_KINDS: Final[dict[str, ActorKind]] = {
    "writer": writer,
    "pipeline": pipeline,
    "shared": shared,
    "reader": reader,
    "checkpointer": checkpointer,
    "admin": admin,
    "resolver": resolver,
    "vacuumer": vacuumer,
}
"""What an actor may be; the first is in every run."""

__all__ = [
    "ACTOR_KINDS",
    "DEAD_LETTERS",
    "LEASE_MS",
    "MOST_REDELIVERIES",
    "NAMESPACE",
    "ROOT",
    "SCHEMA",
    "SHARED",
    "SUBSCRIPTIONS",
    "TOPICS",
    "ActorKind",
    "Client",
    "Pipeline",
    "World",
    "Writer",
    "complete",
    "live",
    "rows_of",
]
