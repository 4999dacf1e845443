"""The commands of transactions: flush, commit, abort, prepare, and the decision about a prepared one.

An owner's commands carry its :class:`Opening`: the first of them that reaches the log begins the transaction there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txnlog.common.ids import TxnId
from txnlog.common.names import quoted_name
from txnlog.errors import (
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    SubscriptionNotFound,
    TransactionNotFound,
    TransactionTimedOut,
    TxnLogError,
)
from txnlog.fold import number_blocks
from txnlog.fold.acknowledgements import is_held, not_yet_acknowledged
from txnlog.fold.producers import check_producer, committed_app, fenced
from txnlog.fold.sequences import check_end, repeated_rows
from txnlog.fold.state import AppRecord, Draft, Outcome, ProducerRecord
from txnlog.fold.transaction_ends import outcome_error
from txnlog.format.actions import (
    Abort,
    AbortReason,
    Acknowledge,
    Acknowledgement,
    AnyAction,
    Begin,
    Commit,
    Header,
    Prepare,
    Segment,
    Share,
    StreamBatch,
)
from txnlog.log.commands import Answer, CommandDefaults, Piece, SharedNumbers
from txnlog.log.dropped import SubscriptionPlace, is_dropped, refuse_made_again, refuse_subscribed_again, was_dropped
from txnlog.sentences import Argument, Call, Words


@dataclass(frozen=True, slots=True)
class Skipped:
    """A batch that was committed before: by which transaction, at which version.

    Of an application that committed the version ``wanted`` or a larger one before, ``last`` is its last one.
    """

    txn: int
    version: int
    last: AppRecord | None = field(default=None, compare=False)
    wanted: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A sequenced batch at or below the last visible sequence: committed before, unless it lies before the first.

    Whoever looks its offsets up finds out: a state need not hold the batches of long ago.
    """

    producer: str
    pieces: tuple[Piece, ...]


CommitResult = Outcome | Skipped | Duplicate


@dataclass(slots=True)
class Opening:
    """What the log must know of a transaction at its first effect."""

    id: TxnId
    now_ms: Callable[[], int]
    producer: str | None = None
    epoch: int | None = None
    app_id: str | None = None
    app_version: int | None = None
    deadline_ms: int | None = None
    timeout_ms: int | None = None
    timed_from_log: bool = False
    shown_skipped: bool = False
    """Whether its owner asked before the work, and heard that it is skipped."""
    subscriptions: dict[int, SubscriptionPlace] = field(default_factory=dict)
    """Of the subscriptions that it acknowledged messages of, by their ids: a state forgets dropped ones."""

    def start_clock(self) -> None:
        """The deadline counts from here, unless it does already."""
        if self.deadline_ms is None and self.timeout_ms is not None:
            self.deadline_ms = self.now_ms() + self.timeout_ms

    def note_effect(self) -> None:
        """The transaction has work. The deadline counts from here, or from the log where work takes its time."""
        if not self.timed_from_log:
            self.start_clock()

    @property
    def txn(self) -> int:
        """The number, which is what the log names."""
        return self.id.number

    def left_ms(self) -> int | None:
        """Milliseconds to the deadline by the owner's clock, None without one. Raises TransactionTimedOut past it.

        Never more than the timeout: a clock that jumps back must not lengthen what is logged.
        """
        if self.deadline_ms is None:
            return None
        left = self.deadline_ms - self.now_ms()
        if left <= 0:
            raise TransactionTimedOut(f"the transaction {self.id} is past its deadline, by {-left} ms")
        return left if self.timeout_ms is None else min(left, self.timeout_ms)

    def action(self) -> Begin:
        """The begin action, with what is left of the deadline."""
        timeout_ms = self.left_ms()
        return Begin(self.txn, timeout_ms, self.producer, self.epoch, self.app_id, self.app_version)


def ended_error(outcome: Outcome, opening: Opening, producer: ProducerRecord | None) -> TxnLogError:
    """The error for an owner whose transaction ended otherwise; with the newest record of its producer's name."""
    if outcome.state == "ABORTED" and outcome.reason == "timeout":
        return TransactionTimedOut(f"the transaction {opening.id} timed out, at version {outcome.version}")
    newest = None if producer is None else producer.epoch
    if outcome.state == "ABORTED" and outcome.reason == "fenced" and newest != opening.epoch:
        return fenced(opening.producer, opening.epoch, producer, opening.id)
    return outcome_error(outcome, opening.id)


def _producer(draft: Draft, name: str | None) -> ProducerRecord | None:
    return None if name is None else draft.producers.get(name)


@dataclass(slots=True)
class _Owners(CommandDefaults):
    """A command of the transaction's owner."""

    opening: Opening

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return (self.opening.txn,)


@dataclass(slots=True)
class _Anybodys(CommandDefaults):
    """A command of whoever knows the transaction's number."""

    txn: int

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return (self.txn,)

    def shown(self, draft: Draft) -> TxnId:
        """The transaction in messages."""
        return draft.txn_id(self.txn)


class LeftOut(NamedTuple):
    """What a flush could not bring into the log, since its topic or subscription was dropped before."""

    segments: tuple[Segment, ...]
    acknowledgements: tuple[Acknowledgement, ...]


@dataclass(slots=True)
class FlushCommand(_Owners):
    """Make a transaction's work so far durable and pending."""

    segments: tuple[Segment, ...]
    acknowledgements: tuple[Acknowledgement, ...]

    def decide(self, draft: Draft, at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[LeftOut]:
        """See Command."""
        txn = self.opening.txn
        outcome = draft.outcomes.get(txn)
        if outcome is not None:
            raise ended_error(outcome, self.opening, _producer(draft, self.opening.producer))
        actions: list[AnyAction] = [
            *_living(draft, self.segments),
            *(Acknowledge(txn, item) for item in _new(draft, txn, self.acknowledgements)),
        ]
        if draft.transactions.get(txn) is None:
            return [self.opening.action(), *actions]
        return actions or Answer(self.result(draft, at))  # a flush whose answer was lost, again

    def result(self, draft: Draft, _at: Header) -> LeftOut:
        """See Command."""
        return LeftOut(
            tuple([item for item in self.segments if draft.segments.get(item.segment) is None]),
            tuple([item for item in self.acknowledgements if draft.subscriptions.get(item.subscription) is None]),
        )


def _living(draft: Draft, segments: Sequence[Segment]) -> list[Segment]:
    """The segments that are not in the log yet (a flush whose answer was lost) and whose topic was not dropped."""
    return [item for item in segments if draft.segments.get(item.segment) is None and not is_dropped(draft, item.topic)]


def _new(draft: Draft, txn: int, acknowledgements: Sequence[Acknowledgement]) -> tuple[Acknowledgement, ...]:
    """The acknowledgements that are not in the log yet and whose subscription was not dropped."""
    return tuple(
        item
        for item in acknowledgements
        if draft.subscriptions.get(item.subscription) is not None and not is_held(draft, txn, item)
    )


@dataclass(slots=True)
class CommitCommand(_Owners):
    """Commit a transaction, a plain produce or a plain acknowledge: whatever of it is not in the log yet goes along."""

    travels = True
    digest: str
    pieces: Sequence[Piece] = ()
    segments: tuple[Segment, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()
    stream: StreamBatch | None = None
    plain: bool = False
    assign_sequences: bool = False
    owned_topics: Collection[int] = ()

    def decide(self, draft: Draft, _at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[CommitResult]:
        """See Command."""
        opening = self.opening
        txn = opening.txn
        outcome = draft.outcomes.get(txn)
        if outcome is not None:
            return Answer(self.repeated(outcome, _producer(draft, opening.producer)), settled=True)
        known = draft.transactions.get(txn)
        if known is None and opening.producer is not None:
            check_producer(draft, opening.producer, opening.epoch)
        if (earlier := self._committed_before(draft)) is not None:
            return Answer(earlier)
        self._refuse_dropped(draft, shared)
        if self.plain and opening.producer is not None and self._is_duplicate(draft, opening.producer):
            return Answer(Duplicate(opening.producer, tuple(self.pieces)))
        actions: list[AnyAction] = []
        segments = _living(draft, self.segments)
        if known is None and self.segments:
            actions.append(opening.action())
        elif known is None or known.state == "OPEN":
            opening.left_ms()
        alone = known is None and not actions
        actions.extend(segments)
        shares = self._shares(draft, shared)
        topics = [piece.topic for piece in self.pieces if piece.topic not in shared]
        topics += [segment.topic for segment in self.segments if is_dropped(draft, segment.topic)]
        held = dict.fromkeys([item.subscription for item in self.acknowledgements])
        actions.append(
            Commit(
                txn,
                self.digest,
                shares,
                acknowledgements=_new(draft, txn, self.acknowledgements),
                producer=opening.producer if alone else None,
                epoch=opening.epoch if alone else None,
                app_id=opening.app_id if alone else None,
                app_version=opening.app_version if alone else None,
                stream=self.stream,
                dropped_topics=tuple(dict.fromkeys(topics)),
                dropped_subscriptions=tuple([number for number in held if draft.subscriptions.get(number) is None]),
            )
        )
        return actions

    def _refuse_dropped(self, draft: Draft, shared: SharedNumbers) -> None:
        """A transaction goes on without what was dropped; a plain call would be nothing without it, or half of it.

        So would a transaction be whose rows are in the shared segment of a topic that this very entry drops: behind the
        entry it is decided anew, and goes on without them.
        """
        topics = dict.fromkeys([piece.topic for piece in self.pieces])  # each once: there may be many partitions
        for topic in topics:
            if (self.plain or topic in shared) and is_dropped(draft, topic):
                raise was_dropped(draft, topic, "create it again, then produce again")
        if not self.plain:
            new = [item.topic for item in self.segments if draft.segments.get(item.segment) is None]
            refuse_made_again(draft, [*topics, *new])
            refuse_subscribed_again(draft, self.opening.txn, self.opening.subscriptions, self.acknowledgements)
        elif any(draft.subscriptions.get(item.subscription) is None for item in self.acknowledgements):
            raise SubscriptionNotFound(
                "the subscription was dropped",
                advice=Words("create it again with ", Call("consumer", "...")),
                durable=Durable.NOTHING,
            )

    def repeated(self, outcome: Outcome, producer: ProducerRecord | None) -> Outcome:
        """The answer to a commit whose end is recorded: that end, or its error (see ``ended_error``)."""
        if outcome.state == "ABORTED":
            raise ended_error(outcome, self.opening, producer)
        if outcome.digest and outcome.digest != self.digest:
            raise InvalidTransactionState(
                f"the transaction {self.opening.id} was committed at version {outcome.version} with other contents",
                advice="this is another owner's success (a fork?): begin a new transaction",
            )
        return outcome

    def _committed_before(self, draft: Draft) -> Skipped | None:
        opening = self.opening
        app = committed_app(draft, opening.app_id, opening.app_version)
        if app is not None:
            return Skipped(app.txn, app.version, app, None if opening.shown_skipped else opening.app_version)
        return None if self.stream is None else replayed(draft, self.stream)

    def _is_duplicate(self, draft: Draft, producer: str) -> bool:
        sequenced = [piece for piece in self.pieces if piece.sequence is not None]
        if not sequenced:
            return False
        repeated = []
        for piece in sequenced:
            assert piece.sequence is not None, "chosen above"
            known = draft.sequences.get((producer, piece.topic, piece.partition))
            last = piece.sequence + piece.rows - 1
            repeated.append(known is not None and last <= known.last)
            if known is not None and piece.sequence <= known.last < last:
                raise repeated_rows((producer, piece.topic, piece.partition), known, piece.sequence, piece.rows)
        return all(repeated)

    def _shares(self, draft: Draft, shared: SharedNumbers) -> tuple[Share, ...]:
        shares: list[Share] = []
        following: dict[tuple[int, int], int] = {}
        for piece in self.pieces:
            number = shared.get(piece.topic)
            if number is None:
                continue  # the topic was dropped meanwhile
            sequence = piece.sequence
            place = (piece.topic, piece.partition)
            if self.assign_sequences and sequence is None and self.opening.producer is not None:
                known = draft.sequences.get((self.opening.producer, *place))
                sequence = following.get(place, 0 if known is None else known.last + 1)
            if sequence is not None:
                check_end(self.opening.producer, piece.partition, sequence, piece.rows)
                following[place] = sequence + piece.rows
            last = shares[-1] if shares else None
            if (
                last is not None
                and (last.segment, last.partition) == (number, piece.partition)
                and (last.sequence is None if sequence is None else last.sequence == sequence - last.rows)
            ):
                shares[-1] = Share(number, piece.partition, last.rows + piece.rows, last.sequence)
            else:
                shares.append(Share(number, piece.partition, piece.rows, sequence))
        return tuple(shares)

    def result(self, draft: Draft, _at: Header) -> CommitResult:
        """See Command."""
        outcome = draft.outcomes.get(self.opening.txn)
        assert outcome is not None, "a commit that was applied has its outcome"
        return outcome


@dataclass(slots=True)
class AcknowledgeCommand(_Anybodys):
    """Acknowledge outside of any transaction: one entry takes messages off their subscriptions."""

    travels = True
    acknowledgements: tuple[Acknowledgement, ...] = ()

    def decide(self, draft: Draft, _at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[None]:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        if outcome is not None and outcome.state == "ABORTED":
            raise outcome_error(outcome, self.shown(draft))
        if outcome is not None:
            return Answer(None, settled=True)
        left = self.left(draft)
        return [Commit(self.txn, "", (), tuple(left))] if left else Answer(None)

    def left(self, draft: Draft) -> list[Acknowledgement]:
        """Without what was acknowledged before: that is no conflict outside of a transaction."""
        return [rest for item in self.acknowledgements if (rest := not_yet_acknowledged(draft, item)) is not None]

    def result(self, _draft: Draft, _at: Header) -> None:
        """See Command."""


def replayed(draft: Draft, batch: StreamBatch) -> Skipped | None:
    """Whether a stream's batch was committed before: skipped if it is the same, refused if it is another one."""
    last = draft.streams.get(batch.identity)
    if last is None:
        return None
    if batch.query != last.query:
        if batch.batch > last.batch:
            return None
        raise InvalidInputError(
            f"the stream {batch.identity!r} committed batch {last.batch} of the query {quoted_name(last.query)}; "
            f"the query {quoted_name(batch.query)} begins again at batch {batch.batch}",
            advice="use another txnAppId for a new checkpoint, or go on with the old checkpoint",
        )
    if batch.batch > last.batch:
        return None
    if batch.batch == last.batch and batch.offsets_digest != last.offsets_digest:
        raise InvalidInputError(
            f"batch {batch.batch} of the stream {batch.identity!r} was committed with other source offsets",
            advice="the checkpoint was changed or copied: go on with the one that wrote it, or use a new txnAppId",
        )
    return Skipped(last.txn, last.version)


def forgotten(txn: TxnId, durable: Durable | None = None) -> TransactionNotFound:
    """The error for a transaction that ended so long ago that nobody knows how, if it ever did anything."""
    return TransactionNotFound(
        f"no outcome of the transaction {txn} is remembered, and it can have none any more",
        advice="it was never committed, or ended longer ago than outcomes are kept",
        durable=durable,
    )


@dataclass(slots=True)
class AbortCommand(_Anybodys):
    """End a transaction without effect; for an id that the log does not show, make that definite."""

    is_upkeep = True  # readers find nothing of what it writes
    reason: AbortReason = "user"
    by: str | None = None
    why: str | None = None
    force: bool = False

    def decide(self, draft: Draft, _at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[Outcome]:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        if outcome is not None:
            return Answer(outcome, settled=True)
        known = draft.transactions.get(self.txn)
        if known is not None and known.state == "PREPARED" and not self.force:
            raise InvalidTransactionState(
                f"the transaction {self.shown(draft)} is PREPARED: an outside system may have committed",
                advice=Words(
                    "complete it: ",
                    Call("complete", "token", Argument("commit", True)),
                    " or the opposite; or abort it by force: ",
                    Call("abort", "txn_id", Argument("force", True)),
                ),
            )
        if known is None and self.txn >= draft.head.next_number:
            raise InvalidInputError(f"the number {self.txn} was never given to a writer", advice="check the TxnID")
        if known is None and number_blocks.is_spent(draft, self.txn):
            raise forgotten(self.shown(draft))
        return [Abort(self.txn, self.reason, self.by, self.why)]

    def result(self, draft: Draft, _at: Header) -> Outcome:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        assert outcome is not None, "an abort that was applied has its outcome"
        return outcome


@dataclass(slots=True)
class PrepareCommand(_Owners):
    """Make a transaction wait for an outside decision: whatever of it is not in the log yet goes along."""

    digest: str
    segments: tuple[Segment, ...] = ()
    acknowledgements: tuple[Acknowledgement, ...] = ()

    def decide(self, draft: Draft, _at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[None]:
        """See Command."""
        opening = self.opening
        outcome = draft.outcomes.get(opening.txn)
        if outcome is not None:
            raise ended_error(outcome, opening, _producer(draft, opening.producer))
        known = draft.transactions.get(opening.txn)
        if known is not None and known.state == "PREPARED":
            return Answer(None)
        opening.left_ms()
        if known is None and opening.producer is not None:
            check_producer(draft, opening.producer, opening.epoch)
        self._refuse_done_before(draft)
        self._refuse_dropped(draft)
        begin = [opening.action()] if known is None else []
        return [
            *begin,
            *_living(draft, self.segments),
            *(Acknowledge(opening.txn, item) for item in _new(draft, opening.txn, self.acknowledgements)),
            Prepare(opening.txn, self.digest),
        ]

    def _refuse_done_before(self, draft: Draft) -> None:
        """A commit would be skipped: there is nothing to wait for."""
        app_id, app_version = self.opening.app_id, self.opening.app_version
        app = committed_app(draft, app_id, app_version)
        if app is not None:
            raise InvalidTransactionState(
                f"{app_id!r} committed version {app.app_version} at version {app.version} of the log; {app_version} is "
                "not above it",
                advice="the batch was done before: commit() answers as skipped, with the original version",
            )

    def _refuse_dropped(self, draft: Draft) -> None:
        """What the log cannot hold any more would be missing without a word: a token has no room for it."""
        new = [item for item in self.segments if draft.segments.get(item.segment) is None]
        refuse_made_again(draft, [item.topic for item in new])
        refuse_subscribed_again(draft, self.opening.txn, self.opening.subscriptions, self.acknowledgements)
        for segment in new:
            if is_dropped(draft, segment.topic):
                raise was_dropped(draft, segment.topic, "abort() and begin again, or commit() without its rows")
        for item in self.acknowledgements:
            if draft.subscriptions.get(item.subscription) is None:
                raise SubscriptionNotFound(
                    "a subscription of which the transaction acknowledged messages was dropped",
                    advice="abort() and begin again, or commit() without them",
                    durable=Durable.NOTHING,
                )

    def result(self, _draft: Draft, _at: Header) -> None:
        """See Command."""


@dataclass(slots=True)
class CompleteCommand(_Anybodys):
    """Carry out the outside decision about a prepared transaction. Whoever brings it is not fenced."""

    commit: bool

    def decide(self, draft: Draft, _at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[Outcome]:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        if outcome is not None:
            return Answer(self.repeated(outcome, self.shown(draft)), settled=True)
        known = draft.transactions.get(self.txn)
        if known is None:
            raise TransactionNotFound(
                f"the log shows no prepared transaction {self.shown(draft)}, and remembers no outcome of it",
                advice=Words(
                    "a prepare whose outcome is unknown may still arrive: ",
                    Call("abort", "token"),
                    " makes that definite; an outcome may have been forgotten after its retention",
                ),
            )
        if known.state != "PREPARED":
            raise InvalidTransactionState(
                f"the transaction {self.shown(draft)} is {known.state}: it was not prepared",
                advice=Words("only its owner can commit or prepare it; ", Call("abort", "token"), " ends it"),
            )
        return [Commit(self.txn)] if self.commit else [Abort(self.txn, "user")]

    def repeated(self, outcome: Outcome, txn: TxnId) -> Outcome:
        """The answer where an end is recorded: it, or InvalidTransactionState for the opposite decision."""
        if (outcome.state == "COMMITTED") != self.commit:
            reason = f" ({outcome.reason})" if outcome.reason else ""
            raise InvalidTransactionState(
                f"the transaction {txn} was {outcome.state} at version {outcome.version}{reason}",
                advice="the first decision stands: bring the outside system in line with it",
            )
        return outcome

    def result(self, draft: Draft, _at: Header) -> Outcome:
        """See Command."""
        outcome = draft.outcomes.get(self.txn)
        assert outcome is not None, "an end that was applied has its outcome"
        return outcome


__all__ = [
    "AbortCommand",
    "AcknowledgeCommand",
    "CommitCommand",
    "CommitResult",
    "CompleteCommand",
    "Duplicate",
    "FlushCommand",
    "LeftOut",
    "Opening",
    "PrepareCommand",
    "Skipped",
    "ended_error",
    "forgotten",
    "replayed",
]
