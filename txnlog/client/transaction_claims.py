"""What a transaction claims of the messages of this client, and through which handles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from txnlog.client.acknowledgement_conflicts import check_conflicts, claim_in, ledgers_of
from txnlog.errors import AbortableError, Durable, FencedError, TxnLogError
from txnlog.fold.subscription_records import live_subscription
from txnlog.log.dropped import SubscriptionPlace

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.ledger import Ledger, Receipt
    from txnlog.client.transaction_work import TransactionWork
    from txnlog.format.actions import AbortReason, Acknowledgement
    from txnlog.log.transaction_commands import Opening


class Acknowledging:
    """One call of ``acknowledge()``: what it is to claim, and whether it has come to its end.

    Attributes:
        wanted: what to log.
        receipt: how it was received.
        received_by: the handle of its consumer.
    """

    __slots__ = ("is_made", "receipt", "received_by", "wanted")

    def __init__(self, wanted: Sequence[Acknowledgement], receipt: Receipt, received_by: Connection) -> None:
        self.wanted = wanted
        self.receipt = receipt
        self.received_by = received_by
        self.is_made = False


class TransactionClaims:
    """The claims of one transaction, which end with it. All of it happens in the engine.

    Attributes:
        subscriptions: texts of the subscriptions that it acknowledged messages of, by their ids.
    """

    def __init__(self, connection: Connection, number: int, opening: Opening) -> None:
        self._connection = connection
        self._number = number
        self._opening = opening
        self._handles = [connection]
        self._ledgers: list[Ledger] = []
        # Of Shared subscriptions: what the log was to show at once, and may not show.
        self._unanswered: set[tuple[Acknowledgement, ...]] = set()
        self._interrupted: list[Acknowledging] = []
        self.subscriptions: dict[int, str] = {}

    def note_interrupted(self, call: Acknowledging) -> None:
        """A call was interrupted, and may take effect all the same. From any thread."""
        self._interrupted.append(call)

    def is_repeated(self, call: Acknowledging) -> bool:
        """Whether it repeats a call that took effect without an answer: it must not conflict with that."""
        return tuple(call.wanted) in self._unanswered or any(
            other.is_made and other.wanted == call.wanted for other in self._interrupted
        )

    def log_at_once(self, wanted: Sequence[Acknowledgement]) -> None:
        """These are about to be logged: of a Shared subscription."""
        self._unanswered.add(tuple(wanted))

    def note_logged(self) -> None:
        """The log shows them, and knows the deadline by now: where it is aborted the log releases them."""
        for ledger in self._ledgers:
            ledger.note_deadline(self._number, self._opening.deadline_ms)
        self._unanswered = set()

    @contextlib.contextmanager
    def acknowledging(self, call: Acknowledging, work: TransactionWork) -> Iterator[None]:
        """Around one call: where it is refused and the transaction can go on, it was never made.

        Where the transaction can only be aborted, that releases also what it was refused: nothing that was derived from
        those messages will be visible, and a later cumulative acknowledgement would take them.
        """
        if call.received_by not in self._handles:
            self._handles.append(call.received_by)
        self._add(ledgers_of(self._connection, call.wanted, call.receipt))
        before, deadline_ms, unanswered = work.mark(), self._opening.deadline_ms, set(self._unanswered)
        claims = {id(item): item.claims().get(self._number) for item in self._ledgers}
        logged = work.logged
        self._opening.note_effect()  # what it was refused is not withheld for ever where nobody aborts it
        for item in call.wanted:
            call.receipt.ledger.intend(self._number, item, self._opening.deadline_ms, self._connection.may_land)
        try:
            yield
            call.is_made = True
        except Exception as error:
            # Of one that is none of the library's nothing was sent: else the caller would hear OutcomeUnknown.
            is_unmade = error.durable is Durable.NOTHING if isinstance(error, TxnLogError) else work.logged is logged
            if is_unmade and not isinstance(error, AbortableError | FencedError):
                work.rollback(before)
                self._opening.deadline_ms = deadline_ms
                self._unanswered = unanswered
                for known in self._ledgers:
                    known.restore(self._number, claims.get(id(known)))
            raise

    async def claim(
        self, wanted: Sequence[Acknowledgement], work: TransactionWork, receipt: Receipt | None = None
    ) -> None:
        """Claim messages, and add their acknowledgements to the work. Raises as ``check_conflicts`` does."""
        self._add(ledgers_of(self._connection, wanted, receipt))

        def claim(rest: Sequence[Acknowledgement]) -> None:
            self._note_subscriptions(rest)
            self._opening.note_effect()
            claim_in(self._ledgers, self._number, rest, self._opening.deadline_ms, self._connection.may_land)
            work.add_acknowledgements(rest)

        await check_conflicts(self._connection, self._number, wanted, receipt, claim)

    def _add(self, ledgers: Sequence[Ledger]) -> None:
        self._ledgers += [item for item in ledgers if item not in self._ledgers]

    def _note_subscriptions(self, wanted: Sequence[Acknowledgement]) -> None:
        draft = self._connection.follower.state.draft()
        for item in wanted:
            record = live_subscription(draft, item.subscription)
            topic = draft.topics.get(record.topic)
            assert topic is not None, "topics are never forgotten"
            self.subscriptions[record.id] = f"{topic.name}/{record.name}"
            self._opening.subscriptions[record.id] = SubscriptionPlace(topic.id, record.name)

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Around what may take effect in the log: until that is known, no deadline ends the claims."""
        for ledger in self._ledgers:
            ledger.note_deadline(self._number, None)
        try:
            yield
        finally:
            for ledger in self._ledgers:
                ledger.note_deadline(self._number, self._opening.deadline_ms)

    def drop(self) -> None:
        """End the claims of messages that are not to be delivered again: they were acknowledged, or may be."""
        for ledger in self._ledgers:
            ledger.restore(self._number, None)

    def abort(self) -> None:
        """End the claims, and have what they claim delivered again, as far as the log allows."""
        for ledger in self._ledgers:
            ledger.abort(self._number)

    def note_unlogged_abort(self, reason: AbortReason) -> None:
        """The abort did not reach the log: also other handles would withhold messages from their consumers."""
        for connection in self._handles:
            connection.note_unlogged_abort(self._number, reason)


__all__ = ["Acknowledging", "TransactionClaims"]
