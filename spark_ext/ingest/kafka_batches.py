"""The micro-batches of an ingestion from Kafka: one job and one transaction for all partitions.

Whether a message is in the log already, the log alone says. Where a batch begins and ends, Spark says; a batch whose
beginning the log has is cut, and one that would leave messages out is refused.

A run owns the ingestion from its first commit on, and fences older runs just before that: when the rows of its first
batch are in files. Whatever ends it earlier, such as an option that only its tasks look at, ends no other run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from spark_ext.ingest.kafka_frames import Rows, from_offsets, with_source
from spark_ext.ingest.offset_json import partition_offsets
from spark_ext.ingest.position_checks import check_ids, check_positions, went_back
from spark_ext.ingest.position_commits import commit_batch, note_starts
from spark_ext.ingest.positions import START_AGAIN, IngestedPosition, Ingestion, TopicPartition, positions
from spark_ext.streaming.batch_errors import reaching_spark
from spark_ext.streaming.query_checkpoint import Checkpoint
from spark_ext.write import write_jobs
from spark_ext.write.frame_jobs import frame_job
from spark_ext.write.task_writer import SOURCE_COLUMN, WrittenSegment
from txnlog.api.internals import connection_of
from txnlog.errors import Durable, OffsetOutOfRange, ProducerFenced, RetriableError
from txnlog.fold.producers import fenced
from txnlog.format.actions import Producer
from txnlog.log.commands import Simple, one_start_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_ext.ingest.kafka_cluster import KafkaCluster
    from spark_ext.write.task_writer import JobNumbers
    from txnlog.api.namespace import Namespace
    from txnlog.fold.state import Draft, ProducerRecord, TopicRecord
    from txnlog.format.actions import Header

_logger: Final = logging.getLogger("txnlog.spark")


@dataclass(frozen=True, slots=True)
class Starts:
    """Where a run begins.

    Attributes:
        offsets: the first offset of each partition that its query reads.
        new: those of topics that the log does not know, which it is to remember.
        lost: the partitions of which messages are gone, which the caller accepts: they begin behind their positions.
        epoch: of the run that was the owner when this one began; None where there was none.
    """

    offsets: Mapping[TopicPartition, int]
    new: Mapping[TopicPartition, int]
    lost: frozenset[TopicPartition]
    epoch: int | None


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What a batch reads of a partition: from ``start`` up to ``end``, of which the log has what is below ``begin``."""

    begin: int
    start: int
    end: int

    @property
    def is_done(self) -> bool:
        """Whether the log has all of it."""
        return self.end <= self.begin


def epoch_of(ns: Namespace, name: str, before: int | None) -> int:
    """A new epoch of an ingestion, which fences older runs.

    Raises:
        ProducerFenced: ``before`` is not the newest one. Nobody is fenced.
        OutcomeUnknown: older runs may be fenced.
    """

    def decide(draft: Draft, _at: Header) -> list[Producer]:
        # Here, as the log may have moved on since this client read it: nothing comes behind the end of an ingestion.
        _check_epoch(name, before, draft.producers.get(name))
        return [Producer(name)]

    return connection_of(ns).appender.call(Simple(decide, lambda _draft, at: at.version, one_start_of(name)))


def _check_epoch(name: str, epoch: int | None, newest: ProducerRecord | None) -> None:
    """Raise ProducerFenced where a run that has not taken over began before another one did."""
    if (None if newest is None else newest.epoch) == epoch:
        return
    if newest is not None and newest.fenced_by:
        raise fenced(name, epoch, newest)  # there is no other run
    raise ProducerFenced(
        f"another run of the ingestion {name!r} has taken over since this one began",
        advice="let that one run; or stop it, and start this one again",
    )


@dataclass(eq=False)
class KafkaBatches:
    """One run of an ingestion, which lives as long as the run.

    Attributes:
        ns: where the rows go.
        storage: storage options as tasks get them; they may have passwords.
        folder: the checkpoint of the query, which is this run's alone.
        ingestion: what its positions stand for, without an epoch.
        starts: where it begins.
        rows: how rows are made.
        cluster: asked before each commit whether the topics are still the same.
        query: once it has started.
    """

    ns: Namespace
    storage: str = field(repr=False)
    folder: Path
    ingestion: Ingestion
    starts: Starts
    rows: Rows
    cluster: KafkaCluster
    query: StreamingQuery | None = None
    _beginning: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _agrees: bool | None = field(default=None, repr=False)
    _owner: Ingestion | None = field(default=None, repr=False)
    _next: int = field(default=0, repr=False)
    _reached: dict[TopicPartition, int] = field(default_factory=dict, repr=False)

    def begin(self) -> bool:
        """Let the log remember where new topics begin, once Spark runs the query: a call that it refuses says nothing.

        Returns whether the query begins there. Another run, which was first, may have begun at lower offsets.
        """
        with self._beginning:
            if self._agrees is None:
                new = self.starts.new
                if new:
                    note_starts(self.ns, self.ingestion, new)
                known = positions(self.ns, self.ingestion.name, new)
                check_positions(self.ns, self.ingestion, known)
                self._agrees = all(known[part].offset >= offset for part, offset in new.items())
            return self._agrees

    def run(self, df: DataFrame, batch_id: int) -> None:
        """What Spark calls with each micro-batch."""
        with reaching_spark(self.query, batch_id):
            self.begin()
            self._run(df, batch_id)

    def _run(self, df: DataFrame, batch_id: int) -> None:
        ends = self._ends(batch_id)
        moved = self._moved(ends, first=batch_id == 0)
        while True:
            known = self._positions(ends)
            ranges = {part: self._range(part, start, end, known.get(part)) for part, (start, end) in moved.items()}
            wanted = {part: found for part, found in ranges.items() if not found.is_done}
            if not wanted:
                if moved:
                    _logger.info("batch %d of %r was committed before", batch_id, self.ingestion.name)
                break
            written, numbers = self._write(df, wanted)
            connection_of(self.ns).follower.refresh()  # the job took its time
            self._check_targets({item.topic for item in written})
            self._check_sources()
            if self._owner is None:
                self._take_over()
                if self._positions(ends) != known:
                    continue  # an older run committed messages meanwhile, and can commit no more
            self._commit(batch_id, wanted, written, numbers)
            break
        self._reached, self._next = dict(ends), batch_id + 1

    def _positions(self, parts: Collection[TopicPartition]) -> dict[TopicPartition, IngestedPosition]:
        """Where the log is. Raises ProducerFenced where a newer run has taken over, or another one since it began."""
        connection, name = connection_of(self.ns), self.ingestion.name
        connection.follower.refresh()
        self._check_owner()
        known = positions(self.ns, name, parts)
        check_positions(self.ns, self.ingestion, known)
        return known

    def _check_owner(self) -> None:
        connection, name = connection_of(self.ns), self.ingestion.name
        if self._owner is not None:
            connection.check_producer(name, self._owner.epoch)
        else:
            _check_epoch(name, self.starts.epoch, connection.producer_record(name))

    def _take_over(self) -> None:
        """Become the owner: older runs are fenced from here on."""
        epoch = epoch_of(self.ns, self.ingestion.name, self.starts.epoch)
        self._owner = replace(self.ingestion, epoch=epoch)

    def _commit(
        self,
        batch_id: int,
        wanted: Mapping[TopicPartition, OffsetRange],
        written: Sequence[WrittenSegment],
        numbers: JobNumbers,
    ) -> None:
        assert self._owner is not None, "it has taken over"
        ends = {part: found.end for part, found in wanted.items()}
        segments = partial(write_jobs.segments_of, written, numbers)
        version = commit_batch(self.ns, self._owner, ends, segments, if_dropped=self._after_a_drop)
        _logger.info(
            "batch %d of %r: %d rows of %d partitions at version %d",
            batch_id,
            self.ingestion.name,
            sum(item.rows for item in written),
            len(ends),
            version,
        )

    def _moved(self, ends: Mapping[TopicPartition, int], *, first: bool) -> dict[TopicPartition, tuple[int, int]]:
        """Of each partition from which the batch reads, where it begins and ends.

        Raises:
            OffsetOutOfRange: a partition ends below where it begins, or is gone: Spark's source only warns of that
                where losses are accepted, and goes on with offsets that the log has for other messages.
            InvalidInputError: so it is since its topic was created again.
            RetriableError: Spark's source does not see a partition that is there.
        """
        starts = self.starts.offsets if first else self._reached
        moved: dict[TopicPartition, tuple[int, int]] = {}
        for part in sorted({*starts, *ends}):
            # One that the batch before did not know was added to its topic, and begins with its first message.
            start, end = starts.get(part, 0), ends.get(part)
            if end is None or end < start:
                self._check_sources()
                if end is None:
                    self._check_gone(part)
                now = "is gone" if end is None else f"ends at offset {end}"
                raise went_back(self.ingestion.name, part, f"{now}, and had messages up to {start} before")
            if end > start or (first and part in self.starts.lost):
                moved[part] = start, end
        return moved

    def _ends(self, batch_id: int) -> dict[TopicPartition, int]:
        """Where a batch ends, by the plan of Spark's. All before it were run: so it is known where it begins.

        Raises:
            OffsetOutOfRange: a batch was left out, or its plan cannot be read.
        """
        offsets = Checkpoint(str(self.folder)).offsets(batch_id)
        texts = [] if offsets is None else list(offsets.sources.values())
        if batch_id != self._next or len(texts) != 1 or texts[0] is None:
            raise OffsetOutOfRange(
                f"what batch {batch_id} reads is not known: {self._next} comes next, and its plan in {self.folder} has "
                f"offsets of {len(texts)} sources",
                advice=START_AGAIN,
                durable=Durable.NOTHING,
            )
        found = partition_offsets(texts[0])
        return {
            TopicPartition(topic, number): offset for topic, parts in found.items() for number, offset in parts.items()
        }

    def _range(self, part: TopicPartition, start: int, end: int, position: IngestedPosition | None) -> OffsetRange:
        begin = 0 if position is None else position.offset
        if start > begin and not (part in self.starts.lost and start == self.starts.offsets[part]):
            raise OffsetOutOfRange(
                f"the query continues in the {part} at offset {start}, and the log has the ingestion "
                f"{self.ingestion.name!r} up to {begin} alone: the messages between would be missing",
                advice=START_AGAIN,
                durable=Durable.NOTHING,
            )
        return OffsetRange(begin, start, end)

    def _write(
        self, df: DataFrame, wanted: Mapping[TopicPartition, OffsetRange]
    ) -> tuple[list[WrittenSegment], JobNumbers]:
        """The files of the batch, and the numbers of the job."""
        record = self.record
        parts = list(wanted)
        least = {part: found.begin for part, found in wanted.items() if found.start < found.begin}
        frame = self.rows.of(from_offsets(with_source(df, parts), least), record)
        planned = write_jobs.planned_for(record, without_source(frame))
        spec = planned.spec(self.ns, self.storage, tuple(part.partition for part in parts))
        return frame_job(frame, planned.record, spec, without_python=True).run(self.ns), spec.numbers

    @property
    def record(self) -> TopicRecord | None:
        """The topic that the rows go to: by its id, as another one may have its name by now."""
        target = self.ingestion.target
        return None if target is None else connection_of(self.ns).topic_record_by_id(target)

    def _check_targets(self, topics: set[int]) -> None:
        """Raise TransactionConflict where a topic was dropped while the batch was written."""
        own = self.ingestion.target
        for topic in sorted(topics if own is None else {own}):
            write_jobs.check_there(self.ns, topic, "its rows were written", advice=self._after_a_drop)

    @property
    def _after_a_drop(self) -> str:
        """What to do about a topic that was dropped: the rows of others, if there are any, must not come again."""
        if self.ingestion.target is None:
            return f"nothing of the batch is there: create it again if it is to get the next ones, and {START_AGAIN}"
        return "create it again, and give the ingestion another name (name=...): it is filled with all that Kafka has"

    def _check_sources(self) -> None:
        """Raise where a topic of Kafka was created again while the batch was read: whose messages these are is open."""
        topics = self.ingestion.topics
        if topics:  # else the broker gives no ids
            check_ids(self.ingestion.name, topics.items(), self.cluster.ids(list(topics)))

    def _check_gone(self, part: TopicPartition) -> None:
        """Raise RetriableError where Kafka has a partition that Spark's source does not see."""
        if part in self.cluster.topics([part.topic]).parts:
            raise RetriableError(
                f"Spark's Kafka source does not see the {part}, which Kafka has: the broker that it asks does not know "
                "of it yet, as when a partition was added a moment ago",
                advice=START_AGAIN,
                durable=Durable.NOTHING,
            )


def without_source(frame: DataFrame) -> StructType:
    """The columns of a frame as a topic gets them."""
    return StructType([field for field in frame.schema.fields if field.name != SOURCE_COLUMN])


__all__ = ["KafkaBatches", "OffsetRange", "Starts", "epoch_of", "without_source"]
