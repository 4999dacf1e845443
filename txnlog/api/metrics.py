"""The metrics of a namespace and of a handle, as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from txnlog.api.lag import lag_of, readable_offsets, redelivered_of
from txnlog.api.metric_families import family
from txnlog.client.commit_times import BOUNDS_MS
from txnlog.client.ended_transactions import COMMITTED
from txnlog.common.open_metrics import Family, Labels, encoded
from txnlog.fold.overdue import is_overdue
from txnlog.fold.state import Cursor, Head, State, SubscriptionRecord, TopicRecord, TransactionRecord
from txnlog.format.actions import AbortReason
from txnlog.log.segment_summary import RecentSegments, SegmentSummary, SegmentTotals

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.client.session import Session
    from txnlog.results import PartitionLag

_REASONS: Final[tuple[AbortReason, ...]] = get_args(AbortReason)


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
    values: tuple[tuple[str, float], ...] = (
        ("newest_version", head.version),
        ("oldest_readable_version", head.oldest_readable),
        (
            "newest_entry_age_seconds",
            (head.log_time_ms(connection.runtime.now_ms()) - head.timestamp_ms) / 1000,
        ),
        ("topics", len(seen.topics)),
        ("subscriptions", len(seen.subscriptions)),
        ("producers", seen.producers),
        ("checkpoint_distance_entries", head.version - (-1 if seen.checkpoint is None else seen.checkpoint)),
        ("checkpoint_objects", len(parts) + bool(parts)),
        ("checkpoint_size_bytes", sum(part.size_bytes for part in parts)),
    )
    entries = family("entries")
    entries.add(head.version + 1, labels)
    yield entries
    for name, value in values:
        yield _gauge(name, value, labels)


def _gauge(name: str, value: float, labels: Labels) -> Family:
    found = family(name)
    found.add(value, labels)
    return found


def _of_transactions(connection: Connection, seen: _Seen, since_ms: int) -> Iterator[Family]:
    labels = Labels({"namespace": connection.name})
    committed = family("transactions_committed", since_ms)
    committed.add(seen.ended.get(COMMITTED, 0), labels)
    yield committed
    aborted = family("transactions_aborted", since_ms)
    for reason in _REASONS:
        aborted.add(seen.ended.get(reason, 0), labels.and_(reason=reason))
    yield aborted
    now_ms = seen.head.log_time_ms(connection.runtime.now_ms())
    unended = family("unended_transactions")
    oldest = family("unended_transactions_oldest_age_seconds")
    for state in ("OPEN", "PREPARED"):
        opened_ms = [item.opened_ms for item in seen.transactions if item.state == state]
        unended.add(len(opened_ms), labels.and_(state=state))
        oldest.add((now_ms - min(opened_ms, default=now_ms)) / 1000, labels.and_(state=state))
    yield unended
    yield oldest
    overdue = sum(is_overdue(item, now_ms) for item in seen.transactions)
    yield _gauge("overdue_transactions", overdue, labels)


def _of_topics(connection: Connection, seen: _Seen, summary: SegmentSummary) -> Iterator[Family]:
    messages = family("topic_messages")
    segments, size_bytes, small = (family(f"topic_{name}") for name in ("segments", "size_bytes", "small_segments"))
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
    families = [family(f"subscription_{name}") for name in names]
    by_partition = [family(f"subscription_partition_{name}") for name in ("lag_messages", "lag_seconds")]
    for labels, found, redelivered in _lags(connection, seen, summary):
        ages = [(item.behind_ms or 0) / 1000 for item in found]
        behind = [item.behind_messages for item in found]
        pending, leased = sum([item.pending for item in found]), sum([item.leased for item in found])
        for total, value in zip(families, (sum(behind), max(ages), pending, leased, redelivered), strict=True):
            total.add(value, labels)
        if partitions:
            for item in found:
                of_one = labels.and_(partition=str(item.partition))
                by_partition[0].add(item.behind_messages, of_one)
                by_partition[1].add((item.behind_ms or 0) / 1000, of_one)
    yield from families
    if partitions:
        yield from by_partition


def _lags(connection: Connection, seen: _Seen, summary: SegmentSummary) -> Iterator[_Lags]:
    now_ms = seen.head.log_time_ms(connection.runtime.now_ms())
    topics = {item.id: item for item in seen.topics}
    for record in sorted(seen.subscriptions, key=lambda item: (topics[item.topic].name, item.name)):
        topic = topics[record.topic]
        labels = Labels({"namespace": connection.name, "topic": topic.name, "subscription": record.name})
        cursors = [seen.cursors[record.id, partition] for partition in range(topic.partitions)]
        places = list(zip(cursors, readable_offsets(seen, topic), strict=True))
        found = [lag_of(topic.id, p, cursor, there, now_ms, summary) for p, (cursor, there) in enumerate(places)]
        yield _Lags(labels, found, sum([redelivered_of(cursor, there.start) for cursor, there in places]))


def _of_handle(connection: Connection) -> Iterator[Family]:
    session = connection.session
    labels = Labels({"namespace": connection.name})

    def since_opened(name: str) -> Family:
        return family(f"handle_{name}", session.began_ms)

    requests = since_opened("store_requests")
    for (call, kind), count in sorted(session.requests.counts().items()):
        requests.add(count, labels.and_(call=call, kind=kind))
    yield requests
    counts = session.append_counts
    races = since_opened("lost_races")
    races.add(counts.lost_races, labels)
    yield races
    proposals = since_opened("proposals")
    proposals.add(counts.brought, labels.and_(result="brought"))
    proposals.add(counts.in_vain, labels.and_(result="in_vain"))
    yield proposals
    collected = since_opened("collected_proposals")
    collected.add(counts.collected, labels.and_(result="decoded"))
    collected.add(counts.malformed, labels.and_(result="malformed"))
    yield collected
    durations = since_opened("commit_duration_seconds")
    found = session.commit_times.histogram()
    durations.add_histogram([bound / 1000 for bound in BOUNDS_MS], found.counts, found.sum_ms / 1000, labels)
    yield durations
    failures = since_opened("commit_failures")
    for error, count in sorted(session.commit_times.failures().items()):
        failures.add(count, labels.and_(error=error))
    yield failures


__all__ = ["metrics"]
