"""What ``top`` reads of a namespace at one moment, by public calls of a handle that only reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from txnlog.api.namespace import Namespace
from txnlog.api.snapshot import Snapshot
from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.common.open_metrics import Number, samples
from txnlog.data.python_rows import python_rows
from txnlog.results import EntryInfo, TransactionInfo

MINUTE_MS: Final = 60_000

MOST_ENTRIES: Final = 100
"""Entries that one reading asks for at most: each one is a request to the store."""

_COLUMNS: Final = ["topic", "subscription", "consumer", "query", "lag_messages", "lag_ms"]

_MEANWHILE: Final = 2
"""Entries that may come between the question for the newest version and that for the entries, and leave no gap."""


@dataclass(frozen=True, slots=True)
class TopicReading:
    """A topic.

    Attributes:
        name: its name.
        id: its number, which another topic of the name does not have.
        written: messages that became visible since it was created.
        messages: those of them that can be read.
        files: files of its newest version.
        size_bytes: of these.
    """

    name: str
    id: str
    written: int
    messages: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SubscriptionReading:
    """A subscription.

    Attributes:
        topic, name: what it is called.
        consumer: the newest to open it, or the streaming query that it belongs to.
        lag_messages: messages that are not acknowledged.
        lag_ms: the age of the oldest of them; None where there is none.
    """

    topic: str
    name: str
    consumer: str | None
    lag_messages: int
    lag_ms: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A namespace at one moment. Its parts may be a few entries apart: each is a call of its own.

    Attributes:
        at_ms: when it was read, by the clock of who reads; epoch milliseconds.
        namespace: its name.
        version: its newest version.
        committed: transactions that were committed since the handle was asked for the first time.
        committed_since_ms: when that was, in epoch milliseconds.
        unended: transactions that are open or prepared, the oldest first.
        topics: by name.
        subscriptions: by topic and name.
        entries: the newest entries without a gap, newest first: as many as the last minute has, and one before it.
    """

    at_ms: int
    namespace: str
    version: int
    committed: int
    committed_since_ms: int
    unended: tuple[TransactionInfo, ...]
    topics: Mapping[str, TopicReading]
    subscriptions: Mapping[tuple[str, str], SubscriptionReading]
    entries: tuple[EntryInfo, ...]

    @property
    def log_ms(self) -> int:
        """The time of the log: never before that of its newest entry."""
        return max(self.at_ms, self.entries[0].timestamp_ms)

    def is_hanging(self, item: TransactionInfo) -> bool:
        """Whether a transaction is past its deadline, and nobody has written since to end it."""
        return item.deadline_ms is not None and item.deadline_ms + EXPIRY_GRACE_MS <= self.log_ms


def read(ns: Namespace, earlier: Reading | None, at_ms: int) -> Reading:
    """Read a namespace at a time of the caller's clock; ``earlier`` is the reading before, by the same handle.

    Four requests to the store where nothing was written since then, and else about two for each new entry.
    """
    values: dict[str, dict[str, Number]] = defaultdict(dict)
    ids: dict[str, str] = {}
    for sample in samples(ns.metrics()):
        topic = sample.labels.get("topic", "")
        values[sample.name][topic] = sample.value
        if sample.name == "txnlog_topic_messages_total":
            ids[topic] = sample.labels["id"]
    unended = ns.transactions(min_age_ms=0)
    snapshot = ns.snapshot()
    entries = _entries(ns, earlier, snapshot.version, at_ms)
    return Reading(
        at_ms,
        ns.name,
        entries[0].version,
        int(values["txnlog_transactions_committed_total"][""]),
        round(values["txnlog_transactions_committed_created"][""] * 1_000),
        tuple(sorted(unended, key=lambda item: (-(item.age_ms or 0), item.txn_id))),
        _topics(snapshot, ids, values),
        _subscriptions(python_rows(ns.table("subscriptions").select(_COLUMNS))),
        entries,
    )


def _topics(
    snapshot: Snapshot, ids: Mapping[str, str], values: Mapping[str, Mapping[str, Number]]
) -> dict[str, TopicReading]:
    found: dict[str, TopicReading] = {}
    for name in snapshot.topics():
        if name in ids:  # else it came since the metrics
            written = sum(snapshot.end_offsets(name).values())
            files, size_bytes = (int(values[f"txnlog_topic_{what}"][name]) for what in ("segments", "size_bytes"))
            messages = written - sum(snapshot.start_offsets(name).values())
            found[name] = TopicReading(name, ids[name], written, messages, files, size_bytes)
    return found


def _subscriptions(rows: list[dict[str, Any]]) -> dict[tuple[str, str], SubscriptionReading]:
    partitions: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        partitions[row["topic"], row["subscription"]].append(row)
    return {
        (topic, name): SubscriptionReading(
            topic,
            name,
            found[0]["query"] or found[0]["consumer"],
            sum(row["lag_messages"] for row in found),
            max((row["lag_ms"] for row in found if row["lag_ms"] is not None), default=None),
        )
        for (topic, name), found in partitions.items()
    }


def _entries(ns: Namespace, earlier: Reading | None, newest: int, at_ms: int) -> tuple[EntryInfo, ...]:
    """The newest entries: those that came since an earlier reading are read, the others are known."""
    known = () if earlier is None else earlier.entries
    found: list[EntryInfo] = []
    if not known or known[0].version < newest:
        wanted = newest - known[0].version + _MEANWHILE if known else MOST_ENTRIES
        found = list(ns.history(min(wanted, MOST_ENTRIES)))
        known = tuple(item for item in known if item.version < found[-1].version)
        if known and known[0].version + 1 < found[-1].version:
            known = ()  # more came than is asked for at most: there is a gap
    entries = (*found, *known)
    old = next((place for place, item in enumerate(entries) if item.timestamp_ms <= at_ms - MINUTE_MS), len(entries))
    return entries[: old + 1]


__all__ = ["MINUTE_MS", "MOST_ENTRIES", "Reading", "SubscriptionReading", "TopicReading", "read"]
