"""The entries of an ingestion: where it begins, each batch with its rows and the ends of its partitions, and its end.

The rows of a batch are one transaction. The log remembers one stream's batch with a commit, and a position is a stream
of its own. So one partition's position is in the commit of the rows, and each other one in a commit that has nothing
else; all of them are in one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import xxhash

from spark_ext.ingest.positions import BY_ROW, NO_ID, START_AGAIN, TopicPartition, end_of, stream_of
from spark_ext.write.write_jobs import dropped_meanwhile, entries_of
from txnlog.api.internals import connection_of, with_kept_statistics
from txnlog.common.format_limits import MAX_TIMEOUT_MS
from txnlog.errors import Durable, TransactionConflict, TxnLogError
from txnlog.format.actions import Commit, Producer, StreamBatch
from txnlog.log.commands import Answer, CommandDefaults, Simple, effect, one_start_of
from txnlog.log.dropped import is_dropped
from txnlog.log.transaction_commands import AbortCommand, CommitCommand, FlushCommand, Opening, Skipped
from txnlog.replies import unknown_outcome

if TYPE_CHECKING:
    from spark_ext.ingest.positions import Ingestion
    from txnlog.api.namespace import Namespace
    from txnlog.client.connection import Connection
    from txnlog.fold.state import Draft
    from txnlog.format.actions import AnyAction, Header, Segment
    from txnlog.log.commands import SharedNumbers

_MOST_FILES: Final = 200
"""The most files in the entry of a batch. With more it takes so long to make that others are always faster."""


def note_starts(ns: Namespace, ingestion: Ingestion, starts: Mapping[TopicPartition, int]) -> None:
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
        begun = {
            topic
            for topic in topics
            if draft.streams.get(stream_of(ingestion.name, TopicPartition(topic, 0))) is not None
        }
        wanted = [Commit(numbers[part], stream=batch) for part, batch in batches.items() if part.topic not in begun]
        return wanted or Answer(None)

    connection.appender.call(effect(decide))


def note_end(ns: Namespace, name: str, fenced_by: str) -> None:
    """Let the log remember that an ingestion was ended, and fence its runs, in one entry.

    A stream remembers it for ever, as it does positions: who fenced a name last is forgotten when it is fenced again.

    Raises OutcomeUnknown, StoreError; a second call does no harm.
    """
    connection = connection_of(ns)
    (number,) = connection.appender.take_numbers(1)
    mark = StreamBatch(end_of(name), NO_ID, 0, BY_ROW)

    def decide(draft: Draft, _at: Header) -> list[Producer | Commit]:
        is_new = draft.streams.get(mark.identity) is None
        return [Producer(name, fenced_by), *([Commit(number, stream=mark)] if is_new else [])]

    connection.appender.call(Simple(decide, lambda _draft, _at: None, one_start_of(name)))


def commit_batch(
    ns: Namespace,
    ingestion: Ingestion,
    ends: Mapping[TopicPartition, int],
    segments: Callable[[int], list[Segment]],
    *,
    if_dropped: str = "",
) -> int:
    """Commit the rows of a batch and the ends of its partitions in one entry; returns its version.

    So the partitions move on together, also where a driver dies: whoever reads the topic with a watermark finds none of
    them ahead of the others. Files that would make that entry long are logged before, pending: it takes little time to
    make then, and so comes in between the entries of other writers.

    Args:
        ns: where the rows go.
        ingestion: whose run has taken over.
        ends: by partition the end of its offsets; at least one.
        segments: the files of the batch, which belong to the transaction of a number.
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
    txn, *others = connection.appender.take_numbers(len(ends))
    files = with_kept_statistics(connection, segments(txn))
    chunks = [files[first : first + _MOST_FILES] for first in range(0, len(files), _MOST_FILES)]
    entries = [entry for chunk in chunks for entry in entries_of(chunk)]
    before = entries if len(entries) > 1 else []
    stream, *streams = [ingestion.batch(part, end) for part, end in ends.items()]
    opening = _opening(connection, txn, ingestion)
    digest = xxhash.xxh3_64_hexdigest(",".join(item.checksum for item in files).encode())
    topics = {item.topic for item in files}
    rows = CommitCommand(opening, digest, segments=tuple(files), stream=stream, owned_topics=topics)
    positions = [Commit(number, stream=item) for number, item in zip(others, streams, strict=True)]
    began_ms = runtime.elapsed_ms()
    try:
        with unknown_outcome(START_AGAIN):
            for entry in before:
                connection.appender.call(FlushCommand(opening, tuple(entry), ()))
            version = connection.appender.call(_BatchCommand(rows, positions, if_dropped))
    except TxnLogError as error:
        times.note_failed(error)
        if before and error.durable is Durable.NOTHING:
            with suppress(TxnLogError):  # else its deadline ends it, or the next run
                connection.appender.call(AbortCommand(txn))
        raise
    times.note(runtime.elapsed_ms() - began_ms)
    return version


def _opening(connection: Connection, number: int, ingestion: Ingestion) -> Opening:
    timeout_ms = connection.follower.look(lambda state: state.head.max_timeout_ms) or MAX_TIMEOUT_MS
    now_ms, txn = connection.runtime.now_ms, connection.txn_id(number)
    opening = Opening(txn, now_ms, ingestion.name, ingestion.epoch, timeout_ms=timeout_ms, timed_from_log=True)
    opening.start_clock()
    return opening


@dataclass(frozen=True, slots=True)
class _BatchCommand(CommandDefaults):
    """The commit of a batch's rows, and those of the other positions; the answer is the version of their entry."""

    rows: CommitCommand
    positions: Sequence[Commit]
    if_dropped: str

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return self.rows.txn_ids

    @property
    def owned_topics(self) -> Collection[int]:  # type: ignore[override]  # of no kind of command but this one
        """See Command."""
        return self.rows.owned_topics

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[int]:
        """See Command."""
        if draft.outcomes.get(self.rows.opening.txn) is None:
            for topic in sorted(self.owned_topics):
                if is_dropped(draft, topic):
                    raise dropped_meanwhile(draft.topics.get(topic), "its rows were committed", self.if_dropped)
            for commit in self.positions:
                assert commit.stream is not None, "it has nothing else"
                last = draft.streams.get(commit.stream.identity)
                if last is not None and last.batch >= commit.stream.batch:
                    raise _not_committed()
        decided = self.rows.decide(draft, at, shared)
        if not isinstance(decided, Answer):
            return [*decided, *self.positions]
        if isinstance(decided.value, Skipped):
            raise _not_committed()
        return Answer(self.result(draft, at), settled=True)  # an entry whose answer was lost

    def result(self, draft: Draft, at: Header) -> int:
        """See Command."""
        outcome = draft.outcomes.get(self.rows.opening.txn)
        return at.version if outcome is None else outcome.version


def _not_committed() -> TransactionConflict:
    """The error for rows that the log did not take since it has a position as high: they may be there, or not."""
    return TransactionConflict(
        "the rows of a batch were not committed, since the log has some of its partitions up to there",
        advice=START_AGAIN,
        durable=Durable.NOTHING,
    )


__all__ = ["commit_batch", "note_end", "note_starts"]
