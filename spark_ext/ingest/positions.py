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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import xxhash

from spark_ext.write.write_jobs import dropped_meanwhile, entries_of
from txnlog.api.internals import connection_of, with_kept_statistics
from txnlog.common.format_limits import MAX_TIMEOUT_MS
from txnlog.common.names import parse_label
from txnlog.errors import Durable, TransactionConflict, TxnLogError
from txnlog.format.actions import Commit, StreamBatch
from txnlog.log.commands import Answer, CommandDefaults, effect
from txnlog.log.dropped import is_dropped
from txnlog.log.transaction_commands import CommitCommand, FlushCommand, Opening, Skipped
from txnlog.replies import unknown_outcome

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.client.connection import Connection
    from txnlog.fold.state import Draft, StreamRecord
    from txnlog.format.actions import AnyAction, Header, Segment
    from txnlog.log.commands import SharedNumbers

START_AGAIN: Final = "start the ingestion again: it continues where the log is"

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

    @property
    def target_text(self) -> str:
        """The topic that rows go to, as a position has it."""
        return BY_ROW if self.target is None else str(self.target)

    def batch(self, part: Part, offset: int) -> StreamBatch:
        """The position of a partition, as a commit has it. Raises NameNotAllowed."""
        return StreamBatch(stream_of(self.name, part), self.topics.get(part.topic, NO_ID), offset, self.target_text)


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


def partitions_of_ingestions(ns: Namespace) -> Iterator[tuple[str, Part, StreamRecord]]:
    """Each partition that an ingestion has a position in, with the name of it, as this client knows the log."""
    for record in connection_of(ns).follower.look(lambda state: list(state.streams.values())):
        name, *place = record.identity.rsplit("/", 2)  # a Kafka topic has no slash in its name, and a name may have one
        # Streaming queries have identities of their own, which may look like these, and digests of 64 digits.
        is_ours = record.offsets_digest == BY_ROW or (
            record.offsets_digest.isdecimal() and len(record.offsets_digest) < 64
        )
        if len(place) == 2 and place[1].isdecimal() and is_ours:
            yield name, Part(place[0], int(place[1])), record


def ingestions(ns: Namespace) -> dict[str, dict[Part, int]]:
    """All ingestions by name, with their positions, as this client knows the log."""
    found: dict[str, dict[Part, int]] = defaultdict(dict)
    for name, part, record in partitions_of_ingestions(ns):
        found[name][part] = record.batch
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
    ns: Namespace,
    ingestion: Ingestion,
    parts: Mapping[Part, tuple[int, Callable[[int], list[Segment]]]],
    *,
    if_dropped: str = "",
) -> int:
    """Commit rows of partitions, a transaction each, all of them in one entry; returns its version.

    So the partitions move on together, also where a driver dies: whoever reads the topic with a watermark finds none of
    them ahead of the others. Files that do not fit into one entry are logged before, pending.

    Args:
        ns: where the rows go.
        ingestion: whose run has taken over.
        parts: by partition the end of its offsets, and its files, which belong to the transaction of a number.
        if_dropped: what to do where the topic of a file was dropped.

    Raises:
        ProducerFenced: a newer run of the ingestion has begun.
        TransactionConflict: a topic was dropped; or the log has the position of a partition already, which no other run
            can have moved on.
        LimitExceeded: so many partitions do not fit into an entry.
        OutcomeUnknown, StoreError: the log shows whether it is committed, and the next run continues behind that.

    Nothing is committed, unless the outcome is unknown.
    """
    connection = connection_of(ns)
    times, runtime = connection.session.commit_times, connection.runtime
    commits: list[CommitCommand] = []
    for number, (part, (end, segments)) in zip(
        connection.appender.take_numbers(len(parts)), parts.items(), strict=True
    ):
        opening = _opening(connection, number, ingestion)
        files = tuple(with_kept_statistics(connection, segments(number)))
        topics = {item.topic for item in files}
        digest = xxhash.xxh3_64_hexdigest(",".join(item.checksum for item in files).encode())
        stream = ingestion.batch(part, end)
        commits.append(CommitCommand(opening, digest, segments=files, stream=stream, owned_topics=topics))
    began_ms = runtime.elapsed_ms()
    try:
        with unknown_outcome(START_AGAIN):
            for flushes in _flushes(commits):
                connection.appender.call(_Together(flushes, if_dropped))
            version = connection.appender.call(_Together(commits, if_dropped))
    except TxnLogError as error:
        times.note_failed(error)
        raise
    times.note(runtime.elapsed_ms() - began_ms)
    return version


def _opening(connection: Connection, number: int, ingestion: Ingestion) -> Opening:
    timeout_ms = connection.follower.look(lambda state: state.head.max_timeout_ms) or MAX_TIMEOUT_MS
    now_ms, txn = connection.runtime.now_ms, connection.txn_id(number)
    opening = Opening(txn, now_ms, ingestion.name, ingestion.epoch, timeout_ms=timeout_ms, timed_from_log=True)
    opening.start_clock()
    return opening


def _flushes(commits: Sequence[CommitCommand]) -> Iterator[list[FlushCommand]]:
    """What has to be logged before: nothing where the entry of the commits holds all of their files."""
    openings = {item.segment: commit.opening for commit in commits for item in commit.segments}
    entries = list(entries_of([item for commit in commits for item in commit.segments]))
    if len(entries) < 2:
        return
    for entry in entries:
        by_opening: dict[int, list[Segment]] = defaultdict(list)
        for item in entry:
            by_opening[openings[item.segment].txn].append(item)
        yield [FlushCommand(openings[segments[0].segment], tuple(segments), ()) for segments in by_opening.values()]


@dataclass(frozen=True, slots=True)
class _Together(CommandDefaults):
    """Commands of several transactions, of which an entry has all or none; the answer is its version.

    They are decided by the state before the entry, all of them, so none may depend on what another one does.
    """

    commands: Sequence[CommitCommand | FlushCommand]
    if_dropped: str

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return tuple(command.opening.txn for command in self.commands)

    @property
    def owned_topics(self) -> Collection[int]:  # type: ignore[override]  # of no kind of command but this one
        """See Command."""
        return {item.topic for command in self.commands for item in command.segments}

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[int]:
        """See Command."""
        if not any(draft.outcomes.get(txn) for txn in self.txn_ids):
            for topic in sorted(self.owned_topics):
                if is_dropped(draft, topic):
                    raise dropped_meanwhile(draft.topics.get(topic), "its rows were committed", self.if_dropped)
        decided = [command.decide(draft, at, shared) for command in self.commands]
        answers = [item.value for item in decided if isinstance(item, Answer)]
        if any(isinstance(item, Skipped) for item in answers):
            raise _not_committed()
        if answers:  # an entry whose answer was lost: it has all of them
            return Answer(self.result(draft, at), settled=True)
        return [action for item in decided if not isinstance(item, Answer) for action in item]

    def result(self, draft: Draft, at: Header) -> int:
        """See Command."""
        outcomes = [draft.outcomes.get(txn) for txn in self.txn_ids]
        return max([item.version for item in outcomes if item is not None], default=at.version)


def _not_committed() -> TransactionConflict:
    """The error for rows that the log did not take since it has a position as high: they may be there, or not."""
    return TransactionConflict(
        "the rows of a batch were not committed, since the log has some of its partitions up to there",
        advice=START_AGAIN,
        durable=Durable.NOTHING,
    )


__all__ = [
    "BY_ROW",
    "NO_ID",
    "START_AGAIN",
    "Ingestion",
    "Part",
    "Position",
    "commit_parts",
    "ingestions",
    "note_starts",
    "partitions_of_ingestions",
    "positions",
    "stream_of",
]
