"""Sequences of named producers: they advance when rows become visible, without gaps, and PREPARED ones are reserved.

They belong to the name and go on across epochs (PROTOCOL.md, "Producers"). What is checked here is that none is left
out or used twice; that a repeated batch is the answer of the first time, and no error, is decided before, by its
command (txnlog.log.transaction_commands).
"""

from __future__ import annotations

from collections.abc import Iterable

from txnlog.common.format_limits import MAX_NUMBER, MAX_SEQUENCES, RECENT_BATCHES
from txnlog.errors import InvalidInputError, LimitExceeded, OutOfOrderSequence
from txnlog.fold.state import Batch, Draft, SegmentRecord, Sequences, TransactionRecord

Place = tuple[str, int, int]
"""Producer, topic, partition."""


def check_pending(draft: Draft, transaction: TransactionRecord, producer: str) -> None:
    """Raise OutOfOrderSequence unless the transaction's pending rows could become visible now."""
    following: dict[Place, int] = {}
    for segment in pending_segments(draft, transaction):
        for item in segment.slices:
            if item.sequence is not None:
                place = (producer, segment.topic, item.partition)
                _check(draft, place, (item.sequence, item.rows), transaction.number, following.get(place))
                following[place] = item.sequence + item.rows


def pending_segments(draft: Draft, transaction: TransactionRecord) -> list[SegmentRecord]:
    """The segments of a transaction that has not ended, in the order they were logged."""
    found = [draft.segments.get(number) for number in transaction.segments]
    result = [segment for segment in found if segment is not None]
    assert len(result) == len(found), "a transaction lists only segments that the state holds"
    return result


def note(draft: Draft, producer: str | None, batch: Batch) -> None:
    """A sequenced batch became visible: the sequence advances. Raises OutOfOrderSequence."""
    if producer is None:
        raise InvalidInputError("sequences belong to a named producer")
    place = (producer, batch.topic, batch.partition)
    _check(draft, place, (batch.sequence, batch.rows), batch.txn)
    known = draft.sequences.get(place)
    recent = (*(known.recent if known is not None else ()), batch)[-RECENT_BATCHES:]
    draft.sequences.put(place, Sequences(batch.sequence + batch.rows - 1, recent))
    draft.batches.put((*place, batch.sequence), batch)


def check_room(draft: Draft, producer: str | None, topic: int, partitions: Iterable[int]) -> None:
    """Raise LimitExceeded for one (producer, topic, partition) too many; asked before its first rows are logged."""
    for partition in partitions:
        if draft.sequences.get((producer or "", topic, partition)) is None and len(draft.sequences) >= MAX_SEQUENCES:
            raise LimitExceeded(
                f"the namespace remembers sequences of {MAX_SEQUENCES:,} producers and partitions",
                advice="use fewer producer names, or leave sequences out",
            )


def check_end(producer: str | None, partition: int, sequence: int, rows: int) -> None:
    """Raise LimitExceeded for a batch behind which no sequence is left. Only writers ask: older logs may have one."""
    if sequence + rows > MAX_NUMBER:
        raise LimitExceeded(
            f"sequences end at {MAX_NUMBER - 1:,}: the producer {producer!r} cannot have {rows:,} rows from sequence "
            f"{sequence:,} on in partition {partition}",
            advice="number rows from 0 on; where the sequences of a name are used up, use another producer name",
        )


def before_first(producer: str, partition: int, sequence: int) -> OutOfOrderSequence:
    """The error for rows below the first sequence that a producer ever made visible: no batch was ever there."""
    return OutOfOrderSequence(
        f"the producer {producer!r} began above sequence {sequence} in partition {partition}: it is no repetition, and "
        "sequences do not go back"
    )


def repeated_rows(place: Place, known: Sequences, sequence: int, rows: int) -> OutOfOrderSequence:
    """The error for rows at or below the last visible sequence, all or a part: they must not be written anew."""
    producer, _, partition = place
    last = sequence + rows - 1
    done = f"{sequence} to {min(last, known.last)} were committed before"
    if last <= known.last:
        what, advice = f"{sequence} does not follow it", "do not write these rows again"
        advice += f"; new ones begin at sequence {known.last + 1}"
    else:
        what = f"the batch {sequence} to {last} repeats a part"
        advice = f"leave out its rows up to sequence {known.last}: only those from {known.last + 1} on are new"
    if not any(batch.sequence <= sequence for batch in known.recent):
        done += ", unless this producer began above them"
        advice = f"read the topic for these rows; those that are not there take sequences from {known.last + 1} on"
    return OutOfOrderSequence(
        f"the producer {producer!r} is at sequence {known.last} in partition {partition}; {what}: {done}", advice=advice
    )


def _check(draft: Draft, place: Place, rows: tuple[int, int], txn: int, following: int | None = None) -> None:
    producer, topic, partition = place
    sequence, count = rows
    known = draft.sequences.get(place)
    expected = following if following is not None else known.last + 1 if known is not None else sequence
    if known is not None and sequence <= known.last:
        raise repeated_rows(place, known, sequence, count)
    if sequence != expected:
        raise OutOfOrderSequence(
            f"the producer {producer!r} is at sequence {expected - 1} in partition {partition}; "
            f"{sequence} does not follow it"
        )
    record = draft.producers.get(producer)
    for number in record.open if record is not None else ():
        other = draft.transactions.get(number)
        assert other is not None, "a producer lists only transactions that have not ended"
        if number != txn and other.state == "PREPARED" and _bears_sequences(draft, other, topic, partition):
            raise OutOfOrderSequence(
                f"the transaction {draft.txn_id(number)}, which is PREPARED, reserves sequences of the "
                f"producer {producer!r} in partition {partition}",
                advice="complete the prepared transaction first",
            )


def _bears_sequences(draft: Draft, transaction: TransactionRecord, topic: int, partition: int) -> bool:
    return any(
        item.partition == partition and item.sequence is not None
        for segment in pending_segments(draft, transaction)
        if segment.topic == topic
        for item in segment.slices
    )


__all__ = ["before_first", "check_end", "check_pending", "check_room", "note", "pending_segments", "repeated_rows"]
