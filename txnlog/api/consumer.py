"""A consumer of one or several topics under one subscription name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from txnlog.api.messages import Messages, checked
from txnlog.client.acknowledgement_conflicts import check_conflicts, ledgers_of
from txnlog.client.consumer_machine import ConsumerMachine, Delivered
from txnlog.client.delivery import Receiving, TopicDelivery, current_attempt
from txnlog.client.ledger import Receipt
from txnlog.client.positions import resolve_position
from txnlog.common import ranges
from txnlog.common.limits import DEFAULT_TIMEOUT_MS, MAX_NUMBER
from txnlog.common.names import nearest
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import Duration, duration_ms, shown, whole_number
from txnlog.data.segment_rows import METADATA_FIELDS
from txnlog.errors import (
    Durable,
    InvalidInputError,
    TopicNotFound,
    TransactionConflict,
    unknown_outcome,
)
from txnlog.fold.acknowledgements import acknowledged_of, check_epoch, cursor_of, unknown_subscription
from txnlog.fold.state import Draft
from txnlog.fold.transaction_ends import outcome_error
from txnlog.format import schema as schemas
from txnlog.format.actions import Acknowledgement, Commit, Header, PartitionRanges
from txnlog.log.commands import Answer, effect
from txnlog.wording import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position

_SOUGHT = "open another consumer, and look where the subscription stands: this one may be fenced"
"""After a seek whose outcome is unknown: a second one would undo what others did since."""


class Consumer(ProcessBound):
    """Receives messages that are not acknowledged, each once until it is redelivered. Thread-safe.

    Attributes:
        name: the name that the subscription and the listings show for it.
    """

    def __init__(self, connection: Connection, name: str, subscribed: Sequence[TopicDelivery]) -> None:
        self._connection = connection
        self.name = name
        self._subscribed = list(subscribed)
        # Nothing there refers to this object: a cycle would leave it to the garbage collector.
        self._machine = ConsumerMachine(connection, subscribed)

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
        call = Receiving(max_messages, current_attempt())
        delivered: list[Delivered] = []

        async def receive() -> Messages | None:
            found = await machine.receive(call, wait_ms)
            if found is None:
                return None
            delivered.append(found)
            item, received = found
            return Messages(machine.check_usable, item, received.ledger, received.table, received.redeliveries)

        def withdraw() -> None:
            for found in delivered:
                machine.withdraw(found)

        messages = machine.run(receive, withdraw)
        if messages is not None:
            return messages
        item = self._subscribed[0]
        return Messages(machine.check_usable, item, item.ledger, self._schema(item).empty_table(), {})

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
            ConsumerFenced: a newer consumer took over.
        """
        self._machine.check_usable()
        _ = self._connection.appender  # a reader is refused even where there is nothing to acknowledge
        wanted = checked(messages)._acknowledgements(self._connection, cumulative=cumulative)
        self._check_own(messages)
        if wanted:
            acknowledge_plain(self._connection, wanted, messages._receipt(cumulative=cumulative))

    def negative_acknowledge(self, messages: Messages) -> None:
        """Release messages: they are delivered again. One that is pending in a transaction is not affected.

        On a Shared subscription the log counts it, and anybody may receive them, at once: there is no delay.

        Raises:
            ConsumerFenced: a newer consumer or a seek took over.
        """
        self._machine.check_usable()
        found = checked(messages)
        self._check_own(found)
        self._machine.run(
            partial(self._machine.negative_acknowledge, found._subscription, found._epoch, found._ranges())
        )

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
        _ = self._connection.appender  # a reader is refused before it looks at anything
        if isinstance(position, Mapping) and not position:  # the epoch alone would fence what was received
            raise InvalidInputError(
                "a seek to {} names no partition: nothing would move",
                advice='name partitions, e.g. {0: 0}, or use "earliest", "latest", or a time with a zone',
            )
        positions = [resolve_position(self._connection, item.topic, position) for item in chosen]

        with self._connection.naming_dropped(), unknown_outcome(_SOUGHT):
            self._machine.run(partial(self._machine.seek, chosen, positions))

    def close(self) -> None:
        """Stop receiving. Pending acknowledgements of open transactions stay with those; leases are released."""
        if self._machine.begin_to_close():
            self._machine.run(self._machine.close, goes_on=True)


def acknowledge_plain(
    connection: Connection, wanted: Sequence[Acknowledgement], receipt: Receipt | None = None
) -> None:
    """Take messages off subscriptions outside of any transaction; durable on return. A repetition is fine.

    Args:
        connection: the namespace.
        wanted: what to log.
        receipt: how they were received, where a consumer received them.

    Raises:
        TransactionConflict: a message is pending in an open transaction, or has still to be delivered.
        ConsumerFenced: a subscription has another epoch by now.
        SubscriptionNotFound: it was dropped.
        TransactionAborted: somebody aborted the acknowledgement itself while it was under way.
    """
    number = connection.appender.take_numbers(1)[0]

    def left(draft: Draft) -> list[Acknowledgement]:
        return [rest for item in wanted if (rest := _not_yet_acknowledged(draft, item)) is not None]

    def decide(draft: Draft, _at: Header) -> list[Commit] | Answer[None]:
        outcome = draft.outcomes.get(number)
        if outcome is not None and outcome.state == "ABORTED":
            raise outcome_error(outcome, draft.txn_id(number))
        if outcome is not None:
            return Answer(None, settled=True)
        rest = left(draft)
        return [Commit(number, "", (), tuple(rest))] if rest else Answer(None)

    ledgers = ledgers_of(connection, wanted, receipt)

    deadline_ms = connection.runtime.now_ms() + DEFAULT_TIMEOUT_MS  # if nobody comes to the end of this

    def claim(rest: Sequence[Acknowledgement]) -> None:
        for item in rest:
            for ledger in ledgers:
                if (ledger.subscription, ledger.epoch) == (item.subscription, item.epoch):
                    ledger.claim(number, item, deadline_ms, plain=True)

    appender = connection.appender

    async def acknowledge() -> None:
        try:
            # Claimed while its entry is under way: nobody receives it meanwhile, and no transaction takes it.
            await check_conflicts(connection, number, wanted, receipt, claim, rest_of=left)
            await appender.carry_out(effect(decide, txn_ids=(number,)))
        finally:
            for ledger in ledgers:  # acknowledged by now, or as before: a refusal changes nothing of what was delivered
                ledger.restore(number, None)

    with connection.naming_dropped(), _no_transaction_to_abort():
        appender.run(acknowledge, (number,))


@contextlib.contextmanager
def _no_transaction_to_abort() -> Iterator[None]:
    """Advise something else than to abort and begin anew, where the caller has no transaction."""
    try:
        yield
    except TransactionConflict as error:
        if error.advice == TransactionConflict._default_advice:
            error.advice = Words("try again when that transaction has ended; ", Call("abort", "txn_id"), " ends it")
        raise


def _not_yet_acknowledged(draft: Draft, item: Acknowledgement) -> Acknowledgement | None:
    """A plain acknowledgement without what was acknowledged before: that is no conflict outside a transaction."""
    record = draft.subscriptions.get(item.subscription)
    if record is None:
        raise unknown_subscription(item.subscription)
    check_epoch(record, item.epoch)
    left: list[PartitionRanges] = []
    for wanted in item.ranges:
        cursor = cursor_of(draft, item.subscription, wanted.partition)
        rest = ranges.subtract(wanted.ranges, acknowledged_of(cursor))
        if rest:
            left.append(PartitionRanges(wanted.partition, rest))
    cumulative = tuple(
        (partition, end)
        for partition, end in item.cumulative
        if end > cursor_of(draft, item.subscription, partition).position
    )
    if not left and not cumulative:
        return None
    return Acknowledgement(item.subscription, item.epoch, tuple(left), cumulative)


__all__ = ["Consumer", "acknowledge_plain"]
