"""A consumer that processes: it acknowledges and produces in one transaction, or does one of the other things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txnlog.testing.actors.ending import TIMEOUTS_MS, end_somehow, produce_in
from txnlog.testing.client import Client, live
from txnlog.testing.keyed import numbers_of
from txnlog.testing.world import (
    SHARED,
    SUBSCRIPTIONS,
)

if TYPE_CHECKING:
    from txnlog.api.consumer import Consumer
    from txnlog.api.messages import Messages
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction


class Pipeline:
    """Consumes one topic and produces to another: in one transaction, or with plain acknowledgements.

    Attributes:
        patience_ms: how long a call may wait for messages; one of these.
    """

    patience_ms: Sequence[int] = (0, 0, 100)

    def __init__(self, client: Client, ns: Namespace, topic: str, subscription: str) -> None:
        self.client = client
        self.ns = ns
        self.topic = topic
        self.subscription = subscription
        self.consumer: Consumer | None = None
        self.epoch: int | None = None
        self._received_by: dict[tuple[int, int], object] = {}  # the delivery that had a message last
        client.world.subscribed[topic, subscription] = None

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

    @property
    def left(self) -> bool:
        """Whether, as far as this client knows, something is not acknowledged yet."""
        state, topic = self.ns._connection.follower.state, self.ns._connection.topic_record(self.topic)
        subscription = state.subscription_names[topic.id, self.subscription]
        return any(
            state.cursors[subscription, partition].position < state.end_of(topic.id, partition)
            for partition in range(topic.partitions)
        )

    def receive(self, most: int, timeout_ms: int = 0) -> Messages:
        """Some messages, or none."""
        assert self.consumer is not None, "opened first"
        consumer = self.consumer
        messages = self.client.call(
            "receive", lambda: consumer.receive(most, timeout_ms), self.reported_received, **self.place
        )
        for partition, offset in _places(messages):
            self._received_by[partition, offset] = messages._delivery
        if self.shared and len(messages):
            again = any(messages.redelivery_counts)
            self.client.scheduler.label(f"shared messages came {'again' if again else 'the first time'}")
        return messages

    def reported_received(self, messages: Messages) -> dict[str, Any]:
        """What a call of receive() returned, as the history records it."""
        return {"messages": reported_messages(messages)}

    def step(self) -> None:
        """Receive, and do one of the things that consumers do with messages."""
        client = self.client
        messages = self.receive(client.chance.choice((1, 3, 10)), client.chance.choice(self.patience_ms))
        if not len(messages):
            client.sleep(client.chance.random() * 60)
            return
        if client.hits(0.3):
            messages = messages[: client.chance.randint(1, len(messages))]
        drawn = client.chance.random()
        if self.shared and client.hits(0.4):
            if client.hits(0.6):
                self.release(messages)  # else their leases end
        elif drawn < 0.65:
            self.transact(messages)
        elif drawn < 0.85:
            self.acknowledge(None, messages)
        elif drawn < 0.9:
            client.scheduler.label("messages were released")
            later = self.receive_more()
            self.release(messages)
            self.acknowledge_later(later)
        elif drawn < 0.93:
            self.release_all()
        elif drawn < 0.97:
            self.seek()

    def transact(self, messages: Messages) -> None:
        """Acknowledge and produce in one transaction."""
        client = self.client
        txn = self.ns.begin(timeout_ms=client.chance.choice(TIMEOUTS_MS))
        client.world.transactions.append(str(txn.id))
        client.call("begin", lambda: None, txn=str(txn.id))
        self.acknowledge(txn, messages)
        if client.hits(0.7):
            produce_in(client, txn, "audit", 0, client.chance.randint(1, 2))
        if client.hits(0.2):
            txn.flush()
        if client.hits(0.2):
            client.sleep(client.chance.choice((5, 300, 2_000)))
        if client.hits(0.15):
            client.scheduler.label("messages released while they are pending")
            self.release(messages)
            self.step()
        later = self.receive_more()
        end_somehow(client, self.ns, txn)
        self.acknowledge_later(later)
        if txn.state == "ABORTED" and client.hits(0.3):
            client.scheduler.label("messages released whose transaction was aborted")
            self.release(messages)

    def receive_more(self) -> Messages | None:
        """Sometimes: messages behind those that are at work."""
        return self.receive(self.client.chance.choice((1, 3))) if self.client.hits(0.2) else None

    def acknowledge_later(self, later: Messages | None) -> None:
        """Take what was received while others were at work, which may have been released since."""
        if later is not None and len(later):
            self.client.scheduler.label("acknowledged after what lies before it was at work")
            self.acknowledge(None, later)

    def acknowledge(self, txn: Transaction | None, messages: Messages) -> None:
        """Take messages off the subscription, one by one or up to here, in a transaction or plainly."""
        assert self.consumer is not None, "opened first"
        cumulative = self.is_cumulative()
        acknowledge = self.consumer.acknowledge if txn is None else txn.acknowledge
        self.client.call(
            "acknowledge",
            lambda: acknowledge(messages, cumulative=cumulative),
            # A plain one appended just now, or found nothing to do at what this client knows.
            lambda _none: {"version": self.ns._connection.follower.version} if txn is None else {},
            txn=None if txn is None else str(txn.id),
            ranges=reported_ranges(messages),
            cumulative=cumulative,
            **self.place,
        )

    def is_cumulative(self) -> bool:
        """Whether the next acknowledgement is one up to its messages."""
        return not self.shared and self.client.hits(0.3)

    def release(self, messages: Messages) -> None:
        """Have them delivered again."""
        assert self.consumer is not None, "opened first"
        consumer = self.consumer
        self.client.call(
            "negative_acknowledge",
            lambda: consumer.negative_acknowledge(messages),
            ranges=self._reported_release(messages),
            **self.place,
        )

    def _reported_release(self, messages: Messages) -> tuple[tuple[int, int, int], ...]:
        """What a release is for: not what was received again since. An empty range where that is nothing."""
        mine = [place for place in _places(messages) if self._received_by.get(place) is messages._delivery]
        if mine:
            return tuple((partition, offset, offset + 1) for partition, offset in mine)
        return tuple((partition, start, start) for partition, start, _ in reported_ranges(messages))

    def release_all(self) -> None:
        """Have everything delivered again that was received and not acknowledged."""
        assert self.consumer is not None, "opened first"
        self.client.call("negative_acknowledge", self.consumer.redeliver_unacknowledged, **self.place)
        self.client.scheduler.label("everything was released")

    def close(self) -> None:
        """End this consumer; what it was leased is released."""
        assert self.consumer is not None, "opened first"
        self.consumer.close()

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
        client.scheduler.label(f"a seek of {'all consumers of a Shared' if self.shared else 'one'} subscription")


def epoch_of(ns: Namespace, topic: str, subscription: str) -> int:
    """The epoch that the log shows to a client; right after the client raised it, its own."""
    state = ns._connection.follower.state
    return state.subscriptions[state.subscription_names[ns._connection.topic_record(topic).id, subscription]].epoch


def reported_messages(messages: Messages) -> tuple[tuple[int, int, int, int], ...]:
    """Partition, offset, value and redeliveries of each message."""
    table = messages.table
    if not table.num_rows:
        return ()
    return tuple(
        zip(
            table.column("_partition").to_pylist(),
            table.column("_offset").to_pylist(),
            numbers_of(table),
            messages.redelivery_counts,
            strict=True,
        )
    )


def _places(messages: Messages) -> list[tuple[int, int]]:
    return [(partition, offset) for _, partition, offset in messages.positions]


def reported_ranges(messages: Messages) -> tuple[tuple[int, int, int], ...]:
    """Partition, start and end of these messages."""
    return tuple(
        (partition, start, stop) for partition, found in sorted(messages._ranges().items()) for start, stop in found
    )


def pipeline(client: Client) -> None:
    """A consumer of one of the subscriptions; several of them fence each other."""
    role = Pipeline(client, client.open(), *client.chance.choice((*SUBSCRIPTIONS, SUBSCRIPTIONS[0])))
    live(client, role.step, role.reopen)


__all__ = ["Pipeline", "epoch_of", "pipeline", "reported_messages", "reported_ranges"]
