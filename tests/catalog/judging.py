"""What is published in a store and what the log says of it, gathered without the code that publishes, and judged.

What must hold is in ``tests.catalog.replaying``.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.catalog.replaying import (
    Facts,
    File,
    Published,
    replay_segments,
    replay_topic,
    segments_difference,
)
from txnlog.api.namespace import Namespace
from txnlog.fold.state import SegmentRecord, TopicRecord
from txnlog.format import keys
from txnlog.store.base import Store

_SEGMENTS = pa.schema(
    [
        ("segment", pa.int64()),
        ("topic", pa.string()),
        ("topic_id", pa.int64()),
        ("partition", pa.int32()),
        ("base_offset", pa.int64()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),
        ("version", pa.int64()),
        ("txn_id", pa.string()),
        ("since", pa.int64()),
    ]
)
SEGMENT_COLUMNS = tuple(_SEGMENTS.names[:-1])


# --- what lies there --------------------------------------------------------------------------------------------------


def published_in(
    folder: str, objects: Iterable[tuple[str, bytes]], seen: Mapping[int, bytes] | None = None
) -> Published:
    """All that lies in a table's Delta log, by name; ``seen`` is what somebody found there before."""
    commits: dict[int, bytes] = {}
    points: dict[int, dict[str, int]] = {}
    loud: set[int] = set()
    others: list[str] = []
    hint = None
    for name, data in objects:
        key = keys.parse_key(f"{keys.delta_prefix(folder)}{name}")
        if not isinstance(key, keys.DeltaKey):
            others.append(name)
        elif key.version is None:
            hint = json.loads(data)["version"]
        elif key.checkpoint:
            table = pq.read_table(io.BytesIO(data))
            rows = table.column("add").to_pylist() if "add" in table.column_names else []
            points[key.version] = {row["path"]: row["size"] for row in rows if row is not None}
            loud |= {key.version for row in rows if row is not None and row["dataChange"] is not False}
        else:
            commits[key.version] = data
    return Published(dict(sorted(commits.items())), seen or {}, points, frozenset(loud), hint, tuple(others))


def _log_of(store: Store, folder: str) -> Iterable[tuple[str, bytes]]:
    prefix = keys.delta_prefix(folder)
    return ((info.key.removeprefix(prefix), store.get(info.key)) for info in store.list(prefix))


def commits_of(store: Store, folder: str) -> Mapping[int, bytes]:
    """The commits of a table in a namespace's store, by version."""
    objects = ((name, data) for name, data in _log_of(store, folder) if name.endswith(".json"))
    return published_in(folder, objects).commits


# --- what the log says ------------------------------------------------------------------------------------------------


def facts_of(ns: Namespace, record: TopicRecord) -> Facts:
    """Of a topic, by the fold as it is known."""
    records, removals = ns._connection.follower.segments(record.id)
    files = tuple(
        File(
            keys.relative_segment_key(item.number, item.file),
            item.number,
            item.rows,
            item.size_bytes,
            tuple((part.partition, _known(part.offset), part.rows) for part in item.slices),
            _known(item.ended_version),
            removals.get(item.number),
        )
        for item in records
        if _is_shown(item)
    )
    schemas = tuple((item.version, _columns(item.schema)) for item in record.schemas)
    return Facts(record.name, record.id, schemas, files, record.dropped_version)


def segments_of(ns: Namespace) -> pa.Table:
    """What the table of segments must hold by the fold as it is known, each with the version ``since`` which."""
    rows: list[tuple[Any, ...]] = []
    for topic in ns._connection.follower.state.topics.values():
        for item in filter(_is_shown, ns._connection.follower.segments(topic.id)[0]):
            txn = None if item.compacted or item.txn is None else str(ns._connection.txn_id(item.txn))
            version = None if item.compacted else item.ended_version
            first = 0
            for part in item.slices:
                place = (item.number, topic.name, topic.id, part.partition, part.offset, first, part.rows)
                rows.append((*place, version, txn, item.ended_version))
                first += part.rows
    return pa.Table.from_pylist([dict(zip(_SEGMENTS.names, row, strict=True)) for row in rows], _SEGMENTS)


def _is_shown(record: SegmentRecord) -> bool:
    return record.state == "visible" and record.ended_version is not None


def _known(value: int | None) -> int:
    assert value is not None, "what is visible has offsets and a version"
    return value


def _columns(schema: object) -> tuple[tuple[str, object], ...]:
    fields = json.loads(msgspec.json.encode(schema))["fields"]
    return tuple((item["name"], item["type"]) for item in fields)


def segment_rows(ns: Namespace, version: int) -> list[tuple[Any, ...]]:
    """What the log says, in SEGMENT_COLUMNS, of the segments that were visible at a version or before."""
    wanted = segments_of(ns)
    return in_order(wanted.filter(pc.less_equal(wanted.column("since"), version)))


def in_order(found: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of the table of segments in SEGMENT_COLUMNS, sorted by all of them but those that may be null."""
    rows = found.select(SEGMENT_COLUMNS).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: row[:7])


# --- the judgement ----------------------------------------------------------------------------------------------------


def check_table(
    ns: Namespace, topic: str, *, complete: bool = True, may_stop: bool = False, may_repeat: bool = False
) -> list[int]:
    """A topic's table is all that it must be, and what the log's own readers see. Returns what its versions show.

    ``complete``, ``may_stop`` and ``may_repeat`` are those of :func:`~tests.catalog.replaying.replay_topic`.
    """
    ns._connection.follower.refresh()
    record = ns._connection.topic_record(topic)
    facts = facts_of(ns, record)
    published = published_in(record.folder, _log_of(ns._connection.store, record.folder))
    replay = replay_topic(facts, published, complete=complete, may_stop=may_stop, may_repeat=may_repeat)
    assert not replay.findings, "\n".join(replay.findings)
    newest = [ns.snapshot().version] if complete else []
    for version in (*replay.shown, *newest):
        planned = {item.key for item in ns.snapshot(version=version).plan(topic).segments}
        there = {f"{record.folder}/{item.path}" for item in facts.files if item.is_there(version)}
        assert planned == there, f"version {version} of the namespace"
    if complete:
        _check_rows(ns, facts)
    return replay.shown


def _check_rows(ns: Namespace, facts: Facts) -> None:
    """Whoever reads the newest version sees all rows from the first offset on: those of its files, each once."""
    newest = ns.snapshot()
    offsets: dict[int, list[int]] = defaultdict(list)
    for row in newest.read(facts.name, include_metadata=True).select(["_partition", "_offset"]).to_pylist():
        offsets[row["_partition"]].append(row["_offset"])
    wanted: dict[int, list[int]] = defaultdict(list)
    for item in facts.files:
        if item.is_there(newest.version):
            for partition, first, count in item.spans:
                wanted[partition] += range(first, first + count)
    assert {partition: sorted(found) for partition, found in wanted.items()} == {
        partition: list(range(len(found))) for partition, found in offsets.items()
    }
    assert all(sorted(found) == list(range(len(found))) for found in offsets.values())


def check_segments_table(ns: Namespace, *, complete: bool = True, may_repeat: bool = False) -> list[int]:
    """The table of segments is all that it must be, and every version says what the log says.

    The newest one says all of it where it is ``complete``. Returns what its versions show.
    """
    ns._connection.follower.refresh()
    store, folder = ns._connection.store, keys.SEGMENTS_TABLE
    wanted = segments_of(ns)
    published = published_in(folder, _log_of(store, folder))
    log = keys.delta_prefix(folder)
    contents = {
        info.key.removeprefix(f"{folder}/"): store.get(info.key)
        for info in store.list(f"{folder}/")
        if not info.key.startswith(log)
    }
    sizes = {path: len(data) for path, data in contents.items()}
    replay = replay_segments(wanted, published, sizes, complete=complete, may_repeat=may_repeat)
    assert not replay.findings, "\n".join(replay.findings)
    named = {path for files in replay.files for path in files}
    assert named <= contents.keys(), f"versions name files that are not there: {sorted(named - contents.keys())}"
    # No others are read: a publisher writes its files first, and leaves them if another one's commit is there before.
    rows = {path: pq.read_table(io.BytesIO(contents[path])) for path in named}
    for version, (shows, files) in enumerate(zip(replay.shown, replay.files, strict=True)):
        parts = [table.select(SEGMENT_COLUMNS) for table in (_SEGMENTS.empty_table(), *(rows[path] for path in files))]
        found = pa.concat_tables(parts)
        odd = segments_difference(found, wanted, shows)
        assert odd is None, f"version {version}, which shows {shows}: {odd}"
    return replay.shown
