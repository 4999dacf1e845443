"""What the log of a namespace says of itself, of transactions, subscriptions and topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from txnlog.api import tables
from txnlog.api.doctor.notes import Notes, advice_to, way, words_of
from txnlog.common import format_limits, limits
from txnlog.common.validation import rough_duration
from txnlog.errors import AccessDenied, TopicNotFound, UnsupportedFeature
from txnlog.fold.apply import check_writable
from txnlog.fold.overdue import is_overdue
from txnlog.fold.state import State, TopicRecord, TransactionRecord
from txnlog.format.delta_mode import DELTA
from txnlog.format.retention import RETENTION_BYTES, RETENTION_MS
from txnlog.log.log_identity import CATALOG
from txnlog.log.segment_summary import SegmentSummary
from txnlog.maintenance import optimizer, retention
from txnlog.sentences import Argument, Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.results import RetentionInfo

_DAY_MS: Final = 24 * 3_600_000

PREPARED_FOR_MS: Final = _DAY_MS
"""A prepared transaction without a decision: a coordinator decides within minutes, also one that was started again."""

BEHIND_MS: Final = _DAY_MS
"""The oldest message that a subscription has not acknowledged: a job that runs once a day is not late before."""

RETENTION_LATE_MS: Final = _DAY_MS
"""Messages that are due to be deleted: whoever maintains once a day is not late before."""

FAR_CHECKPOINT: Final = 5 * limits.CHECKPOINT_ENTRIES
"""Entries behind the newest checkpoint: clients make one after about a fifth of them, so nobody could."""

MANY_SMALL: Final = 10 * limits.AUTO_MERGE_SEGMENTS
"""Small segments of a topic: clients merge them after a tenth of that."""

NEAR_LIMIT: Final = 0.8
"""Of a limit: from here on there is time to do something."""

SIZE_EXCESS: Final = 1.1
"""Of ``retention_bytes``: between two runs of maintenance a topic has some more."""

PUBLISHED_WITHIN_MS: Final[Mapping[str, int]] = {"auto": _DAY_MS, "manual": limits.DEFAULT_RETAIN_MS}
"""By the mode of a topic how old the newest rows may be that its Delta table lacks: of "manual" ones, as maintain
advises, a week."""


class _Limit(NamedTuple):
    """How many there are of something, how many there can be, and what to do."""

    what: str
    found: int
    most: int
    advice: str


def look_at_format(notes: Notes, connection: Connection) -> None:
    """Which features of the format does the log have, and may this txnlog write it?"""
    head = connection.follower.state.head
    features = {"readers": head.reader_features, "writers": head.writer_features}
    needed = [f"{who} need {', '.join(map(repr, names))}" for who, names in features.items() if names]
    notes.seen["format"] = f"version {head.reader_version}; {'; '.join(needed) or 'no features'}"
    try:
        check_writable(connection.follower.state)
    except UnsupportedFeature as error:
        notes.complain("format", "format", error.message, error.advice)


def look_at_checkpoint(notes: Notes, connection: Connection) -> None:
    """How many entries does whoever opens the namespace apply?"""
    newest = connection.follower.newest_usable_checkpoint
    newest = -1 if newest is None else newest
    notes.seen["checkpoint"] = "none" if newest < 0 else f"at version {newest}"
    distance = connection.follower.version - newest
    if distance > FAR_CHECKPOINT:
        notes.warn(
            "checkpoint",
            "log",
            f"{distance:,} entries stand behind the newest checkpoint: whoever opens the namespace reads all of them",
            advice_to("checkpoint()", "checkpoint", after=", and regularly maintain"),
            "checkpoint",
        )


def look_at_limits(notes: Notes, connection: Connection) -> None:
    """Does the namespace come near to what it can have?"""
    for what, count, most, advice in connection.follower.look(_limits):
        notes.seen[what] = f"{count:,} of {most:,}"
        if count >= most:
            notes.complain("limit", what, f"there are {count:,}, and can be {most:,}: one more is refused", advice)
        elif count >= NEAR_LIMIT * most:
            notes.warn("limit", what, f"there are {count:,}, and can be {most:,}", advice)


def _limits(state: State) -> list[_Limit]:
    topics = sum(1 for item in state.topics.values() if not item.dropped)
    for_ever = "the log remembers them for ever: "
    return [
        _Limit(
            "topics",
            topics,
            format_limits.MAX_TOPICS,
            Words(Call("drop_topic", "name"), " for those that nobody needs"),
        ),
        _Limit(
            "subscriptions",
            len(state.subscriptions),
            format_limits.MAX_SUBSCRIPTIONS,
            Words(Call("drop_subscription", "topic", "name"), " for those that nobody needs"),
        ),
        _Limit(
            "producers", len(state.producers), format_limits.MAX_PRODUCERS, f"{for_ever}use the same name in each run"
        ),
        _Limit(
            "values of txn_app_id",
            len(state.apps),
            format_limits.MAX_APPS,
            Words("use the same value in each run; ", Call("forget_app", "txn_app_id"), " for those of the past"),
        ),
        _Limit(
            "streaming queries",
            len(state.streams),
            format_limits.MAX_STREAMS,
            f"{for_ever}keep the checkpoint folder of a query",
        ),
        _Limit(
            "open transactions",
            len(state.transactions),
            format_limits.MAX_OPEN_TRANSACTIONS,
            Words(Call("transactions", Argument("state", ...)), " shows them: end those that nobody needs"),
        ),
    ]


def look_at_transactions(notes: Notes, connection: Connection) -> None:
    """Which transactions does nobody end?"""
    now_ms = connection.log_now_ms()
    for item in sorted(connection.follower.look(_unended), key=lambda item: item.opened_ms):
        name, age_ms = str(connection.txn_id(item.number)), now_ms - item.opened_ms
        whose = "" if item.producer is None else f" (of the producer {item.producer!r})"
        if is_overdue(item, now_ms):
            late = rough_duration(now_ms - (item.deadline_ms or 0))
            command = words_of("transactions", "abort", name)
            notes.warn(
                "transaction",
                name,
                f"it is open{whose}, and its deadline was {late} ago: the next entry of any writer ends it",
                advice_to(f"abort({name!r})", command),
                command,
            )
        elif item.state == "PREPARED" and age_ms >= PREPARED_FOR_MS:
            notes.warn(
                "transaction",
                name,
                f"it is prepared{whose}, and has waited for a decision for {rough_duration(age_ms)}",
                advice_to(
                    f"complete({name!r}, commit=True)",
                    words_of("transactions", "complete", name, "--commit"),
                    "find out how the other system decided, then ",
                    ", or the opposite",
                ),
            )


def _unended(state: State) -> list[TransactionRecord]:
    return list(state.transactions.values())


def look_at_subscriptions(notes: Notes, connection: Connection) -> None:
    """Which subscriptions does nobody read?"""
    table = tables.table(connection, "subscriptions", None)
    groups = table.group_by(["topic", "subscription"])
    found = groups.aggregate([("lag_messages", "sum"), ("lag_ms", "max")]).to_pylist()
    late = [row for row in found if row["lag_ms_max"] is not None and row["lag_ms_max"] >= BEHIND_MS]
    kept = {
        (info.topic, item.subscription): f"; retention keeps {item.messages:,} messages for it"
        for info in (retention.listing(connection, None) if late else ())
        for item in info.kept_for
    }
    for row in sorted(late, key=lambda item: (item["topic"], item["subscription"])):
        topic, name, behind_ms = row["topic"], row["subscription"], row["lag_ms_max"]
        command = words_of("subscription", "drop", topic, name)
        notes.warn(
            "subscription",
            f"{topic}/{name}",
            f"{row['lag_messages_sum']:,} messages are not acknowledged, the oldest for {rough_duration(behind_ms)}"
            + kept.get((topic, name), ""),
            advice_to(
                f"drop_subscription({topic!r}, {name!r})", command, "start its consumer, or, if nobody needs it, "
            ),
            command,
        )


def look_at_topics(notes: Notes, connection: Connection) -> None:
    """Which topics lack maintenance?"""
    summary = connection.session.segment_summaries.now()
    topics = sorted(connection.live_topics(), key=lambda item: item.name)
    for topic in topics:
        totals = summary.totals.get(topic.id)
        if totals is not None and totals.small >= MANY_SMALL:
            _look_at_segments(notes, connection, topic, totals.small)
        if any(setting.of(topic.properties) is not None for setting in (RETENTION_MS, RETENTION_BYTES)):
            _look_at_retention(notes, connection, topic, summary)
    for topic in topics:
        _look_at_table(notes, connection, topic)


def _look_at_segments(notes: Notes, connection: Connection, topic: TopicRecord, small: int) -> None:
    try:
        foreseen = optimizer.begin(connection, topic.name, limits.MERGE_TARGET_BYTES, dry_run=True).foresee()
    except TopicNotFound:
        return  # dropped meanwhile
    if foreseen.merged_segments < MANY_SMALL:
        return
    command = words_of("optimize", topic.name)
    notes.warn(
        "segments",
        topic.name,
        f"{small:,} of its files are small: each read opens all of them",
        advice_to(f"optimize({topic.name!r})", command, after=", and regularly maintain"),
        command,
    )


def _look_at_retention(notes: Notes, connection: Connection, topic: TopicRecord, summary: SegmentSummary) -> None:
    try:
        (info,) = retention.listing(connection, topic.name)
    except TopicNotFound:
        return  # dropped meanwhile
    why = _overdue(connection, topic, info, summary) if info.due_messages else None
    if why is not None:
        notes.warn(
            "retention",
            topic.name,
            f"{info.due_messages:,} messages are due to be deleted, and {why}",
            advice_to("maintain()", "maintain", "retention is applied by "),
            "maintain",
        )


def _overdue(connection: Connection, topic: TopicRecord, info: RetentionInfo, summary: SegmentSummary) -> str | None:
    """Why retention should have been applied by now; None where it can wait for the next run."""
    if info.retention_ms is not None:
        starts = connection.follower.look(
            lambda state: [state.start_of(topic.id, partition) for partition in range(topic.partitions)]
        )
        times = [summary.visible_since_ms(topic.id, partition, start) for partition, start in enumerate(starts)]
        oldest_ms = min((time_ms for time_ms in times if time_ms is not None), default=None)
        late_ms = 0 if oldest_ms is None else connection.log_now_ms() - oldest_ms - info.retention_ms
        if late_ms >= RETENTION_LATE_MS:
            return f"the oldest has been for {rough_duration(late_ms)}"
    if info.retention_bytes is not None and info.size_bytes > SIZE_EXCESS * info.retention_bytes:
        return f"the topic has {info.size_bytes:,} bytes instead of {info.retention_bytes:,}"
    return None


def _look_at_table(notes: Notes, connection: Connection, topic: TopicRecord) -> None:
    mode = DELTA.of(topic.properties)
    within_ms = PUBLISHED_WITHIN_MS.get(mode)
    if within_ms is None:
        return
    try:
        found = connection.session.auto_publisher.unpublished(topic.id)
    except AccessDenied:
        return  # who may not read it has no use for it
    if found is None:
        return
    late_ms = connection.log_now_ms() - found.since_ms
    if late_ms < within_ms:
        return
    command = words_of("publish", topic.name)
    notes.warn(
        "delta",
        topic.name,
        f"its Delta table shows version {found.shown}, and lacks what was committed {rough_duration(late_ms)} ago"
        + (", though it is published after commits: the publisher fails" if mode == "auto" else ""),
        Words(way(f"{CATALOG}.publish({connection.name!r}, {topic.name!r})", command), ", and that once a week"),
        command,
    )


__all__ = [
    "look_at_checkpoint",
    "look_at_format",
    "look_at_limits",
    "look_at_subscriptions",
    "look_at_topics",
    "look_at_transactions",
]
