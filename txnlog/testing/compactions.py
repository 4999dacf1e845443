"""Which messages key compaction took out, as files and log have it, and what their topics asked for then.

A history shows what somebody read, and no times: how old a message was, by the time of the log, which settings counted
and who still needed it, only the entries say. Whether it was allowed to go is for the checker to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from txnlog.common import ranges
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State, TopicRecord
from txnlog.format.codec import Entry
from txnlog.format.compaction import (
    CLEANUP_POLICY,
    COMPACT_UNACKNOWLEDGED,
    DEFAULT_DELETE_RETENTION_MS,
    DELETE_RETENTION_MS,
    MIN_COMPACTION_LAG_MS,
)
from txnlog.testing import audit
from txnlog.testing.client import Rows, rows_of
from txnlog.testing.keyed import has_value, key_of
from txnlog.testing.operation_parts import Keyed, Removed

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


def keyed_of(rows: Rows, topics: Collection[str]) -> Iterator[Keyed]:
    """The keys of all messages of the topics that have one."""
    for (topic, partition), found in sorted(rows.items()):
        if topic in topics:
            for offset, number, _, _ in found:
                yield Keyed(topic, partition, offset, key_of(number), not has_value(number))


def ended_of(keyed: Collection[Keyed], removed: Collection[Removed]) -> set[tuple[str, int, str]]:
    """The keys, by topic and partition, of which nothing is left: what ended them went as well."""
    gone = {item[:3] for item in removed}
    there = {(item.topic, item.partition, item.key) for item in keyed if item[:3] not in gone}
    return {
        (item.topic, item.partition, item.key)
        for item in keyed
        if item.key is not None and (item.topic, item.partition, item.key) not in there
    }


def removed_of(ns: Namespace, entries: Sequence[Entry], compactors: Collection[str]) -> Iterator[Removed]:
    """What is not shown any more since an entry that replaced segments.

    Args:
        ns: a handle that has read all of them; every file that there ever was has to be there.
        entries: of the log, from 0 on.
        compactors: the writers that compact: what goes with an entry of another one goes unasked.
    """
    for item in gone_with_entries(ns, entries):
        yield from _described(item, entries, asked=item.entry.header.writer in compactors)


class Gone(NamedTuple):
    """What goes of one partition with an entry: ``rows``, at the ``state`` in front of it."""

    state: State
    entry: Entry
    topic: TopicRecord
    partition: int
    rows: list[tuple[int, int, str, int]]


def gone_with_entries(ns: Namespace, entries: Iterable[Entry]) -> Iterator[Gone]:
    """The rows that an entry with holes is the first not to show, one partition after the other."""
    state = State()
    for entry in entries:
        if any(audit.makes_holes(action) for action in entry.actions):
            version = entry.header.version
            with audit.everything_readable(ns):
                before, after = (rows_of(ns, ns.snapshot(at)) for at in (version - 1, version))
            for (folder, partition), rows in sorted(before.items()):
                topic = next(item for item in state.topics.values() if item.folder == folder)
                there = {row[0] for row in after.get((folder, partition), ())}
                yield Gone(state, entry, topic, partition, [row for row in rows if row[0] not in there])
        apply_entry(state, entry)


def _described(item: Gone, entries: Sequence[Entry], *, asked: bool) -> Iterator[Removed]:
    """What key compaction has to say of it."""
    header, topic = item.entry.header, item.topic
    kept_ms = DELETE_RETENTION_MS.of(topic.properties)
    for offset, _, _, version in item.rows:
        yield Removed(
            topic.folder,
            item.partition,
            offset,
            header.version,
            header.timestamp_ms - entries[version].header.timestamp_ms,
            asked and CLEANUP_POLICY.of(topic.properties) == "compact",
            MIN_COMPACTION_LAG_MS.of(topic.properties) or 0,
            DEFAULT_DELETE_RETENTION_MS if kept_ms is None else kept_ms,
            () if COMPACT_UNACKNOWLEDGED.of(topic.properties) else needing(item, offset),
        )


def needing(item: Gone, offset: int) -> tuple[str, ...]:
    """The subscriptions that had not acknowledged a message."""
    state, wanted = item.state, ((offset, offset + 1),)
    found: list[str] = []
    for subscription in state.subscriptions.values():
        if subscription.topic == item.topic.id:
            cursor = state.cursors[subscription.id, item.partition]
            if not ranges.covers(ranges.union(((0, cursor.position),), cursor.acknowledged), wanted):
                found.append(subscription.name)
    return tuple(found)


__all__ = ["Gone", "ended_of", "gone_with_entries", "keyed_of", "needing", "removed_of"]
