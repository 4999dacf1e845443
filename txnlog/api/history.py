"""The newest entries of a log, as far as their headers and the kinds of their actions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from txnlog.common.limits import MAX_NUMBER
from txnlog.common.validation import whole_number
from txnlog.format.actions import Commit, Replace
from txnlog.format.codec import Entry, decode_entry
from txnlog.log.log_reader import SLOTS_AT_ONCE
from txnlog.results import EntryInfo, Listing

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def history(connection: Connection, limit: int) -> Listing:
    """The newest entries, newest first; see ``Namespace.history``."""
    limit = whole_number("limit", limit, 0, MAX_NUMBER)
    newest = connection.follower.refresh()
    log = connection.follower.log
    found: list[EntryInfo] = []
    for end in range(newest + 1, max(0, newest + 1 - limit), -SLOTS_AT_ONCE):
        first = max(0, end - SLOTS_AT_ONCE, newest + 1 - limit)
        known = log.get_many(first, end - first)
        entries = [decode_entry(data, first + place) for place, data in enumerate(known)]
        entries += [log.entry(version) for version in range(first + len(known), end)]  # they must be there
        found += [_described(entry) for entry in reversed(entries)]
    return Listing(found)


def _described(entry: Entry) -> EntryInfo:
    header = entry.header
    kinds = Counter(str(type(action).__struct_config__.tag) for action in entry.actions)
    committed = sum(isinstance(action, Commit | Replace) for action in entry.actions)
    return EntryInfo(
        header.version, header.timestamp_ms, header.writer, dict(sorted(kinds.items())), committed, entry.size_bytes
    )


__all__ = ["history"]
