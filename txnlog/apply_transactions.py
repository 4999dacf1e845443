"""Applying the actions of producers and transactions: beginning, effects, and the one end each has."""

from __future__ import annotations

import msgspec

from txnlog import acknowledgements, numbers, ranges
from txnlog.actions import (
    Abort,
    AbortReason,
    Acknowledge,
    Begin,
    Commit,
    ForgetApp,
    Header,
    Prepare,
    Producer,
    Replace,
    Segment,
    Share,
)
from txnlog.apply_topics import live_topic
from txnlog.errors import (
    AbortableError,
    InvalidInputError,
    InvalidTransactionState,
    LimitExceeded,
    OutOfOrderSequence,
    ProducerFenced,
    TopicNotFound,
    TransactionAborted,
    TransactionNotFound,
)
from txnlog.keys import FILE_NAME
from txnlog.limits import MAX_OPEN_TRANSACTIONS, RECENT_BATCHES
from txnlog.names import parse_label, parse_producer_name
from txnlog.state import (
    AppRecord,
    Batch,
    Draft,
    Outcome,
    ProducerRecord,
    SegmentRecord,
    SegmentSlice,
    Sequences,
    StreamRecord,
    TopicRange,
    TransactionRecord,
)

# --- producers ------------------------------------------------------------------------------------------------------


def start_producer(draft: Draft, action: Producer, at: Header) -> None:
    """A name gets a higher epoch; the OPEN transactions of its older owner are aborted, PREPARED ones kept."""
    name = parse_producer_name(action.name)
    old = draft.producers.get(name)
    if old is not None and old.epoch == at.version:
        raise InvalidInputError("one entry starts a producer name once: its epoch is the entry's version")
    kept: tuple[int, ...] = ()
    if old is not None:
        for number in old.open:
            transaction = draft.transactions.get(number)
            assert transaction is not None, "a producer lists only transactions that have not ended"
            if transaction.state == "OPEN":
                end_aborted(draft, number, at, "fenced")
            else:
                kept = (*kept, number)
    draft.producers.put(name, ProducerRecord(name, at.version, kept, action.fenced_by))


def check_producer(draft: Draft, name: str, epoch: int | None) -> ProducerRecord:
    """The producer's record, or ProducerFenced where the epoch is not the newest."""
    record = draft.producers.get(name)
    if record is None:
        raise InvalidInputError(f"no producer {name!r} was started", advice="start it with ns.producer(name)")
    if record.epoch != epoch:
        by = f" by {record.fenced_by}" if record.fenced_by else ""
        raise ProducerFenced(f"the producer {name!r} has epoch {epoch} but {record.epoch} is the newest{by}")
    return record


def forget_app(draft: Draft, action: ForgetApp, _at: Header) -> None:
    """Forget an application id; the next transaction may bring any version."""
    draft.apps.remove(action.app_id)


# --- the beginning and the effects of a transaction -----------------------------------------------------------------


def begin(draft: Draft, action: Begin, at: Header) -> None:
    """The log sees a transaction for the first time; its first effect follows in the same entry."""
    numbers.use(draft, action.txn, at)
    if len(draft.transactions) >= MAX_OPEN_TRANSACTIONS:
        raise LimitExceeded(
            f"the namespace has {MAX_OPEN_TRANSACTIONS:,} open transactions",
            advice="end some (ns.transactions() lists them), or raise the number of namespaces",
        )
    if action.timeout_ms is not None and action.timeout_ms <= 0:
        raise InvalidInputError("timeout_ms is a positive number of milliseconds")
    if (action.app_id is None) != (action.app_version is None):
        raise InvalidInputError("app_id and app_version go together")
    if action.producer is not None:
        producer = check_producer(draft, action.producer, action.epoch)
        draft.producers.put(producer.name, msgspec.structs.replace(producer, open=(*producer.open, action.txn)))
    draft.transactions.put(
        action.txn,
        TransactionRecord(
            action.txn,
            "OPEN",
            at.version,
            at.timestamp_ms,
            None if action.timeout_ms is None else at.timestamp_ms + action.timeout_ms,
            action.producer,
            action.epoch,
            action.app_id,
            action.app_version,
        ),
    )


def _open(draft: Draft, number: int) -> TransactionRecord:
    transaction = draft.transactions.get(number)
    if transaction is None:
        refuse_ended(draft, number)
        raise TransactionNotFound(f"the log shows no open transaction {number}")
    if transaction.state != "OPEN":
        raise InvalidTransactionState(f"the transaction {number} is {transaction.state}")
    return transaction


def refuse_ended(draft: Draft, number: int) -> None:
    """Raise the true outcome where the log remembers one."""
    outcome = draft.outcomes.get(number)
    if outcome is not None:
        raise outcome_error(outcome)


def outcome_error(outcome: Outcome) -> AbortableError | InvalidTransactionState:
    """The error that tells an outcome to somebody who wanted another one."""
    if outcome.state == "COMMITTED":
        return InvalidTransactionState(f"the transaction {outcome.number} was committed at version {outcome.version}")
    return TransactionAborted(
        f"the transaction {outcome.number} was aborted at version {outcome.version} ({outcome.reason})",
        reason=outcome.reason,
    )


def add_segment(draft: Draft, action: Segment, at: Header) -> None:
    """A file of a topic: pending in its transaction, or shared and visible by the commits of this entry."""
    numbers.use(draft, action.segment, at)
    topic = live_topic(draft, action.topic)
    if not FILE_NAME.fullmatch(action.file):
        raise InvalidInputError(f"{action.file[:60]!a} is no segment file name")
    if not action.slices or sum(item.rows for item in action.slices) != action.rows:
        raise InvalidInputError(f"the slices of segment {action.segment} do not add up to its {action.rows} rows")
    last = -1
    for item in action.slices:
        if not last < item.partition < topic.partitions or item.rows <= 0:
            raise InvalidInputError(
                f"segment {action.segment}: partition {item.partition} is out of order or out of range"
            )
        last = item.partition
    if action.txn is not None:
        transaction = _open(draft, action.txn)
        draft.transactions.put(
            action.txn, msgspec.structs.replace(transaction, segments=(*transaction.segments, action.segment))
        )
        slices = tuple(SegmentSlice(item.partition, item.rows, None, item.sequence) for item in action.slices)
        state, ended, timestamp = "pending", None, None
    else:
        if any(item.sequence is not None for item in action.slices):
            raise InvalidInputError("sequences of a shared segment stand in the commits' shares")
        for item in action.slices:
            draft.claims.put((action.segment, item.partition), 0)
        slices = tuple(
            SegmentSlice(item.partition, item.rows, _advance_end(draft, topic.id, item.partition, item.rows))
            for item in action.slices
        )
        state, ended, timestamp = "visible", at.version, at.timestamp_ms
    draft.segments.put(
        action.segment,
        SegmentRecord(
            action.segment,
            topic.id,
            action.file,
            action.rows,
            action.size_bytes,
            action.checksum,
            slices,
            state,  # type: ignore[arg-type]  # one of the literals above
            at.version,
            action.txn,
            ended,
            timestamp,
            action.compacted,
            action.statistics,
        ),
    )


def _advance_end(draft: Draft, topic: int, partition: int, rows: int) -> int:
    """Give ``rows`` offsets at the end of a partition; returns the first. The only place that assigns offsets."""
    base = draft.ends.get((topic, partition)) or 0
    draft.ends.put((topic, partition), base + rows)
    return base


def acknowledge(draft: Draft, action: Acknowledge, _at: Header) -> None:
    """Acknowledgements of an open transaction become pending."""
    transaction = _open(draft, action.txn)
    held = acknowledgements.hold(draft, action.txn, action.acknowledgement)
    draft.transactions.put(action.txn, msgspec.structs.replace(transaction, held=transaction.held + held))


def prepare(draft: Draft, action: Prepare, _at: Header) -> None:
    """A transaction waits for an outside decision: it loses its deadline and can no longer be fenced."""
    transaction = _open(draft, action.txn)
    if transaction.producer is not None:
        check_producer(draft, transaction.producer, transaction.epoch)
    draft.transactions.put(
        action.txn, msgspec.structs.replace(transaction, state="PREPARED", deadline_ms=None, digest=action.digest)
    )


# --- the end --------------------------------------------------------------------------------------------------------


def commit(draft: Draft, action: Commit, at: Header) -> None:
    """The one entry that decides: everything the transaction holds becomes visible and acknowledged."""
    transaction = draft.transactions.get(action.txn)
    if transaction is None:
        refuse_ended(draft, action.txn)
        numbers.use(draft, action.txn, at)
        producer, epoch = action.producer, action.epoch
        app_id, app_version = action.app_id, action.app_version
    else:
        producer, epoch = transaction.producer, transaction.epoch
        app_id, app_version = transaction.app_id, transaction.app_version
        if (action.producer, action.epoch, action.app_id, action.app_version) != (None, None, None, None):
            raise InvalidInputError("producer and app of an open transaction stand in its begin action")
        if transaction.state == "PREPARED" and (action.shares or action.acknowledgements):
            raise InvalidTransactionState(f"the transaction {action.txn} is PREPARED: nothing can be added")
    if producer is not None and (transaction is None or transaction.state == "OPEN"):
        check_producer(draft, producer, epoch)
    _note_app(draft, app_id, app_version, action.txn, at)
    _note_stream(draft, action, at)
    offsets, dropped = _make_visible(draft, action, transaction, producer, at)
    held = transaction.held if transaction is not None else ()
    for wanted in action.acknowledgements:
        held += acknowledgements.hold(draft, action.txn, wanted)
    acknowledgements.settle(draft, action.txn, held, committed=True)
    _forget(draft, transaction)
    draft.outcomes.put(
        action.txn,
        Outcome(action.txn, "COMMITTED", at.version, at.timestamp_ms, "", action.digest, offsets, dropped),
    )


def _note_app(draft: Draft, app_id: str | None, app_version: int | None, txn: int, at: Header) -> None:
    if app_id is None and app_version is None:
        return
    if app_id is None or app_version is None:
        raise InvalidInputError("app_id and app_version go together")
    parse_label("application id", app_id)
    last = draft.apps.get(app_id)
    if last is not None and app_version <= last.app_version:
        raise InvalidTransactionState(
            f"{app_id!r} committed version {last.app_version} at version {last.version} of the log; "
            f"{app_version} is not above it"
        )
    draft.apps.put(app_id, AppRecord(app_id, app_version, txn, at.version))


def _note_stream(draft: Draft, action: Commit, at: Header) -> None:
    batch = action.stream
    if batch is None:
        return
    last = draft.streams.get(parse_label("stream identity", batch.identity))
    if last is not None and batch.batch <= last.batch:
        raise InvalidTransactionState(
            f"the stream {batch.identity!r} committed batch {last.batch} of the query {last.query}; "
            f"batch {batch.batch} of {batch.query} is not above it"
        )
    draft.streams.put(
        batch.identity,
        StreamRecord(batch.identity, batch.query, batch.batch, batch.offsets_digest, action.txn, at.version),
    )


def _make_visible(
    draft: Draft, action: Commit, transaction: TransactionRecord | None, producer: str | None, at: Header
) -> tuple[tuple[TopicRange, ...], tuple[int, ...]]:
    """Assign offsets: pending segments in logged order, then the shares. Returns ranges and dropped topics."""
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    dropped: list[int] = []
    for number in transaction.segments if transaction is not None else ():
        segment = draft.segments.get(number)
        assert segment is not None, "a transaction lists only segments that the state holds"
        topic = draft.topics.get(segment.topic)
        if topic is None or topic.dropped_version is not None:
            dropped.append(segment.topic)
            draft.segments.put(number, msgspec.structs.replace(segment, state="aborted", ended_version=at.version))
            continue
        slices: list[SegmentSlice] = []
        for item in segment.slices:
            offset = _advance_end(draft, segment.topic, item.partition, item.rows)
            slices.append(SegmentSlice(item.partition, item.rows, offset, item.sequence))
            _note_rows(
                draft,
                spans,
                (producer, segment.topic, item.partition),
                item.sequence,
                offset=offset,
                rows=item.rows,
                txn=action.txn,
                version=at.version,
            )
        draft.segments.put(
            number,
            msgspec.structs.replace(
                segment, slices=tuple(slices), state="visible", ended_version=at.version, timestamp_ms=at.timestamp_ms
            ),
        )
    for share in action.shares:
        topic_id, offset = _claim(draft, share)
        _note_rows(
            draft,
            spans,
            (producer, topic_id, share.partition),
            share.sequence,
            offset=offset,
            rows=share.rows,
            txn=action.txn,
            version=at.version,
        )
    offsets = tuple(
        TopicRange(topic, partition, start, end)
        for (topic, partition), found in sorted(spans.items())
        for start, end in (found if len(found) == 1 else ranges.normalize(found))
    )
    return offsets, tuple(dict.fromkeys(dropped))


def _claim(draft: Draft, share: Share) -> tuple[int, int]:
    """The next rows of a shared segment's slice belong to this commit. Returns topic and first offset."""
    segment = draft.segments.get(share.segment)
    claimed = draft.claims.get((share.segment, share.partition))
    if segment is None or claimed is None:
        raise InvalidInputError(
            f"segment {share.segment} has no shared rows of partition {share.partition} in this entry"
        )
    item = next(found for found in segment.slices if found.partition == share.partition)
    assert item.offset is not None, "a shared segment is visible at once"
    if share.rows <= 0 or claimed + share.rows > item.rows:
        raise InvalidInputError(
            f"segment {share.segment} has {item.rows} rows of partition {share.partition}, not more"
        )
    draft.claims.put((share.segment, share.partition), claimed + share.rows)
    return segment.topic, item.offset + claimed


def _note_rows(
    draft: Draft,
    spans: dict[tuple[int, int], list[tuple[int, int]]],
    place: tuple[str | None, int, int],
    sequence: int | None,
    *,
    offset: int,
    rows: int,
    txn: int,
    version: int,
) -> None:
    producer, topic, partition = place
    spans.setdefault((topic, partition), []).append((offset, offset + rows))
    if sequence is None:
        return
    if producer is None:
        raise InvalidInputError("sequences belong to a named producer")
    key = (producer, topic, partition)
    known = draft.sequences.get(key)
    if known is not None and sequence != known.last + 1:
        raise OutOfOrderSequence(
            f"the producer {producer!r} is at sequence {known.last} in partition {partition}; "
            f"{sequence} does not follow it"
        )
    batch = Batch(producer, topic, partition, sequence, rows, offset, version, txn)
    recent = (*(known.recent if known is not None else ()), batch)[-RECENT_BATCHES:]
    draft.sequences.put(key, Sequences(sequence + rows - 1, recent))
    draft.batches.put((producer, topic, partition, sequence), batch)


def check_claims(draft: Draft) -> None:
    """At the end of an entry: every row of its shared segments belongs to a commit."""
    for (number, partition), claimed in draft.claims.items():
        segment = draft.segments.get(number)
        assert segment is not None, "claims are made with their segment"
        rows = next(item.rows for item in segment.slices if item.partition == partition)
        if claimed != rows:
            raise InvalidInputError(
                f"segment {number} has {rows} rows of partition {partition}, its commits claim {claimed}"
            )


def abort(draft: Draft, action: Abort, at: Header) -> None:
    """A transaction ends without effect, also one that the log has not shown: late data of it is only garbage."""
    transaction = draft.transactions.get(action.txn)
    if transaction is None:
        refuse_ended(draft, action.txn)
        numbers.use(draft, action.txn, at)
        draft.outcomes.put(action.txn, Outcome(action.txn, "ABORTED", at.version, at.timestamp_ms, action.reason))
        return
    if transaction.state == "PREPARED" and action.reason not in {"user", "admin"}:
        raise InvalidTransactionState(f"the transaction {action.txn} is PREPARED: only a decision ends it")
    end_aborted(draft, action.txn, at, action.reason)


def end_aborted(draft: Draft, number: int, at: Header, reason: AbortReason) -> None:
    """End an open or prepared transaction without effect."""
    transaction = draft.transactions.get(number)
    assert transaction is not None, "only a transaction that has not ended can be ended"
    for segment_number in transaction.segments:
        segment = draft.segments.get(segment_number)
        assert segment is not None, "a transaction lists only segments that the state holds"
        draft.segments.put(segment_number, msgspec.structs.replace(segment, state="aborted", ended_version=at.version))
    acknowledgements.settle(draft, number, transaction.held, committed=False)
    _forget(draft, transaction)
    draft.outcomes.put(number, Outcome(number, "ABORTED", at.version, at.timestamp_ms, reason))


def _forget(draft: Draft, transaction: TransactionRecord | None) -> None:
    if transaction is None:
        return
    draft.transactions.remove(transaction.number)
    if transaction.producer is not None:
        producer = draft.producers.get(transaction.producer)
        if producer is not None and transaction.number in producer.open:
            left = tuple(number for number in producer.open if number != transaction.number)
            draft.producers.put(producer.name, msgspec.structs.replace(producer, open=left))


def replace_segments(draft: Draft, action: Replace, at: Header) -> None:
    """Visible segments give way to the pending ones of a transaction: the same rows at the same offsets.

    Each new segment has one slice; ``offsets`` names its first offset, in the order of the transaction's segments.
    """
    transaction = _open(draft, action.txn)
    if len(transaction.segments) != len(action.offsets):
        raise InvalidInputError(f"{len(action.offsets)} offsets for {len(transaction.segments)} segments")
    topic = draft.topics.get(action.topic)
    if topic is None or topic.dropped_version is not None:
        raise TopicNotFound(f"no topic with the id {action.topic}")
    for number in action.removed:
        known = draft.segments.get(number)
        if draft.removals.get(number) is not None or (known is not None and known.state != "visible"):
            raise InvalidTransactionState(f"segment {number} is not visible")
        draft.removals.put(number, at.version)
    for number, offset in zip(transaction.segments, action.offsets, strict=True):
        segment = draft.segments.get(number)
        assert segment is not None, "a transaction lists only segments that the state holds"
        if segment.topic != action.topic or len(segment.slices) != 1:
            raise InvalidInputError(f"segment {number} cannot replace others")
        item = segment.slices[0]
        if offset + item.rows > (draft.ends.get((action.topic, item.partition)) or 0):
            raise InvalidInputError(f"segment {number} would lie behind the end of partition {item.partition}")
        draft.segments.put(
            number,
            msgspec.structs.replace(
                segment,
                slices=(SegmentSlice(item.partition, item.rows, offset),),
                state="visible",
                ended_version=at.version,
                timestamp_ms=at.timestamp_ms,
            ),
        )
    _forget(draft, transaction)
    draft.outcomes.put(action.txn, Outcome(action.txn, "COMMITTED", at.version, at.timestamp_ms, "", "", ()))


__all__ = [
    "abort",
    "acknowledge",
    "add_segment",
    "begin",
    "check_claims",
    "check_producer",
    "commit",
    "end_aborted",
    "forget_app",
    "outcome_error",
    "prepare",
    "refuse_ended",
    "replace_segments",
    "start_producer",
]
