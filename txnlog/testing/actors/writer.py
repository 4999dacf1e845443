"""A producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from txnlog.errors import (
    AbortableError,
    OutOfOrderSequence,
    RetriableError,
    StoreError,
)
from txnlog.testing.actors.ending import TIMEOUTS_MS, end_somehow, messages_of, produce_in
from txnlog.testing.client import Client, live, reported_commit, reported_produce
from txnlog.testing.world import (
    PRODUCERS,
    TOPICS,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.producer import Producer
    from txnlog.api.transaction import Transaction


FIRST_MESSAGES: Final = 4
"""In each partition, so that consumers need not wait for writers."""


class Writer:
    """Produces plainly and in transactions, under a name that others use too, or under none.

    Between two steps it pauses as often as ``pauses`` says.
    """

    def __init__(self, client: Client, name: str | None, pauses: float = 0.3) -> None:
        self.client = client
        self._pauses = pauses
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
        if client.hits(self._pauses):
            client.sleep(client.chance.random() * 50)

    def place(self) -> tuple[str, int]:
        """A topic and a partition."""
        client = self.client
        names = [*TOPICS, *client.world.temporary[-1:]]
        topic = client.chance.choice(names)
        return topic, client.chance.randrange(TOPICS.get(topic, 1))

    def produce_plainly(self) -> None:
        """One call outside of transactions."""
        assert self.producer is not None, "opened first"
        producer = self.producer
        topic, partition = self.place()
        values = self.client.world.values(self.client.chance.randint(1, 3))
        self.client.produce(
            lambda: producer.produce(topic, messages_of(self.client, topic, values), partition),
            lambda result: reported_produce(self.client, result),
            txn=None,
            topic=topic,
            partition=partition,
            values=values,
            **self.identity,
        )

    def produce_sequenced(self) -> None:
        """A batch with its sequence, sent again until an answer is there: it must not be there twice."""
        assert self.producer is not None, "opened first"
        client, producer = self.client, self.producer
        topic, partition = self.place()
        last = producer.last_sequence(topic, partition)
        sequence = 0 if last is None else last + 1
        self.send_again(topic, partition, client.world.values(client.chance.randint(1, 3)), sequence)

    def send_again(self, topic: str, partition: int, values: tuple[int, ...], sequence: int) -> None:
        """Send a batch until an answer is there; once, where the name may be another topic's the next time.

        A sequence is one of a topic: in a topic that is made again the same batch is a new one, and there twice.
        """
        assert self.producer is not None, "opened first"
        client, producer = self.client, self.producer
        for attempt in range(4 if topic in TOPICS else 1):
            try:
                client.produce(
                    lambda: producer.produce(topic, messages_of(client, topic, values), partition, sequence=sequence),
                    lambda result: reported_produce(client, result),
                    txn=None,
                    topic=topic,
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
        if self.client.hits(0.25):
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
            topic, partition = self.place()
            produce_in(client, txn, topic, partition, client.chance.randint(1, 3), **self.identity)
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
            if client.hits(0.4):
                break
        client.scheduler.label("a batch of an aborted transaction is sent again outside of one")
        self.send_again(topic, partition, batches[0], sequence)

    def produce_in(self, txn: Transaction, topic: str, partition: int, values: tuple[int, ...], sequence: int) -> None:
        """A batch with its sequence, in a transaction."""
        self.client.produce(
            lambda: txn.produce(topic, messages_of(self.client, topic, values), partition, sequence=sequence),
            txn=str(txn.id),
            topic=topic,
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
                client.world.recorder.ok(token, **reported_commit(client, future.result()))
            else:
                client.failed(token, "commit_async", error)


def begin_with(client: Client, ns: Namespace, topic: str, partition: int) -> None:
    """Some messages that are there from the beginning, of nobody."""
    values = client.world.values(FIRST_MESSAGES)
    client.produce(
        lambda: ns.produce(topic, messages_of(client, topic, values), partition),
        lambda result: reported_produce(client, result),
        txn=None,
        topic=topic,
        partition=partition,
        values=values,
    )


def writer(client: Client) -> None:
    """A producer with one of two names, so that most runs have several with one name: each a zombie to the next."""
    role = Writer(client, client.chance.choice((*PRODUCERS, PRODUCERS[0], None)))
    live(client, role.step, role.reopen)


__all__ = ["FIRST_MESSAGES", "Writer", "begin_with", "writer"]
