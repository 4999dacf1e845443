"""Applying the actions of transactions: beginning, effects, preparing, and the commit that gives rows their offsets."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from txnlog.common import ranges
from txnlog.common.format_limits import MAX_APPS, MAX_NUMBER, MAX_OPEN_TRANSACTIONS, MAX_STREAMS, MAX_TIMEOUT_MS
from txnlog.common.names import parse_label
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    TransactionConflict,
    TransactionNotFound,
)
from txnlog.fold import acknowledgements, number_blocks, sequences
from txnlog.fold.producers import NAMES_ADVICE, check_producer, committed_app
from txnlog.fold.state import (
    AppRecord,
    Batch,
    Draft,
    Outcome,
    SegmentRecord,
    SegmentSlice,
    StreamRecord,
    TopicRange,
    TransactionRecord,
    Unclaimed,
)
from txnlog.fold.topics import live_topic
from txnlog.fold.transaction_ends import forget, refuse_ended, use_number
from txnlog.format.actions import Acknowledge, Begin, Commit, Header, Prepare, Segment, Share, StreamBatch
from txnlog.format.features import HOLES
from txnlog.format.keys import FILE_NAME
from txnlog.sentences import Call, Words

_Spans = dict[tuple[int, int], list[ranges.Range]]
"""By topic and partition, what a commit makes visible."""

_CHECKSUM: Final = re.compile(r"(?:footer-)?crc32:[0-9a-f]{8}", re.ASCII)


# --- the beginning and the effects of a transaction -----------------------------------------------------------------


def begin(draft: Draft, action: Begin, at: Header) -> None:
    """The log sees a transaction for the first time; its first effect follows in the same entry."""
    use_number(draft, action.txn, at)
    if len(draft.transactions) >= MAX_OPEN_TRANSACTIONS:
        raise too_many_open()
    cap = draft.head.max_timeout_ms or MAX_TIMEOUT_MS
    if action.timeout_ms is not None and not 0 < action.timeout_ms <= cap:
        raise InvalidInputError(f"timeout_ms lies between 1 and {cap}, the namespace's cap")
    _check_pairs(draft, action)
    if action.producer is not None:
        producer = check_producer(draft, action.producer, action.epoch)
        draft.producers.put(producer.name, msgspec.structs.replace(producer, open=(*producer.open, action.txn)))
    draft.transactions.put(
        action.txn,
        TransactionRecord(
            action.txn,
            "OPEN",
            at.version,
            opened_ms=at.timestamp_ms,
            deadline_ms=None if action.timeout_ms is None else at.timestamp_ms + action.timeout_ms,
            producer=action.producer,
            epoch=action.epoch,
            app_id=action.app_id,
            app_version=action.app_version,
        ),
    )


def too_many_open() -> LimitExceeded:
    """The error where no transaction more may be open."""
    return LimitExceeded(
        f"the namespace has {MAX_OPEN_TRANSACTIONS:,} open transactions",
        advice=Words("end some (", Call("transactions"), " lists them), or divide the work over several namespaces"),
    )


def _check_pairs(draft: Draft, action: Begin | Commit) -> None:
    if (action.app_id is None) != (action.app_version is None):
        raise InvalidInputError("app_id and app_version go together")
    if action.app_id is not None:
        parse_label("application id", action.app_id)
        if draft.apps.get(action.app_id) is None and len(draft.apps) >= MAX_APPS:
            raise LimitExceeded(
                f"the namespace remembers {MAX_APPS:,} applications",
                advice=Words(
                    "use one txn_app_id for all runs of a job, and ",
                    Call("forget_app", "id"),
                    " for those that are over",
                ),
            )
    if (action.producer is None) != (action.epoch is None):
        raise InvalidInputError("a producer's name and epoch go together")


def open_transaction(draft: Draft, number: int) -> TransactionRecord:
    """The OPEN transaction with a number; raises its recorded outcome, or why there is none."""
    transaction = draft.transactions.get(number)
    if transaction is None:
        refuse_ended(draft, number)
        raise TransactionNotFound(f"the log shows no open transaction {draft.txn_id(number)}")
    if transaction.state != "OPEN":
        raise InvalidTransactionState(f"the transaction {draft.txn_id(number)} is {transaction.state}")
    return transaction


def add_segment(draft: Draft, action: Segment, at: Header) -> None:
    """A file of a topic: pending in its transaction, or shared and visible by the commits of this entry."""
    transaction = None if action.txn is None else open_transaction(draft, action.txn)
    number_blocks.use(draft, action.segment, at)
    topic = live_topic(draft, action.topic)
    if not FILE_NAME.fullmatch(action.file):
        raise InvalidInputError(f"{action.file[:60]!a} is no segment file name")
    if not action.slices or sum(item.rows for item in action.slices) != action.rows:
        raise InvalidInputError(f"the slices of segment {action.segment} do not add up to its {action.rows} rows")
    if not _CHECKSUM.fullmatch(action.checksum) or action.size_bytes <= 0:
        raise InvalidInputError(f"segment {action.segment} has no checksum or no size")
    if action.compacted and (transaction is None or len(action.slices) != 1):
        raise InvalidInputError(f"segment {action.segment}: a compacted one has one slice and replaces others")
    _check_extent(draft, action)
    last = -1
    for item in action.slices:
        if not last < item.partition < topic.partitions or item.rows < (action.extent is None):
            raise InvalidInputError(
                f"segment {action.segment}: partition {item.partition} is out of order or out of range"
            )
        last = item.partition
    if transaction is not None:
        if transaction.producer is None and any(item.sequence is not None for item in action.slices):
            raise InvalidInputError("sequences belong to a named producer")
        sequenced = [item.partition for item in action.slices if item.sequence is not None]
        sequences.check_room(draft, transaction.producer, topic.id, sequenced)
        draft.transactions.put(
            transaction.number, msgspec.structs.replace(transaction, segments=(*transaction.segments, action.segment))
        )
        slices = tuple(SegmentSlice(item.partition, item.rows, None, item.sequence) for item in action.slices)
        state, ended, timestamp = "pending", None, None
    else:
        if any(item.sequence is not None for item in action.slices):
            raise InvalidInputError("sequences of a shared segment stand in the commits' shares")
        slices = tuple(
            [
                SegmentSlice(item.partition, item.rows, _advance_end(draft, topic.id, item.partition, item.rows))
                for item in action.slices
            ]
        )
        for found in slices:
            assert found.offset is not None, "given just now"
            draft.unclaimed.put((action.segment, found.partition), Unclaimed(topic.id, found.offset, found.rows))
        state, ended, timestamp = "visible", at.version, at.timestamp_ms
    draft.segments.put(
        action.segment,
        SegmentRecord(
            action.segment,
            topic.id,
            action.file,
            rows=action.rows,
            size_bytes=action.size_bytes,
            checksum=action.checksum,
            slices=slices,
            state=state,  # type: ignore[arg-type]  # one of the literals above
            logged_version=at.version,
            txn=action.txn,
            ended_version=ended,
            timestamp_ms=timestamp,
            compacted=action.compacted,
            statistics=action.statistics,
            extent=action.extent,
        ),
    )


def _check_extent(draft: Draft, action: Segment) -> None:
    """Check what is said of a segment that may stand for more offsets than it has rows."""
    if action.extent is None:
        return
    if HOLES not in draft.head.reader_features:
        raise InvalidInputError(f"segment {action.segment} has an extent, without the feature {HOLES!r} of the log")
    if not action.compacted or not action.rows <= action.extent or not action.extent:
        raise InvalidInputError(f"segment {action.segment}: {action.rows} rows cannot have {action.extent} offsets")


def _advance_end(draft: Draft, topic: int, partition: int, rows: int) -> int:
    """Give ``rows`` offsets at the end of a partition; returns the first. The only place that assigns offsets."""
    base = draft.ends.get((topic, partition)) or 0  # end_of, without a call for every slice
    if base + rows > MAX_NUMBER:
        raise LimitExceeded(f"offset {base + rows:,} in one partition", advice="use another topic")
    draft.ends.put((topic, partition), base + rows)
    return base


def acknowledge(draft: Draft, action: Acknowledge, _at: Header) -> None:
    """Acknowledgements of an open transaction become pending."""
    transaction = open_transaction(draft, action.txn)
    held = acknowledgements.hold(draft, action.txn, action.acknowledgement)
    draft.transactions.put(action.txn, msgspec.structs.replace(transaction, held=transaction.held + held))


def prepare(draft: Draft, action: Prepare, _at: Header) -> None:
    """A transaction waits for an outside decision: it loses its deadline and can no longer be fenced.

    From here on its commit must succeed whenever it is asked for: its sequences and its application version are checked
    now and reserved until it ends.
    """
    transaction = open_transaction(draft, action.txn)
    _check_digest(action.digest)
    if transaction.producer is not None:
        check_producer(draft, transaction.producer, transaction.epoch)
        sequences.check_pending(draft, transaction, transaction.producer)
    _check_app(draft, transaction.app_id, transaction.app_version, action.txn)
    for segment in sequences.pending_segments(draft, transaction):
        _check_not_compacted(segment)
    draft.transactions.put(
        action.txn, msgspec.structs.replace(transaction, state="PREPARED", deadline_ms=None, digest=action.digest)
    )


def _check_digest(digest: str) -> None:
    if digest:
        parse_label("digest", digest)


def _check_not_compacted(segment: SegmentRecord) -> None:
    if segment.compacted:
        raise InvalidInputError(f"segment {segment.number} is compacted: it replaces others, it brings no rows")


# --- the end --------------------------------------------------------------------------------------------------------


def commit(draft: Draft, action: Commit, at: Header) -> None:
    """The one entry that decides: everything that the transaction brings becomes visible and acknowledged."""
    transaction = draft.transactions.get(action.txn)
    if transaction is None:
        use_number(draft, action.txn, at)
        _check_pairs(draft, action)
        producer, epoch = action.producer, action.epoch
        app_id, app_version = action.app_id, action.app_version
    else:
        producer, epoch = transaction.producer, transaction.epoch
        app_id, app_version = transaction.app_id, transaction.app_version
        _check_commit_of_known(draft, action, transaction)
    if producer is not None and (transaction is None or transaction.state == "OPEN"):
        check_producer(draft, producer, epoch)
    _check_app(draft, app_id, app_version, action.txn)
    if app_id is not None and app_version is not None:
        draft.apps.put(app_id, AppRecord(app_id, app_version, action.txn, at.version))
    if action.stream is not None:
        _note_stream(draft, action.stream, action.txn, at)
    _check_digest(action.digest)
    _check_dropped(draft, action, at)
    offsets, topics = _make_visible(draft, action, transaction, producer, at)
    held = transaction.held if transaction is not None else ()
    subscriptions = [subscription for subscription, _ in held if draft.subscriptions.get(subscription) is None]
    for wanted in action.acknowledgements:
        held += acknowledgements.hold(draft, action.txn, wanted)
    if held:
        acknowledgements.settle(draft, action.txn, held, committed=True)
    if transaction is not None:
        forget(draft, transaction)
    digest = action.digest or (transaction.digest if transaction is not None else "")
    draft.outcomes.put(
        action.txn,
        Outcome(
            action.txn,
            "COMMITTED",
            at.version,
            timestamp_ms=at.timestamp_ms,
            digest=digest,
            offsets=offsets,
            prepared=transaction is not None and transaction.state == "PREPARED",
            dropped_topics=tuple(dict.fromkeys((*topics, *action.dropped_topics))),
            dropped_subscriptions=tuple(dict.fromkeys((*subscriptions, *action.dropped_subscriptions))),
        ),
    )


def _check_dropped(draft: Draft, action: Commit, at: Header) -> None:
    """What is there cannot have been dropped. Of a subscription that is gone, only what its number shows is known."""
    for number in action.dropped_topics:
        topic = draft.topics.get(number)
        if topic is None or not topic.dropped:
            raise InvalidInputError(f"the topic {number} was not dropped")
    for number in action.dropped_subscriptions:
        if number > at.version or draft.subscriptions.get(number) is not None:
            raise InvalidInputError(f"the subscription {number} was not dropped")


def _check_commit_of_known(draft: Draft, action: Commit, transaction: TransactionRecord) -> None:
    if (action.producer, action.epoch, action.app_id, action.app_version) != (None, None, None, None):
        raise InvalidInputError("producer and app of an open transaction stand in its begin action")
    if transaction.state != "PREPARED":
        return
    added = action.shares or action.acknowledgements or action.dropped_topics or action.dropped_subscriptions
    if added or action.stream is not None:
        raise InvalidTransactionState(f"the transaction {draft.txn_id(action.txn)} is PREPARED: nothing can be added")
    if action.digest not in {"", transaction.digest}:
        raise InvalidTransactionState(f"the transaction {draft.txn_id(action.txn)} was PREPARED with other contents")


def _check_app(draft: Draft, app_id: str | None, app_version: int | None, txn: int) -> None:
    if app_id is None or app_version is None:
        return
    for number, other in draft.transactions.items():
        if number != txn and other.state == "PREPARED" and other.app_id == app_id:
            raise TransactionConflict(
                f"the transaction {draft.txn_id(number)}, which is PREPARED, reserves version "
                f"{other.app_version} of {app_id!r}",
                advice="complete the prepared transaction first",
            )
    last = committed_app(draft, app_id, app_version)
    if last is not None:
        raise InvalidTransactionState(
            f"{app_id!r} committed version {last.app_version} at version {last.version} of the log; "
            f"{app_version} is not above it"
        )


def _note_stream(draft: Draft, batch: StreamBatch, txn: int, at: Header) -> None:
    last = draft.streams.get(parse_label("stream identity", batch.identity))
    if last is not None and batch.batch <= last.batch:
        raise InvalidTransactionState(
            f"the stream {batch.identity!r} committed batch {last.batch} of the query {last.query[:60]!a}; "
            f"batch {batch.batch} of {batch.query[:60]!a} is not above it"
        )
    if last is None and len(draft.streams) >= MAX_STREAMS:
        raise LimitExceeded(f"the namespace remembers {MAX_STREAMS:,} streams", advice=NAMES_ADVICE)
    draft.streams.put(
        batch.identity,
        StreamRecord(batch.identity, batch.query, batch.batch, batch.offsets_digest, txn, at.version),
    )


def _make_visible(
    draft: Draft, action: Commit, transaction: TransactionRecord | None, producer: str | None, at: Header
) -> tuple[tuple[TopicRange, ...], list[int]]:
    """Assign offsets: pending segments in logged order, then the shares. Returns ranges and dropped topics."""
    spans: _Spans = {}
    dropped: list[int] = []
    if transaction is not None:
        for segment in sequences.pending_segments(draft, transaction):
            topic = draft.topics.get(segment.topic)
            if topic is None or topic.dropped:
                dropped.append(segment.topic)
                draft.segments.put(
                    segment.number, msgspec.structs.replace(segment, state="aborted", ended_version=at.version)
                )
            else:
                _show_pending(draft, segment, action.txn, producer, at, spans)
    if action.shares:
        _claim_shares(draft, action, producer, at, spans)
    # A list: a generator would be half of the work for a small transaction, and these are most of a log.
    offsets = [
        TopicRange(topic, partition, start, end)
        for (topic, partition), found in sorted(spans.items())
        for start, end in found
    ]
    return tuple(offsets), dropped


def _show_pending(
    draft: Draft, segment: SegmentRecord, txn: int, producer: str | None, at: Header, spans: _Spans
) -> None:
    """A segment of the transaction's own becomes visible."""
    _check_not_compacted(segment)
    slices: list[SegmentSlice] = []
    for item in segment.slices:
        offset = _advance_end(draft, segment.topic, item.partition, item.rows)
        slices.append(SegmentSlice(item.partition, item.rows, offset, item.sequence))
        ranges.append(spans.setdefault((segment.topic, item.partition), []), offset, offset + item.rows)
        if item.sequence is not None:
            _note_sequence(draft, producer, segment.topic, item, offset, at.version, txn)
    draft.segments.put(
        segment.number,
        msgspec.structs.replace(
            segment, slices=tuple(slices), state="visible", ended_version=at.version, timestamp_ms=at.timestamp_ms
        ),
    )


def _claim_shares(draft: Draft, action: Commit, producer: str | None, at: Header, spans: _Spans) -> None:
    """Rows of the entry's shared segments become visible, behind all that was pending."""
    pending = tuple(spans)
    for share in action.shares:
        topic, offset = _claim(draft, share)
        place = (topic, share.partition)
        if place in pending:
            raise InvalidInputError(
                f"the transaction {draft.txn_id(action.txn)} has pending rows of partition {share.partition}: shared "
                "ones would be visible before them",
                advice="write the rest into a segment of the transaction's own",
            )
        ranges.append(spans.setdefault(place, []), offset, offset + share.rows)
        if share.sequence is not None:
            sequences.check_room(draft, producer, topic, (share.partition,))
            _note_sequence(draft, producer, topic, share, offset, at.version, action.txn)


def _note_sequence(
    draft: Draft,
    producer: str | None,
    topic: int,
    item: SegmentSlice | Share,
    offset: int,
    version: int,
    txn: int,
) -> None:
    assert item.sequence is not None, "only rows with a sequence are noted"
    batch = Batch(producer or "", topic, item.partition, item.sequence, item.rows, offset, version, txn)
    sequences.note(draft, producer, batch)


def _claim(draft: Draft, share: Share) -> tuple[int, int]:
    """The next rows of a shared segment's slice belong to this commit. Returns topic and first offset."""
    place = (share.segment, share.partition)
    left = draft.unclaimed.get(place)
    if left is None:
        raise InvalidInputError(
            f"segment {share.segment} has no shared rows of partition {share.partition} left in this entry"
        )
    topic, offset, rows = left
    if not 0 < share.rows <= rows:
        raise InvalidInputError(
            f"segment {share.segment} has {rows} rows of partition {share.partition} left, not {share.rows}"
        )
    if share.rows < rows:
        draft.unclaimed.put(place, Unclaimed(topic, offset + share.rows, rows - share.rows))
    else:
        draft.unclaimed.remove(place)
    return topic, offset


def check_claims(draft: Draft) -> None:
    """At the end of an entry: every row of its shared segments belongs to a commit."""
    for (number, partition), left in draft.unclaimed.items():
        raise InvalidInputError(f"no commit claims {left.rows} rows of segment {number}, partition {partition}")


__all__ = [
    "acknowledge",
    "add_segment",
    "begin",
    "check_claims",
    "commit",
    "open_transaction",
    "prepare",
    "too_many_open",
]
