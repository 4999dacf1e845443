"""The metrics of a namespace and of a handle, as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from txnlog.api.lag import lag_of, redelivered_of
from txnlog.client.commit_times import BOUNDS_MS
from txnlog.client.ended_transactions import COMMITTED
from txnlog.common.open_metrics import Family, Labels, encoded
from txnlog.fold.expiry import is_overdue
from txnlog.fold.state import Cursor, Head, State, SubscriptionRecord, TopicRecord, TransactionRecord
from txnlog.format.actions import AbortReason
from txnlog.log.segment_summary import RecentSegments, SegmentSummary, SegmentTotals

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.session import Session
    from txnlog.results import PartitionLag

_REASONS: Final[tuple[AbortReason, ...]] = get_args(AbortReason)
_SINCE_ASKED: Final = (
    "since metrics were asked of this handle for the first time (_created), which was answered with 0: the log has no "
    "count of all"
)
_SINCE_OPENED: Final = "since this handle was opened (_created)"


class _Seen(NamedTuple):
    """What one look at the state found: all of the same version."""

    head: Head
    checkpoint: int | None
    topics: tuple[TopicRecord, ...]
    starts: dict[tuple[int, int], int]
    ends: dict[tuple[int, int], int]
    subscriptions: tuple[SubscriptionRecord, ...]
    cursors: dict[tuple[int, int], Cursor]
    transactions: tuple[TransactionRecord, ...]
    producers: int
    ended: dict[str, int]
    recent: RecentSegments


class _Lags(NamedTuple):
    """A subscription, the labels of its metrics, and its partitions."""

    labels: Labels
    partitions: list[PartitionLag]
    redelivered: int


def metrics(connection: Connection, *, partitions: bool) -> str:
    """OpenMetrics text; see ``Namespace.metrics``."""
    follower, session = connection.follower, connection.session
    follower.refresh()
    if connection.mode == "r":
        # It makes no checkpoints: asked for months, it would keep all that ended meanwhile in memory.
        follower.adopt_checkpoint()
    seen, summary = follower.over_checkpoints(partial(_look, session))
    ended_since_ms = session.ended.begin()  # behind the first look, whose counts are zero
    families = [
        *_of_log(connection, seen),
        *_of_transactions(connection, seen, ended_since_ms),
        *_of_topics(connection, seen, summary),
        *_of_subscriptions(connection, seen, summary, partitions=partitions),
        *_of_handle(connection),
    ]
    return encoded(families)


def _look(session: Session) -> tuple[_Seen, SegmentSummary]:
    summaries = session.segment_summaries

    def look(state: State) -> _Seen:
        return _Seen(
            state.head,
            session.follower.newest_usable_checkpoint,
            tuple([item for item in state.topics.values() if not item.dropped]),
            dict(state.starts),
            dict(state.ends),
            tuple(state.subscriptions.values()),
            dict(state.cursors),
            tuple(state.transactions.values()),
            len(state.producers),
            session.ended.counts(),
            summaries.recent(state),
        )

    seen = session.follower.look(look)
    return seen, summaries.of(seen.recent)


def _of_log(connection: Connection, seen: _Seen) -> Iterator[Family]:
    labels = Labels({"namespace": connection.name})
    head, base = seen.head, seen.recent.base
    parts = () if base is None else base.parts
    values: tuple[tuple[str, str, float], ...] = (
        ("newest_version", "Version of the newest entry of the log.", head.version),
        ("oldest_readable_version", "Oldest version that can be read: a vacuum raises it.", head.oldest_readable),
        (
            "newest_entry_age_seconds",
            "Time since the newest entry, by the clock of this machine; 0 where that is behind the log's time.",
            (head.log_time_ms(connection.runtime.now_ms()) - head.timestamp_ms) / 1000,
        ),
        ("topics", "Topics of the namespace.", len(seen.topics)),
        ("subscriptions", "Subscriptions of the namespace.", len(seen.subscriptions)),
        ("producers", "Names of producers that the log remembers.", seen.producers),
        (
            "checkpoint_distance_entries",
            "Entries behind the newest usable checkpoint, which whoever opens the namespace applies: all without one.",
            head.version - (-1 if seen.checkpoint is None else seen.checkpoint),
        ),
        ("checkpoint_objects", "Objects of the checkpoint that this handle reads from.", len(parts) + bool(parts)),
        (
            "checkpoint_size_bytes",
            "Size of the parts of the checkpoint that this handle reads from.",
            sum(part.size_bytes for part in parts),
        ),
    )
    entries = Family(
        "txnlog_entries",
        "counter",
        "Entries of the log since the namespace was created. Each is one object, and none is ever deleted.",
    )
    entries.add(head.version + 1, labels)
    yield entries
    for name, text, value in values:
        yield _gauge(name, text, value, labels)


def _gauge(name: str, text: str, value: float, labels: Labels) -> Family:
    family = Family(f"txnlog_{name}", "gauge", text)
    family.add(value, labels)
    return family


def _of_transactions(connection: Connection, seen: _Seen, since_ms: int) -> Iterator[Family]:
    labels = Labels({"namespace": connection.name})
    committed = Family(
        "txnlog_transactions_committed",
        "counter",
        f"Transactions of all writers that were committed {_SINCE_ASKED}. Merges of segments are such transactions.",
        since_ms,
    )
    committed.add(seen.ended.get(COMMITTED, 0), labels)
    yield committed
    aborted = Family(
        "txnlog_transactions_aborted",
        "counter",
        f"Transactions of all writers that were aborted, by reason, {_SINCE_ASKED}. With the reason failed, also "
        "proposals that were withdrawn.",
        since_ms,
    )
    for reason in _REASONS:
        aborted.add(seen.ended.get(reason, 0), labels.and_(reason=reason))
    yield aborted
    now_ms = seen.head.log_time_ms(connection.runtime.now_ms())
    unended = Family(
        "txnlog_unended_transactions", "gauge", "Transactions that the log shows, and that have not ended, by state."
    )
    oldest = Family(
        "txnlog_unended_transactions_oldest_age_seconds",
        "gauge",
        "Time since the first entry of the oldest of these transactions; 0 where there is none.",
    )
    for state in ("OPEN", "PREPARED"):
        opened_ms = [item.opened_ms for item in seen.transactions if item.state == state]
        unended.add(len(opened_ms), labels.and_(state=state))
        oldest.add((now_ms - min(opened_ms, default=now_ms)) / 1000, labels.and_(state=state))
    yield unended
    yield oldest
    yield _gauge(
        "overdue_transactions",
        "Open transactions whose deadline was more than five seconds ago: the next entry of any writer ends them.",
        sum(is_overdue(item, now_ms) for item in seen.transactions),
        labels,
    )


def _of_topics(connection: Connection, seen: _Seen, summary: SegmentSummary) -> Iterator[Family]:
    messages = Family(
        "txnlog_topic_messages",
        "counter",
        "Messages that became visible since the topic was created: the end offsets of its partitions. A topic that is "
        "created again under the name has another id.",
    )
    segments = Family("txnlog_topic_segments", "gauge", "Files that the newest version of a topic consists of.")
    size_bytes = Family("txnlog_topic_size_bytes", "gauge", "Size of these files.")
    small = Family(
        "txnlog_topic_small_segments",
        "gauge",
        "Those of them that are so small that merging in the background, or optimize, merges them.",
    )
    for topic in sorted(seen.topics, key=lambda item: item.name):
        labels = Labels({"namespace": connection.name, "topic": topic.name})
        totals = summary.totals.get(topic.id) or SegmentTotals()
        ends = sum([seen.ends.get((topic.id, partition), 0) for partition in range(topic.partitions)])
        messages.add(ends, labels.and_(id=str(topic.id)))
        segments.add(totals.segments, labels)
        size_bytes.add(totals.size_bytes, labels)
        small.add(totals.small, labels)
    yield from (messages, segments, size_bytes, small)


def _of_subscriptions(
    connection: Connection, seen: _Seen, summary: SegmentSummary, *, partitions: bool
) -> Iterator[Family]:
    names = ("lag_messages", "lag_seconds", "pending_messages", "leased_messages", "redelivered_messages")
    texts = (
        "Messages that are not acknowledged.",
        "Age of the oldest message that is not acknowledged, over all partitions; 0 where there is none.",
        "Messages that are acknowledged in transactions which have not ended.",
        "Messages that consumers of a shared subscription have received, or are about to, and not acknowledged.",
        "Messages that came back at least once and are not acknowledged.",
    )
    families = [Family(f"txnlog_subscription_{name}", "gauge", text) for name, text in zip(names, texts, strict=True)]
    by_partition = [
        Family(f"txnlog_subscription_partition_{name}", "gauge", f"{text} By partition.")
        for name, text in (
            ("lag_messages", texts[0]),
            ("lag_seconds", "Age of the oldest message that is not acknowledged; 0 where there is none."),
        )
    ]
    for labels, found, redelivered in _lags(connection, seen, summary):
        ages = [(item.behind_ms or 0) / 1000 for item in found]
        behind = [item.behind_messages for item in found]
        pending, leased = sum([item.pending for item in found]), sum([item.leased for item in found])
        for family, value in zip(families, (sum(behind), max(ages), pending, leased, redelivered), strict=True):
            family.add(value, labels)
        if partitions:
            for item in found:
                of_one = labels.and_(partition=str(item.partition))
                by_partition[0].add(item.behind_messages, of_one)
                by_partition[1].add((item.behind_ms or 0) / 1000, of_one)
    yield from families
    if partitions:
        yield from by_partition


def _there(seen: _Seen, topic: int, partition: int) -> range:
    """The offsets of a partition that can be read."""
    return range(seen.starts.get((topic, partition), 0), seen.ends.get((topic, partition), 0))


def _lags(connection: Connection, seen: _Seen, summary: SegmentSummary) -> Iterator[_Lags]:
    now_ms = seen.head.log_time_ms(connection.runtime.now_ms())
    topics = {item.id: item for item in seen.topics}
    for record in sorted(seen.subscriptions, key=lambda item: (topics[item.topic].name, item.name)):
        topic = topics[record.topic]
        labels = Labels({"namespace": connection.name, "topic": topic.name, "subscription": record.name})
        cursors = [seen.cursors[record.id, partition] for partition in range(topic.partitions)]
        found = [
            lag_of(topic.id, partition, cursor, _there(seen, topic.id, partition), now_ms, summary)
            for partition, cursor in enumerate(cursors)
        ]
        yield _Lags(labels, found, sum([redelivered_of(cursor) for cursor in cursors]))


def _of_handle(connection: Connection) -> Iterator[Family]:
    session = connection.session
    labels = Labels({"namespace": connection.name})

    def counter(name: str, text: str) -> Family:
        return Family(f"txnlog_handle_{name}", "counter", f"{text} {_SINCE_OPENED}.", session.began_ms)

    requests = counter("store_requests", "Requests that this handle sent to the store, by call and kind of object,")
    for (call, kind), count in sorted(session.requests.counts().items()):
        requests.add(count, labels.and_(call=call, kind=kind))
    yield requests
    counts = session.append_counts
    races = counter("lost_races", "Entries of this handle that found their slot occupied by that of another writer,")
    races.add(counts.lost_races, labels)
    yield races
    proposals = counter(
        "proposals",
        "Batches of commands that this handle left to another writer, by whether that one brought all of them into the "
        "log,",
    )
    proposals.add(counts.brought, labels.and_(result="brought"))
    proposals.add(counts.in_vain, labels.and_(result="in_vain"))
    yield proposals
    collected = counter(
        "collected_proposals", "Proposals of other writers that this handle read, by whether they could be decoded,"
    )
    collected.add(counts.collected, labels.and_(result="decoded"))
    collected.add(counts.malformed, labels.and_(result="malformed"))
    yield collected
    durations = Family(
        "txnlog_handle_commit_duration_seconds",
        "histogram",
        "How long calls of this handle that commit took, as far as they succeeded: from the call until the outcome was "
        f"known, {_SINCE_OPENED}.",
        session.began_ms,
    )
    found = session.commit_times.histogram()
    durations.add_histogram([bound / 1000 for bound in BOUNDS_MS], found.counts, found.sum_ms / 1000, labels)
    yield durations
    failures = counter("commit_failures", "Calls of this handle that commit and ended with an error, by its name,")
    for error, count in sorted(session.commit_times.failures().items()):
        failures.add(count, labels.and_(error=error))
    yield failures


__all__ = ["metrics"]
