"""The end of a run, simulated or of processes: everything is read and written down, and the log is replayed from zero.

What ``final`` of a history shows is here, and what no history shows: that the entries follow each other by the rules,
that every checkpoint and every client's state is the replay, and that the files are those that the log names.
"""

from __future__ import annotations

import contextlib
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from txnlog.common import ranges
from txnlog.common.ids import TxnId
from txnlog.common.writer_text import writer_of
from txnlog.fold.apply import apply_entry
from txnlog.fold.garbage import unneeded_from
from txnlog.fold.state import HEAD, State
from txnlog.format import keys
from txnlog.format.actions import Abort, AnyAction, Commit, DeleteRecords, Replace, Reserve, Segment
from txnlog.format.codec import Entry, decode_entry
from txnlog.log import checkpoint_codec
from txnlog.log.follower import Follower
from txnlog.log.log_reader import Log
from txnlog.store import Store
from txnlog.store.base import ObjectNotFound
from txnlog.testing import check_entries
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.checker import check
from txnlog.testing.client import Rows, rows_of
from txnlog.testing.facts import Subscribed
from txnlog.testing.history import History
from txnlog.testing.keyed import numbers_of
from txnlog.testing.operation_parts import (
    DeadLetter,
    MissingFile,
)
from txnlog.testing.operations import (
    Committed,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.snapshot import Snapshot

Problem = Callable[[str, str], object]
"""Called with the kind of a failure and what was seen."""

Cursors = dict[Subscribed, dict[int, tuple[int, tuple[tuple[int, int], ...]]]]
"""By subscription and partition the cursor, and the acknowledged ranges above it."""


# --- what the history has ---------------------------------------------------------------------------------------------


def judge(history: History) -> list[Finding]:
    """The findings of a history, without the cycles of writes that lie in one entry.

    There what shares its segments comes first in a partition, whoever was first among the commits: see
    docs/decisions/0009. Nobody can see the one without the other.
    """
    return [finding for finding in check(history) if not _within_one_entry(finding)]


def _within_one_entry(finding: Finding) -> bool:
    versions = {operation.result.version for operation in finding.operations if isinstance(operation.result, Committed)}
    return finding.anomaly is Anomaly.G0 and len(versions) == 1


def ends_of(state: State, transactions: Iterable[str]) -> dict[str, tuple[str, int | None]]:
    """State and version of those transactions that the log knows."""
    found: dict[str, tuple[str, int | None]] = {}
    for text in transactions:
        number = TxnId.parse(text).number
        ended = state.outcomes.get(number)
        if ended is not None:
            found[text] = (ended.state, ended.version)
        elif number in state.transactions:
            found[text] = (state.transactions[number].state, None)
    return found


def cursors_of(ns: Namespace, subscriptions: Iterable[Subscribed]) -> Cursors:
    """The cursors of subscriptions, as a client reads them."""
    return {
        (topic, name): {
            item.partition: (item.cursor, item.acknowledged) for item in ns.subscription(topic, name).cursors
        }
        for topic, name in subscriptions
    }


def dead_letters(snapshot: Snapshot, topic: str, subscription: str) -> tuple[DeadLetter, ...]:
    """What lies in the dead-letter topic of a subscription."""
    names = ("_source_topic", "_source_partition", "_source_offset", "_redeliveries", "_version")
    table = snapshot.read(topic, include_metadata=True)
    columns = [table.column(name).to_pylist() for name in names]
    return tuple(
        DeadLetter(source, subscription, partition, offset, value, *more)
        for source, partition, offset, *more, value in zip(*columns, numbers_of(table), strict=True)
    )


# --- what it does not have --------------------------------------------------------------------------------------------


def check_ends(
    rows: Rows,
    ends: Mapping[Subscribed, Mapping[int, int]],
    cursors: Cursors,
    problem: Problem,
    starts: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> None:
    """Offsets are dense, and every subscription came to the end of its topic.

    Args:
        rows: what is there, and what was there before it was deleted or erased.
        ends: of each subscription the ends of its topic.
        cursors: of each subscription.
        problem: called with what is wrong.
        starts: the earliest offsets, by topic and partition, as far as they are above 0.
    """
    for place, found in rows.items():
        start = 0
        if [row[0] for row in found] != list(range(start, start + len(found))):
            problem("offsets", f"{place}: offsets {[row[0] for row in found]} are not dense from {start} on")
    for (topic, name), partitions in cursors.items():
        for partition, (cursor, acknowledged) in partitions.items():
            start, end = starts.get((topic, partition), 0), ends[topic, name][partition]
            done = ranges.normalize(((0, max(start, cursor)), *acknowledged))
            if ranges.subtract(((0, end),) if end else (), done) or (cursor != end and cursor >= start):
                problem("liveness", f"{topic}:{name} stays at {partitions}, the topic ends at {ends[topic, name]}")


def all_rows(ns: Namespace, entries: Iterable[Entry], rows: Rows) -> Rows:
    """What is there, and what was there before: as it was read in front of each deletion and each erasure.

    Every file that there ever was has to be there.

    The state of the client is as before afterwards.
    """
    found: dict[tuple[str, int], dict[int, tuple[int, int, str, int]]] = {}
    with everything_readable(ns):
        for entry in entries:
            if any(_takes_rows(action) for action in entry.actions):
                for place, shown in rows_of(ns, ns.snapshot(entry.header.version - 1)).items():
                    kept = found.setdefault(place, {})
                    for row in shown:
                        kept.setdefault(row[0], row)
    for place, shown in rows.items():
        found.setdefault(place, {}).update({row[0]: row for row in shown})
    return {place: tuple(known[offset] for offset in sorted(known)) for place, known in found.items()}


@contextlib.contextmanager
def everything_readable(ns: Namespace) -> Iterator[None]:
    """Have a client see what a reader of today does not see at any version: what is deleted, and what a vacuum took."""
    state = ns._connection.follower.state
    starts, head = state.starts, state.head
    state.starts, state.heads[HEAD] = {}, msgspec.structs.replace(head, oldest_readable=0)
    try:
        yield
    finally:
        state.starts, state.heads[HEAD] = starts, head


def makes_holes(action: AnyAction) -> bool:
    """Whether an action brings a segment in which messages may be missing."""
    return isinstance(action, Segment) and action.extent is not None


def _takes_rows(action: AnyAction) -> bool:
    return isinstance(action, DeleteRecords) or makes_holes(action)


def replay(log: Log, problem: Problem) -> tuple[State, list[Entry]]:
    """The state from version 0 on without checkpoints, and the entries. The newest checkpoint holds it, too."""
    entries: list[Entry] = []
    while batch := log.get_many(len(entries), 64):
        entries += [decode_entry(data, version) for version, data in enumerate(batch, len(entries))]
    for text in check_entries.check(entries):
        problem("log", text)
    named = max((entry.header.checkpoint or 0 for entry in entries), default=0)
    state = State()
    for entry in entries:
        apply_entry(state, entry)
        if named and entry.header.version == named:
            for text in _differences(log, state.copy(), named):
                problem("checkpoint", text)
    return state, entries


def labels_of(entries: Iterable[Entry]) -> Iterator[str]:
    """What entries show of group commit between processes."""
    for writer, action, owner in _with_owners(entries):
        if isinstance(action, Reserve) and owner != writer:
            yield "numbers were reserved by another writer"
        elif isinstance(action, Commit) and owner != writer:
            yield "a commit was brought by another writer"
        elif isinstance(action, Abort) and owner == writer and action.reason == "failed":
            yield "a proposal was made void"


def merged_of(entries: Iterable[Entry]) -> Iterator[str]:
    """What entries show of merges."""
    for entry in entries:
        for action in entry.actions:
            if isinstance(action, Replace):
                yield "segments were replaced"


def collectors_of(entries: Iterable[Entry]) -> set[str]:
    """The writers that brought commits of others into the log."""
    return {writer for writer, action, owner in _with_owners(entries) if isinstance(action, Commit) and owner != writer}


def _with_owners(entries: Iterable[Entry]) -> Iterator[tuple[str, Reserve | Commit | Abort, str]]:
    """Who wrote an action, the action, and the writer whose block or number it is."""
    owners: dict[int, str] = {}
    blocks: list[int] = []
    for entry in entries:
        for action in entry.actions:
            if isinstance(action, Reserve):
                owner = writer_of(action.writer)
                owners[action.first] = owner
                blocks.append(action.first)  # they follow each other
                yield entry.header.writer, action, owner
            elif isinstance(action, Commit | Abort) and (place := bisect_right(blocks, action.txn)):
                yield entry.header.writer, action, owners[blocks[place - 1]]


def _differences(log: Log, expected: State, version: int) -> Iterator[str]:
    """What a checkpoint says otherwise than the replay up to its version."""
    manifest = log.checkpoints.manifest(version)
    restored = log.checkpoints.restore(manifest).as_tables()
    segments = {record.number: record for record in expected.segments.values() if record.ended_version is not None}
    checkpoint_codec.trim(expected, version)
    for table, wanted in expected.as_tables().items():
        if restored[table] != wanted:
            yield f"checkpoint {version}: {table} {restored[table]} is not {wanted}"
    for topic in expected.topics:
        parts = manifest.runs("segments")
        held = {record.number: record for part in parts for record in log.checkpoints.segments(part, topic)}
        if held != {number: record for number, record in segments.items() if record.topic == topic}:
            yield f"checkpoint {version}: the segments of topic {topic} differ from a replay"


def compare_state(name: str, zero: State, follower: Follower, problem: Problem) -> None:
    """What a client holds in memory is the replay, without what the checkpoint that it began with keeps."""
    expected = zero
    if follower.base is not None:
        expected = zero.copy()
        checkpoint_codec.trim(expected, follower.base.version)
    tables = follower.state.as_tables()
    for table, wanted in expected.as_tables().items():
        if tables[table] != wanted:
            problem("state", f"{name}: {table} {tables[table]} is not {wanted}")
    for topic in zero.topics if follower.base is not None else ():
        everything = {number: item for number, item in zero.segments.items() if item.topic == topic}
        if {item.number: item for item in follower.segments(topic)[0]} != everything:
            problem("state", f"{name}: the segments of topic {topic} differ from a replay")


def reading(store: Store) -> Callable[[str], bytes | None]:
    """Reads an object of a store; None where there is none."""

    def read(key: str) -> bytes | None:
        try:
            return store.get(key)
        except ObjectNotFound:
            return None

    return read


def missing_files(state: State, read: Callable[[str], bytes | None], problem: Problem) -> Iterator[MissingFile]:
    """Files that are not there, though the log names them and a readable version or an open transaction needs them.

    What is there has the size and checksum that the log has, and the checkpoint that headers name is whole.
    """
    for record in state.segments.values():
        topic = state.topics[record.topic]
        until = unneeded_from(record, state.removals, topic.dropped_version)
        if until is not None and until <= state.head.oldest_readable:
            continue
        key = keys.segment_key(topic.folder, record.number, record.file)
        found = read(key)
        if found is None:
            yield MissingFile(key, until)
        elif (len(found), f"crc32:{zlib.crc32(found):08x}") != (record.size_bytes, record.checksum):
            problem("store", f"{key} is not what the log says")
    named = state.head.checkpoint
    manifest = None if named is None else read(keys.manifest_key(named))
    parts = () if named is None or manifest is None else checkpoint_codec.decode_manifest(manifest, named).parts
    lost = [part.unique for part in parts if read(keys.part_key(part.unique)) is None]
    if lost or (named is not None and manifest is None):
        problem("store", f"of the checkpoint {named}, which headers name, {lost} are gone")


__all__ = [
    "Problem",
    "all_rows",
    "check_ends",
    "compare_state",
    "cursors_of",
    "dead_letters",
    "ends_of",
    "everything_readable",
    "judge",
    "labels_of",
    "makes_holes",
    "merged_of",
    "missing_files",
    "reading",
    "replay",
]
