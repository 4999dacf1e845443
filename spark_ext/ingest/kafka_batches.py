"""The micro-batches of an ingestion from Kafka: one job for all partitions, and a transaction for each of them.

Whether a message is in the log already, the log alone says. Spark's checkpoint says what a batch reads, and it may be
older than the log (a copy, or a driver that died between the two), or be lost: what the log has is left out. One that
is ahead of the log, such as that of another namespace, is refused, since its messages would be missing.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from spark_ext.ingest.kafka_frames import Rows, from_offsets, with_source
from spark_ext.ingest.kafka_options import partition_offsets, went_back
from spark_ext.ingest.positions import Ingestion, Part, Position, check_positions, commit_parts, made_again, positions
from spark_ext.streaming.batch_errors import reaching_spark
from spark_ext.write import write_jobs
from spark_ext.write.frame_jobs import frame_job
from spark_ext.write.task_writer import SOURCE_COLUMN, WrittenSegment
from txnlog.api.internals import connection_of
from txnlog.errors import Durable, InvalidInputError, OffsetOutOfRange, TransactionConflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_ext.ingest.kafka_cluster import KafkaCluster
    from spark_ext.streaming.query_checkpoint import Checkpoint
    from spark_ext.write.task_writer import JobNumbers
    from txnlog.api.namespace import Namespace
    from txnlog.common.ids import TxnId
    from txnlog.fold.state import TopicRecord
    from txnlog.format.actions import Segment

_logger: Final = logging.getLogger("txnlog.spark")

_AFTER_A_DROP: Final = "create it again, and give the ingestion another name (name=...) and a new checkpoint"


@dataclass(frozen=True, slots=True)
class Range:
    """What a batch reads of a partition: from ``start`` up to ``end``, of which the log has what is below ``begin``."""

    begin: int
    start: int
    end: int

    @property
    def is_done(self) -> bool:
        """Whether the log has all of it."""
        return self.end <= self.begin


def epoch_of(ns: Namespace, name: str) -> int:
    """A new epoch of an ingestion, which fences older runs. Raises OutcomeUnknown."""
    epoch = ns.producer(name).epoch
    assert epoch is not None, "a named producer has one"
    return epoch


@dataclass(eq=False)
class KafkaBatches:
    """One run of an ingestion, which lives as long as the run.

    Attributes:
        ns: where the rows go.
        storage: storage options as tasks get them; they may have passwords.
        checkpoint: of the query.
        ingestion: what its positions stand for, without an epoch.
        subscribe: the Kafka topics.
        rows: how rows are made.
        cluster: asked before each commit whether the topics are still the same.
        query: once it has started.
    """

    ns: Namespace
    storage: str = field(repr=False)
    checkpoint: Checkpoint
    ingestion: Ingestion
    subscribe: frozenset[str]
    rows: Rows
    cluster: KafkaCluster
    query: StreamingQuery | None = None
    _taking: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _owner: Ingestion | None = field(default=None, repr=False)

    def take_over(self) -> Ingestion:
        """The ingestion with the epoch of this run, which fences older ones: one, when Spark runs the query.

        Whatever Spark refuses, it refuses before that, and an older run goes on.
        """
        with self._taking:
            if self._owner is None:
                self._owner = replace(self.ingestion, epoch=epoch_of(self.ns, self.ingestion.name))
            return self._owner

    def run(self, df: DataFrame, batch_id: int) -> None:
        """What Spark calls with each micro-batch."""
        with reaching_spark(self.query, batch_id):
            self._run(df, batch_id, self.take_over())

    def _run(self, df: DataFrame, batch_id: int, ingestion: Ingestion) -> None:
        connection, name = connection_of(self.ns), ingestion.name
        connection.follower.refresh()
        connection.check_producer(name, ingestion.epoch)
        moved = self._moved(batch_id)
        known = positions(self.ns, name, moved)
        check_positions(self.ns, ingestion, known)
        ranges = {part: self._range(part, start, end, known.get(part)) for part, (start, end) in moved.items()}
        wanted = {part: found for part, found in ranges.items() if not found.is_done}
        if not wanted:
            if moved:
                _logger.info("batch %d of %r was committed before", batch_id, name)
            return
        written, numbers = self._write(df, wanted)
        connection.follower.refresh()  # the job took its time
        self._check_targets({item.topic for items in written.values() for item in items})
        self._check_sources()
        work = {
            part: (wanted[part].end, partial(_segments, written.get(place, []), numbers))
            for place, part in enumerate(wanted)
        }
        done = commit_parts(self.ns, ingestion, work)
        rows = sum(item.rows for items in written.values() for item in items)
        version = max(result.version for result in done.values())
        _logger.info("batch %d of %r: %d rows of %d partitions at version %d", batch_id, name, rows, len(done), version)
        dropped = sorted({topic for result in done.values() for topic in result.dropped})
        if dropped:
            raise TransactionConflict(
                f"batch {batch_id} of {name!r} is committed at version {version} without its rows of what was dropped "
                f"meanwhile: {', '.join(dropped)}",
                advice=_AFTER_A_DROP,
                durable=Durable.MAYBE,
            )

    def _moved(self, batch_id: int) -> dict[Part, tuple[int, int]]:
        """Of each partition from which the batch reads, where it begins and ends, by the query's checkpoint.

        Raises:
            OffsetOutOfRange: a partition ends below where it begins, or is gone: Spark's source only warns of that
                where losses are accepted, and goes on with offsets that the log has for other messages.
            InvalidInputError: the batch is of a topic that is not subscribed to.
        """
        ends = self._offsets(batch_id)
        starts = self._offsets(batch_id - 1) if batch_id else self._initial()
        moved: dict[Part, tuple[int, int]] = {}
        for part in sorted({*starts, *ends}):
            # One that the batch before did not know was added to its topic, and begins with its first message.
            start, end = starts.get(part, 0), ends.get(part)
            if part.topic not in self.subscribe:
                if end is not None and end != start:
                    raise InvalidInputError(
                        f"batch {batch_id} of the checkpoint has messages of the {part}, which subscribe does not name",
                        advice="name it, or begin with a new checkpoint: the log has where the ingestion continues",
                        durable=Durable.NOTHING,
                    )
                continue
            if end is None or end < start:
                now = "is gone" if end is None else f"ends at offset {end}"
                raise went_back(f"the {part} {now}, and had messages up to {start} before")
            if end > start:
                moved[part] = start, end
        return moved

    def _offsets(self, batch_id: int) -> dict[Part, int]:
        offsets = self.checkpoint.offsets(batch_id)
        if offsets is None:
            raise InvalidInputError(
                f"{self.checkpoint.location} does not hold the offsets of batch {batch_id}",
                advice="the checkpoint must be one that this process can read; begin with a new one: the log has where "
                "the ingestion continues",
            )
        texts = list(offsets.sources.values())
        if len(texts) != 1 or texts[0] is None:
            raise self._not_ours()
        return self._parts(texts[0])

    def _initial(self) -> dict[Part, int]:
        """Where the first batch of the checkpoint began."""
        text = self.checkpoint.initial_offsets()
        if text is None:
            raise self._not_ours()
        return self._parts(text)

    def _parts(self, text: str) -> dict[Part, int]:
        try:
            found = partition_offsets(text)
        except ValueError:
            raise self._not_ours() from None
        return {Part(topic, number): offset for topic, parts in found.items() for number, offset in parts.items()}

    def _not_ours(self) -> InvalidInputError:
        return InvalidInputError(
            f"{self.checkpoint.location} is not the checkpoint of an ingestion from Kafka",
            advice="begin with a new checkpoint: the log has where the ingestion continues",
        )

    def _range(self, part: Part, start: int, end: int, position: Position | None) -> Range:
        begin = 0 if position is None else position.offset
        if start > begin:
            raise OffsetOutOfRange(
                f"the checkpoint continues in the {part} at offset {start}, and the log has the ingestion "
                f"{self.ingestion.name!r} up to {begin} alone: the messages between would be missing",
                advice="begin with a new checkpoint: the ingestion continues where the log is",
                durable=Durable.NOTHING,
            )
        return Range(begin, start, end)

    def _write(self, df: DataFrame, wanted: Mapping[Part, Range]) -> tuple[dict[int, list[WrittenSegment]], JobNumbers]:
        """The files of the batch by the place of their partition, and the numbers of the job."""
        record = self.record
        parts = list(wanted)
        least = {part: found.begin for part, found in wanted.items() if found.start < found.begin}
        frame = self.rows.of(from_offsets(with_source(df, parts), least), record)
        planned = write_jobs.planned_for(record, without_source(frame))
        spec = planned.spec(self.ns, self.storage, tuple(part.partition for part in parts))
        written: dict[int, list[WrittenSegment]] = defaultdict(list)
        for item in frame_job(frame, planned.record, spec, without_python=True).run(self.ns):
            written[item.source].append(item)
        return written, spec.numbers

    @property
    def record(self) -> TopicRecord | None:
        """The topic that the rows go to: by its id, as another one may have its name by now."""
        target = self.ingestion.target
        return None if target is None else connection_of(self.ns).topic_record_by_id(target)

    def _check_targets(self, topics: set[int]) -> None:
        """Raise TransactionConflict where a topic was dropped while the batch was written."""
        own = self.ingestion.target
        for topic in sorted(topics if own is None else {own}):
            write_jobs.check_there(self.ns, topic, "its rows were written", advice=_AFTER_A_DROP)

    def _check_sources(self) -> None:
        """Raise where a topic of Kafka was created again while the batch was read: whose messages these are is open."""
        names = list(self.ingestion.topics)
        if not names:
            return  # a broker that gives no ids
        now = self.cluster.ids(names)
        for name in names:
            if now.get(name) != self.ingestion.topics[name]:
                raise made_again(self.ingestion.name, name)


def without_source(frame: DataFrame) -> StructType:
    """The columns of a frame as a topic gets them."""
    return StructType([field for field in frame.schema.fields if field.name != SOURCE_COLUMN])


def _segments(written: list[WrittenSegment], numbers: JobNumbers, txn: TxnId) -> list[Segment]:
    return write_jobs.segments_of(written, numbers, txn.number)


__all__ = ["KafkaBatches", "Range", "epoch_of", "without_source"]
