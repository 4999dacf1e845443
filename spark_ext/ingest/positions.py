"""How far an ingestion has come in each partition of Kafka, as the log of the namespace says it.

The log remembers, for ever, the last batch of each stream, and takes no lower one after it. Each partition of a Kafka
topic is such a stream here: the number of a batch is the offset behind the last message that it stands for, its query
is the id of the Kafka topic, and its digest is the topic that the rows go to. So the position is in the same commit as
the rows, and needs no place of its own: neither a folder of Spark's nor a topic.

Where an ingestion begins in the partitions of a topic is logged before its first commit, for all of them in one entry.
So a topic is begun or it is not; and a partition without a position in a topic that is begun was added: it is at offset
0.

Offsets are no sequences of a producer, which have no gaps: Kafka's have, where a transaction ends, where a topic is
compacted, and where retention deleted messages (docs/decisions/0045-where-an-ingestion-has-come.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_ext.write.write_jobs import add_segments
from txnlog.api.internals import connection_of, discard, leave_outcome_open, set_stream
from txnlog.api.writing import begin_transaction
from txnlog.common.names import parse_label
from txnlog.errors import Durable, OutcomeUnknown, TransactionConflict, TxnLogError
from txnlog.format.actions import Commit, StreamBatch
from txnlog.log.commands import Answer, effect
from txnlog.replies import reworded

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.common.ids import TxnId
    from txnlog.fold.state import Draft
    from txnlog.format.actions import Header, Segment
    from txnlog.results import Committed

NO_ID: Final = "kafka"
"""In place of the id of a topic, where the broker gives none."""

BY_ROW: Final = "by row"
"""In place of the topic that rows go to, where each row says it."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A partition of a Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the Kafka topic {self.topic!r}"


@dataclass(frozen=True, slots=True)
class Ingestion:
    """An ingestion by its name, and what its positions stand for.

    Attributes:
        name: the producer of its transactions, and the beginning of the identities of its streams.
        topics: the ids of the Kafka topics by their names; empty where the broker gives none.
        target: the id of the topic that the rows go to; None where each row says it.
        epoch: of the producer, once this run of the ingestion has taken over; a newer run has a higher one, and this
            one cannot commit any more.
    """

    name: str
    topics: Mapping[str, str]
    target: int | None = None
    epoch: int | None = None

    def batch(self, part: Part, offset: int) -> StreamBatch:
        """The position of a partition, as a commit has it. Raises NameNotAllowed."""
        target = BY_ROW if self.target is None else str(self.target)
        return StreamBatch(stream_of(self.name, part), self.topics.get(part.topic, NO_ID), offset, target)


@dataclass(frozen=True, slots=True)
class Position:
    """The offset up to which messages are in the log (excluded), the id of the Kafka topic, and where the rows went."""

    offset: int
    topic_id: str
    target: str


def stream_of(name: str, part: Part) -> str:
    """The identity of the stream that a partition is. Raises NameNotAllowed."""
    return parse_label("name of the ingestion with topic and partition", f"{name}/{part.topic}/{part.partition}")


def positions(ns: Namespace, name: str, parts: Iterable[Part]) -> dict[Part, Position]:
    """The positions of the partitions whose topic is begun, as this client knows the log."""
    connection = connection_of(ns)
    found: dict[Part, Position] = {}
    for part in parts:
        record = connection.stream(stream_of(name, part))
        if record is not None:
            found[part] = Position(record.batch, record.query, record.offsets_digest)
        elif (first := connection.stream(stream_of(name, Part(part.topic, 0)))) is not None:
            found[part] = Position(0, first.query, first.offsets_digest)  # it was added later
    return found


def ingestions(ns: Namespace) -> dict[str, dict[Part, int]]:
    """All ingestions by name, with their positions, as this client knows the log."""
    found: dict[str, dict[Part, int]] = defaultdict(dict)
    for record in connection_of(ns).follower.look(lambda state: list(state.streams.values())):
        name, *place = record.identity.rsplit("/", 2)  # a Kafka topic has no slash in its name, and a name may have one
        # Streaming queries have identities of their own, which may look like these, and digests of 64 digits.
        is_ours = record.offsets_digest == BY_ROW or (
            record.offsets_digest.isdecimal() and len(record.offsets_digest) < 64
        )
        if len(place) == 2 and place[1].isdecimal() and is_ours:
            found[name][Part(place[0], int(place[1]))] = record.batch
    return dict(found)


# --- commits ----------------------------------------------------------------------------------------------------------


def note_starts(ns: Namespace, ingestion: Ingestion, starts: Mapping[Part, int]) -> None:
    """Let the log remember where topics begin, in one entry. Those that are begun by now stay as they are.

    No epoch is needed for that: whoever comes first says where all begin.

    Raises:
        LimitExceeded: the namespace remembers too many streams, or so many starts do not fit into an entry.
        OutcomeUnknown, StoreError: the log shows whether they are there; the next call finds out.
    """
    connection = connection_of(ns)
    batches = {part: ingestion.batch(part, start) for part, start in starts.items()}
    numbers = dict(zip(batches, connection.appender.take_numbers(len(batches)), strict=True))

    def decide(draft: Draft, _at: Header) -> list[Commit] | Answer[None]:
        topics = {part.topic for part in batches}
        begun = {topic for topic in topics if draft.streams.get(stream_of(ingestion.name, Part(topic, 0))) is not None}
        wanted = [Commit(numbers[part], stream=batch) for part, batch in batches.items() if part.topic not in begun]
        return wanted or Answer(None)

    connection.appender.call(effect(decide))


def commit_parts(
    ns: Namespace, ingestion: Ingestion, parts: Mapping[Part, tuple[int, Callable[[TxnId], list[Segment]]]]
) -> dict[Part, Committed]:
    """Commit rows of partitions, a transaction each: by partition the end of its offsets, and its files.

    All of them are on their way at once, so that they share entries of the log.

    Raises:
        ProducerFenced: a newer run of the ingestion has begun; of some partitions the rows may be committed, and then
            that run has found them.
        TransactionConflict: the log has the position of a partition already, which no other run can have moved on.
        OutcomeUnknown, StoreError: the log shows what is committed, and the next run continues behind that.
    """
    under_way: list[tuple[Part, Transaction, Future[Committed]]] = []
    done: dict[Part, Committed] = {}
    failures: list[Exception] = []
    try:
        for part, (end, segments) in parts.items():
            try:
                txn = begin_transaction(connection_of(ns), ingestion.name, ingestion.epoch, timed_from_log=True)
                try:
                    set_stream(txn, ingestion.batch(part, end))
                    add_segments(txn, segments(txn.id))
                    future = txn.commit_async()
                except Exception:
                    discard(txn)
                    raise
                under_way.append((part, txn, future))
            except Exception as failure:  # noqa: BLE001 - the worst one of all is raised
                failures.append(failure)
                break
    finally:
        # Whatever becomes of one of them, all outcomes are waited for: none may come behind what this call raises.
        for part, txn, future in under_way:
            try:
                result = future.result()
                if result.skipped:
                    raise _not_committed(part)
                done[part] = result
            except Exception as failure:  # noqa: BLE001 - as above
                failures.append(failure)
                if isinstance(failure, OutcomeUnknown):
                    leave_outcome_open(txn)
    if failures:
        raise _worst(failures, len(done), len(parts))
    return done


def _not_committed(part: Part) -> TransactionConflict:
    """The error for rows that the log did not take since it has a position as high: they may be there, or not."""
    return TransactionConflict(
        f"the rows of the {part} were not committed, since the log has it up to there",
        advice="start the ingestion again: it continues where the log is",
        durable=Durable.NOTHING,
    )


def _worst(failures: list[Exception], done: int, count: int) -> Exception:
    """One error for commits that failed: of unknown outcome if any is, and never without those that are there."""
    unknown = [failure for failure in failures if isinstance(failure, OutcomeUnknown)]
    first = unknown[0] if unknown else failures[0]
    if not isinstance(first, TxnLogError) or not (done or unknown):
        return first
    text = f"{first.message}; of the batch's {count} partitions, {done} are committed"
    if unknown:
        text += f", and of {len(unknown)} the outcome is unknown"
    worst = reworded(
        first,
        message=text,
        advice=f"{first.advice}; an ingestion that is started again continues where the log is",
        durable=Durable.MAYBE,
    )
    if isinstance(worst, OutcomeUnknown):
        worst.txn_ids = tuple(number for failure in unknown for number in failure.txn_ids)
    return worst


__all__ = [
    "BY_ROW",
    "NO_ID",
    "Ingestion",
    "Part",
    "Position",
    "commit_parts",
    "ingestions",
    "note_starts",
    "positions",
    "stream_of",
]
