"""A consumer of one or several topics under one subscription name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from txnlog.api.messages import Messages, checked
from txnlog.client.acknowledgement_conflicts import check_conflicts, end_overdue, ledgers_of
from txnlog.client.delivery import Received, TopicDelivery
from txnlog.client.ledger import Receipt
from txnlog.client.positions import resolve_position
from txnlog.client.subscription_ownership import raise_epochs
from txnlog.common import ranges
from txnlog.common.limits import DEFAULT_TIMEOUT_MS, MAX_NUMBER
from txnlog.common.names import nearest
from txnlog.common.unpicklable import ProcessBound
from txnlog.common.validation import Duration, duration_ms, shown, whole_number
from txnlog.data.segment_rows import METADATA_FIELDS
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    TopicNotFound,
    TransactionConflict,
    TxnLogError,
    unknown_outcome,
)
from txnlog.fold.acknowledgements import acknowledged_of, check_epoch, cursor_of, unknown_subscription
from txnlog.fold.state import Draft
from txnlog.fold.transaction_ends import outcome_error
from txnlog.format import schema as schemas
from txnlog.format.actions import Acknowledgement, AnyAction, Commit, Header, PartitionRanges
from txnlog.log.commands import Answer, effect
from txnlog.wording import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position

_SOUGHT = "open another consumer, and look where the subscription stands: this one may be fenced"
"""After a seek whose outcome is unknown: a second one would undo what others did since."""

_FIRST_PAUSE_MS = 5.0
_LONGEST_PAUSE_MS = 250.0
"""Between looks at the log while there is nothing to receive: one GET each."""


class _Found(NamedTuple):
    item: TopicDelivery
    messages: Messages
    received: Received


class Consumer(ProcessBound):
    """Receives messages that are not acknowledged, each once until it is redelivered. Thread-safe.

    Attributes:
        name: the name that the subscription and the listings show for it.
    """

    def __init__(self, connection: Connection, name: str, subscribed: Sequence[TopicDelivery]) -> None:
        self._connection = connection
        self.name = name
        self._subscribed = list(subscribed)
        self._turn = 0
        self._closed = False
        # Threads that choose side by side would receive the same messages. Waiting for messages keeps nobody out.
        self._one_at_a_time = threading.RLock()
        self._owner = connection.identity

    def __repr__(self) -> str:
        topics = ", ".join(item.topic.name for item in self._subscribed)
        return f"Consumer({topics}{', closed' if self._closed else ''})"

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
        self._check_usable()
        runtime = self._connection.runtime
        deadline = runtime.elapsed_ms() + wait_ms
        pause = _FIRST_PAUSE_MS
        entering = True
        for item in self._subscribed:
            item.moved = False
        while True:
            found: _Found | None = None
            try:
                with self._one_at_a_time:
                    self._check_usable()  # another thread may have closed it during the wait
                    found = self._look_for(max_messages, entering=entering)
                    if found is not None:
                        found.item.deliver(found.received)
                if found is not None:
                    return found.messages  # nothing is called from here on: an interrupt comes before, or later
            except BaseException as error:
                if found is not None:
                    found.item.withdraw(found.received)
                if isinstance(error, TxnLogError) and any(item.moved for item in self._subscribed):
                    error.durable = Durable.MAYBE  # its dead letters are
                raise
            entering = False
            left = deadline - runtime.elapsed_ms()
            if left <= 0:
                item = self._subscribed[0]
                return Messages(self._check_usable, item, item.ledger, self._schema(item).empty_table(), {})
            runtime.sleep_ms(min(runtime.spread(pause), left))
            pause = min(2 * pause, _LONGEST_PAUSE_MS)

    def _look_for(self, most: int, *, entering: bool) -> _Found | None:
        # Before anything is delivered: a consumer that was fenced must hear of it at its next call.
        self._look(entering=entering)
        end_overdue(self._connection, [item.subscription for item in self._subscribed])
        for _ in range(len(self._subscribed)):
            item = self._subscribed[self._turn % len(self._subscribed)]
            self._turn += 1
            received = item.receive(most)
            if received is not None:
                messages = Messages(self._check_usable, item, received.ledger, received.table, received.redeliveries)
                return _Found(item, messages, received)
        return None

    def _schema(self, item: TopicDelivery) -> pa.Schema:
        """The schema of received messages: user columns, then metadata."""
        schema = schemas.to_arrow(self._connection.topic_record_by_id(item.topic.id).schema)
        return pa.schema([*schema, *METADATA_FIELDS])

    def _check_usable(self, connection: Connection | None = None) -> None:
        """Raise unless this consumer may still be used by this process, in the given namespace."""
        if connection is not None and not self._connection.same_namespace(connection):
            raise InvalidInputError(
                f"the messages come from the namespace {self._connection.name!r}, not from "
                f"{connection.name!r} of this root",
                advice="a transaction takes messages of its own namespace",
            )
        self._connection.check_owner(self._owner, "consumer")
        if self._closed:
            raise InvalidTransactionState("the consumer is closed", advice="open another with ns.consumer(...)")

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
        self._check_usable()
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
        self._check_usable()
        found = checked(messages)
        self._check_own(found)
        with self._one_at_a_time:
            self._look()
            for item in self._owners(found._subscription, found._epoch):
                item.negative_acknowledge(found._ranges())

    def redeliver_unacknowledged(self) -> None:
        """Release everything that was received and not acknowledged: it is delivered again. Raises ConsumerFenced."""
        self._check_usable()
        with self._one_at_a_time:
            self._look()
            for item in self._subscribed:
                item.redeliver()

    def _look(self, *, entering: bool = False) -> None:
        self._connection.follower.refresh()
        for item in self._subscribed:
            item.look(entering=entering)

    def _check_own(self, messages: Messages) -> None:
        """Raise InvalidInputError for messages of another subscription. Any consumer of it may have received them."""
        if all(item.subscription != messages._subscription for item in self._subscribed):
            raise InvalidInputError(
                f"the messages of {messages.topic!r} were received from another subscription than this consumer's",
                advice="pass them to the consumer that received them",
            )

    def _owners(self, subscription: int, epoch: int) -> list[TopicDelivery]:
        return [item for item in self._subscribed if (item.subscription, item.epoch) == (subscription, epoch)]

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
        self._check_usable()
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

        def decide(draft: Draft, _at: Header) -> list[AnyAction]:
            return [
                action
                for item, wanted in zip(chosen, positions, strict=True)
                for action in item.seek_actions(draft, wanted)
            ]

        moved = [item.subscription for item in chosen]
        with self._one_at_a_time:  # else what another thread chose before would count as delivered after it
            with self._connection.naming_dropped(), unknown_outcome(_SOUGHT):
                epoch = raise_epochs(self._connection, moved, decide, lambda _draft, at: at.version)
            for item in chosen:
                item.sought(epoch)

    def close(self) -> None:
        """Stop receiving. Pending acknowledgements of open transactions stay with those; leases are released."""
        if self._closed:
            return
        self._closed = True
        if self._owner is self._connection.identity:  # of another process otherwise: it is not ours to release
            with self._one_at_a_time:  # a call under way ends first: behind it nothing is leased, claimed or beaten
                for item in self._subscribed:
                    item.close()


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
