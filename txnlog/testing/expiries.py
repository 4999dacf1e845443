"""Which messages were acknowledged because of their age, as the log has it, and what was known of them then.

A history shows no times: how old a message was, by the time of the log, only the entries say. Whether it was old
enough, and whether somebody was at work on it, is for the checker to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.common.writer_text import writer_of
from txnlog.fold.apply import apply_entry
from txnlog.fold.leases import live
from txnlog.fold.state import Cursor, State
from txnlog.format.actions import Abort, Acknowledgement, Commit, DeleteRecords, Reserve
from txnlog.format.codec import Entry
from txnlog.format.retention import MESSAGE_TTL_MS
from txnlog.testing.client import Rows
from txnlog.testing.operation_parts import Expired


def expired_of(entries: Sequence[Entry], rows: Rows, retainers: Collection[str]) -> Iterator[Expired]:
    """What has expired.

    Args:
        entries: of the log, from 0 on.
        rows: all messages that there ever were.
        retainers: writers that acknowledge for no other reason. What an entry acknowledges that also deletes is not
            named: it can be read no more.
    """
    state = State()
    blocks: dict[int, str] = {}
    for entry in entries:
        for action in entry.actions:
            if isinstance(action, Reserve):
                blocks[action.first] = writer_of(action.writer)
        if not any(isinstance(action, DeleteRecords) for action in entry.actions):
            for action in entry.actions:
                if isinstance(action, Commit) and _owner(blocks, action.txn) in retainers:
                    for item in action.acknowledgements:
                        yield from _described(state, entry, item, entries, rows)
        apply_entry(state, entry)


def _owner(blocks: dict[int, str], number: int) -> str:
    """The writer that a number was reserved for."""
    return blocks[max(first for first in blocks if first <= number)]


def _described(
    state: State, entry: Entry, found: Acknowledgement, entries: Sequence[Entry], rows: Rows
) -> Iterator[Expired]:
    """What one entry acknowledges on a subscription, at the state in front of it."""
    subscription = state.subscriptions[found.subscription]
    topic = state.topics[subscription.topic]
    now_ms = entry.header.timestamp_ms
    ended = {action.txn for action in entry.actions if isinstance(action, Abort)}
    for part in found.ranges:
        known = rows.get((topic.folder, part.partition), ())
        last = part.ranges[-1][1]
        came_ms = [entries[row[3]].header.timestamp_ms for row in known if _is_in(row[0], part.ranges)]
        is_known = last <= len(known) and known[last - 1][3] < entry.header.version
        yield Expired(
            topic.folder,
            subscription.name,
            part.partition,
            part.ranges,
            entry.header.version,
            now_ms - max(came_ms) if came_ms and is_known else -1,
            MESSAGE_TTL_MS.of(topic.properties),
            _busy(state.cursors[subscription.id, part.partition], part.ranges, now_ms, ended),
        )


def _is_in(offset: int, found: Iterable[tuple[int, int]]) -> bool:
    return any(start <= offset < end for start, end in found)


def _busy(cursor: Cursor, found: Ranges, now_ms: int, ended: Collection[int]) -> Ranges:
    """What of some messages was leased, or acknowledged in a transaction that had not ended."""
    busy = live(cursor, now_ms)
    for claim in cursor.holds:
        if claim.txn not in ended:
            busy = ranges.union(busy, claim.ranges)
    if cursor.cumulative is not None and cursor.cumulative.txn not in ended:
        busy = ranges.union(busy, ((0, cursor.cumulative.end),))
    return ranges.intersect(busy, found)


__all__ = ["expired_of"]
