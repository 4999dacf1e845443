"""A consumer of one or several topics under one subscription name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from txnlog.api.messages import Messages, checked
from txnlog.client.consumer_machine import ConsumerMachine
from txnlog.client.delivery import Received, Receiving, TopicDelivery, current_attempt
from txnlog.client.ledger import Delivery
from txnlog.client.plain_acknowledgement import acknowledge_plain
from txnlog.client.positions import resolve_position
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import nearest
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import Duration, duration_ms, shown, whole_number
from txnlog.data.segment_rows import METADATA_FIELDS
from txnlog.errors import ConsumerFenced, Durable, InvalidInputError, TopicNotFound, TxnLogError
from txnlog.format import schema as schemas
from txnlog.replies import IfUnknown, Replying, in_parts, reworded, unknown_outcome

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position


class Consumer(ProcessBound):
    """Receives messages that are not acknowledged, each once until it is redelivered. Thread-safe.

    Attributes:
        name: the name that the subscription and the listings show for it.
    """

    def __init__(self, connection: Connection, name: str, subscribed: Sequence[TopicDelivery]) -> None:
        self._connection = connection
        self.name = name
        self._subscribed = tuple(subscribed)
        # Nothing there refers to this object: a cycle would leave it to the garbage collector.
        self._machine = ConsumerMachine(connection, self._subscribed)

    def __repr__(self) -> str:
        topics = ", ".join(item.topic.name for item in self._subscribed)
        return f"Consumer({topics}{', closed' if self._machine.is_closed else ''})"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- receiving --------------------------------------------------------------------------------------------------

    @in_parts()
    def receive(self, max_messages: int = 1000, timeout_ms: Duration = 1000) -> Messages:
        """The next messages, of one topic at a time; none after the timeout. Threads may share a consumer.

        Topics and partitions have their turn; the messages of a partition come in the order of their offsets.

        A call that is interrupted (Ctrl-C) has received nothing: its messages come again. An interrupt between its
        return and the caller's assignment loses them for the caller: ``redeliver_unacknowledged()`` brings them again,
        unless another thread acknowledged them cumulatively.

        Args:
            max_messages: at most so many.
            timeout_ms: how long to wait while there is nothing.

        Raises:
            ConsumerFenced: a newer consumer, a seek or a drop took the subscription over.
            CorruptionError: a segment is missing or damaged.
        """
        whole_number("max_messages", max_messages, 1)
        wait_ms = duration_ms("timeout_ms", timeout_ms, 0, MAX_NUMBER)
        machine = self._machine
        machine.check_usable()

        def reply(item: TopicDelivery, received: Received, delivery: Delivery) -> Messages:
            return Messages(machine, item, delivery, received.table, received.redeliveries, received.holes)

        messages = machine.receive(Receiving(max_messages, current_attempt()), wait_ms, reply)
        if messages is not None:
            return messages
        item = self._subscribed[0]
        nothing = Delivery(item.ledger, "", {})
        return Messages(machine, item, nothing, self._schema(item).empty_table(), {}, {})

    def _schema(self, item: TopicDelivery) -> pa.Schema:
        """The schema of received messages: user columns, then metadata."""
        schema = schemas.to_arrow(self._connection.topic_record_by_id(item.topic.id).schema)
        return pa.schema([*schema, *METADATA_FIELDS])

    # --- acknowledging ----------------------------------------------------------------------------------------------

    def acknowledge(self, messages: Messages, *, cumulative: bool = False) -> None:
        """Take messages off the subscription, outside of any transaction; durable on return.

        What was acknowledged before is fine. While this call is under way its messages are claimed: a transaction that
        acknowledges one of them is refused, and what is released meanwhile is delivered again only if this call fails.

        Args:
            messages: what this consumer received, or a part of it (``messages[2:5]``).
            cumulative: all that was received up to and including these messages, in each of their partitions. After an
                attempt that failed before it acknowledged, ``redeliver_unacknowledged()`` first: this would take it.

        Raises:
            TransactionConflict: a message is pending in an open transaction, or one before a cumulative end was
                released or passed over, and not received again.
            ConsumerFenced: a newer consumer took over; or another consumer, or this one before a seek, received the
                messages: then this consumer goes on, and the error's ``goes_on`` is true.
        """
        self._machine.check_usable()
        self._connection.check_writes()  # a reader is refused even where there is nothing to acknowledge
        wanted = checked(messages)._acknowledgements(self._connection, cumulative=cumulative)
        self._check_own(messages)
        if wanted:
            with self._replying_of(messages):
                acknowledge_plain(self._connection, wanted, messages._receipt(cumulative=cumulative))

    @in_parts()
    def negative_acknowledge(self, messages: Messages) -> None:
        """Release messages: they are delivered again. What an open transaction acknowledged is not affected.

        Nor is one that was received again since, by whichever thread: that one has it. On a Shared subscription the log
        counts the release, and anybody may receive them, at once: there is no delay.

        Raises:
            ConsumerFenced: as of ``acknowledge``, but for messages from before a seek of this consumer: they stay as
                the seek left them.
        """
        self._machine.check_usable()
        found = checked(messages)
        self._check_own(found)
        with self._replying_of(found):
            found._release()

    @in_parts()
    def redeliver_unacknowledged(self) -> None:
        """Release everything that was received and not acknowledged: it is delivered again. Raises ConsumerFenced."""
        self._machine.check_usable()
        self._machine.run(self._machine.redeliver)

    def _check_own(self, messages: Messages) -> None:
        """Raise InvalidInputError for messages of another subscription. Any consumer of it may have received them."""
        if all(item.subscription != messages._subscription for item in self._subscribed):
            raise InvalidInputError(
                f"the messages of {messages.topic!r} were received from another subscription than this consumer's",
                advice="pass them to the consumer that received them",
            )

    def _replying_of(self, messages: Messages) -> Replying:
        """Around a call about messages: a consumer that was not fenced hears that they were, and that it goes on."""
        own = next(item for item in self._subscribed if item.subscription == messages._subscription)

        def reply(error: TxnLogError) -> TxnLogError:
            if not isinstance(error, ConsumerFenced):
                return error
            try:
                record = own.check()
            except TxnLogError as of_this_one:
                return of_this_one
            if own.epoch != record.epoch:  # it waits for its turn
                return error
            by = "before a seek of this consumer" if messages._by is own else "by another consumer"
            refused = reworded(
                error,
                message=f"these messages of {messages.topic!r} were received {by}, in epoch {messages._epoch} of the "
                f"subscription {record.name!r}; this consumer has its epoch {own.epoch}, and goes on",
                advice="call receive() of this consumer: it delivers what is not acknowledged, also of these messages",
            )
            refused.goes_on = True
            return refused

        return Replying(reply)

    def seek(self, position: Position, topic: str | None = None) -> None:
        """Move the subscription: ``"earliest"``, ``"latest"``, ``{partition: offset}``, or a time with a zone.

        A time is an aware datetime or ISO 8601 text; a number is none, which could be an offset. A time in the future,
        that is more than a minute ahead of the log and of this machine's clock, is refused.

        Acknowledgements of what was received before the seek are refused afterwards (a higher epoch).

        Raises:
            InvalidTransactionState: the log shows pending acknowledgements.
            InvalidInputError: it is no position, names no partition, or is a time in the future.
            OffsetOutOfRange: a partition that a topic does not have, or an offset that the partition does not hold.
            OutcomeUnknown: open another consumer, and look where the subscription stands: this one may be fenced.
        """
        self._machine.check_usable()
        chosen = [item for item in self._subscribed if topic is None or item.topic.name == topic]
        if not chosen:
            raise TopicNotFound(
                f"this consumer has no topic {shown(topic)}",
                advice=nearest(str(topic), [item.topic.name for item in self._subscribed]),
                durable=Durable.NOTHING,
            )
        self._connection.check_writes()
        if isinstance(position, Mapping) and not position:  # the epoch alone would fence what was received
            raise InvalidInputError(
                "a seek to {} names no partition: nothing would move",
                advice='name partitions, e.g. {0: 0}, or use "earliest", "latest", or a time with a zone',
            )
        positions = [resolve_position(self._connection, item.topic, position) for item in chosen]

        with self._connection.naming_dropped(), unknown_outcome(IfUnknown.SEEK):
            self._machine.run(partial(self._machine.seek, chosen, positions))

    def close(self) -> None:
        """Stop receiving. Pending acknowledgements of open transactions stay with those; leases are released."""
        if self._machine.begin_to_close():
            self._machine.run(self._machine.close, goes_on=True)


__all__ = ["Consumer"]
