"""The newest entries of a log: their headers, the kinds of their actions, and the rows that they commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import whole_number
from txnlog.common.writer_text import client_of, writer_of
from txnlog.format.actions import Commit, Replace, Reserve
from txnlog.format.codec import Entry, decode_entry
from txnlog.log.log_reader import SLOTS_AT_ONCE
from txnlog.results import EntryInfo, Listing

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.fold.state import State
    from txnlog.log.checkpoint_codec import Manifest
    from txnlog.log.follower import Follower

_Segments = dict[int, tuple[int, int, int]]
"""By the number of a segment: the version that commits it, its topic, its rows."""


def history(connection: Connection, limit: int, version: int | None = None) -> Listing:
    """The newest entries, newest first; see ``Namespace.history``. With a version, those up to it."""
    limit = whole_number("limit", limit, 0, MAX_NUMBER)
    newest = connection.follower.refresh() if version is None else version
    log = connection.follower.log
    found: list[Entry] = []
    for end in range(newest + 1, max(0, newest + 1 - limit), -SLOTS_AT_ONCE):
        first = max(0, end - SLOTS_AT_ONCE, newest + 1 - limit)
        known = log.get_many(first, end - first)
        entries = [decode_entry(data, first + place) for place, data in enumerate(known)]
        entries += [log.entry(version) for version in range(first + len(known), end)]  # they must be there
        found += reversed(entries)
    rows = _rows(connection.follower, {entry.header.version for entry in found if _commits(entry)})
    clients = _clients(connection.follower, found)
    return Listing(
        [_described(entry, rows.get(entry.header.version, {}), clients.get(entry.header.writer)) for entry in found]
    )


def _clients(follower: Follower, entries: list[Entry]) -> dict[str, str]:
    """By the id of a writer who it says it is, in blocks that are open and in what these entries reserve."""
    texts = follower.look(lambda state: [block.writer_text for block in state.blocks.values()])
    texts += [action.writer for entry in entries for action in entry.actions if isinstance(action, Reserve)]
    return {writer_of(text): client for text in texts if (client := client_of(text)) is not None}


def _commits(entry: Entry) -> bool:
    return any(isinstance(action, Commit) for action in entry.actions)


def _described(entry: Entry, rows: Mapping[str, int], client: str | None) -> EntryInfo:
    header = entry.header
    kinds = Counter(str(type(action).__struct_config__.tag) for action in entry.actions)
    committed = sum(isinstance(action, Commit | Replace) for action in entry.actions)
    return EntryInfo(
        header.version,
        header.timestamp_ms,
        header.writer,
        dict(sorted(kinds.items())),
        committed,
        entry.size_bytes,
        rows,
        client,
    )


def _rows(follower: Follower, versions: set[int]) -> dict[int, dict[str, int]]:
    """By version and topic the rows that some entries commit.

    Only the segments say that: a commit does not name what an earlier entry has of its transaction.
    """
    topics = {topic.id: topic.name for topic in follower.topics()}
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for version, topic, rows in follower.over_checkpoints(partial(_segments, follower, versions)).values():
        if topic in topics:  # a damaged checkpoint may say anything
            counts[version][topics[topic]] += rows
    return {version: dict(sorted(found.items())) for version, found in counts.items()}


def _segments(follower: Follower, versions: set[int]) -> _Segments:
    """The segments that entries of these versions made visible, without merged ones."""

    def look(state: State) -> tuple[Manifest | None, _Segments]:
        recent = [item for item in state.segments.values() if item.state == "visible" and not item.compacted]
        return follower.base, {
            item.number: (item.ended_version, item.topic, item.rows)
            for item in recent
            if item.ended_version is not None and item.ended_version in versions
        }

    base, found = follower.look(look)
    earlier = [version for version in versions if base is not None and version <= base.version]
    if base is None or not earlier:
        return found
    wanted = pa.array(earlier, pa.int64())
    for part in base.runs("segments"):
        if part.first_version <= max(earlier) and part.last_version >= min(earlier):
            run = follower.log.checkpoints.read_run(part).select(
                ["number", "ended_version", "topic", "rows", "state", "compacted"]
            )
            written = pc.and_(pc.equal(run.column("state"), "visible"), pc.invert(run.column("compacted")))
            for row in run.filter(pc.and_(written, pc.is_in(run.column("ended_version"), wanted))).to_pylist():
                found[row["number"]] = (row["ended_version"], row["topic"], row["rows"])
    return found


__all__ = ["history"]
