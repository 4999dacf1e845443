"""The Delta table of a namespace's segments: which rows of which partition each contains, and since which version.

It is a plain Delta table next to those of the topics. Each of its files contains the segments that became visible in a
stretch of versions; the file of the last stretch is replaced by a longer one at each publication. So what the table
shows follows from the version of the namespace alone, and its files are few.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from catalog.delta_log.commit import (
    LOG_PROPERTIES,
    Identity,
    TableMetadata,
    TableVersion,
    added,
    checkpoint_actions,
    commit_lines,
    removed,
)
from catalog.delta_log.objects import DeltaLog
from catalog.delta_log.parquet_footer import read_footer
from catalog.publication.table import Action
from catalog.publication.topic_table import LogTimes, table_origin
from txnlog.common.signal_errors import raise_of_handler
from txnlog.engine.runtime import Runtime
from txnlog.fold.state import SegmentRecord
from txnlog.format.keys import SEGMENTS_TABLE
from txnlog.format.schema import StructField, StructType, to_arrow
from txnlog.log.follower import Follower

_logger = logging.getLogger("txnlog.publisher")

STRETCH: Final = 1_000
"""Versions of the namespace whose segments share a file."""

MOST_STRETCHES: Final = 100
"""The most stretches that one Delta version adds: their files are in memory at once."""

KEPT_MS: Final = 7 * 24 * 3_600_000
"""How long files stay that the newest version does not name: a reader that began before is done by then."""

SCHEMA: Final = StructType(
    (
        StructField("segment", "long"),
        StructField("topic", "string"),
        StructField("topic_id", "long"),
        StructField("partition", "integer"),
        StructField("base_offset", "long"),
        StructField("first_row", "long"),
        StructField("rows", "long"),
        StructField("version", "long"),
        StructField("timestamp", "timestamp"),
        StructField("txn_id", "string"),
    )
)
"""The columns, with a row for each partition of each segment. ``version`` and ``timestamp`` are null where a segment's
rows have values of their own, and ``txn_id`` where it contains several transactions."""

_ARROW: Final = to_arrow(SCHEMA)

_TIMES_AS_LARGE: Final = 4
"""How many times larger than its rows in memory a file may be, whoever wrote it. A larger file has other rows."""

_ANY_BYTES: Final = 1 << 16
"""Bytes that a file may have in addition, for its footer, however few its rows are."""


class SegmentsTable:
    """The table of the segments of a namespace."""

    def __init__(self, follower: Follower, log: DeltaLog, runtime: Runtime) -> None:
        self.follower = follower
        self.log = log
        self.runtime = runtime
        self.name = SEGMENTS_TABLE
        self.identity = Identity(follower.state.head.first_coordinator, table=SEGMENTS_TABLE)
        self.begins = True
        self.times = LogTimes(follower)
        self._metadata: TableMetadata | None = None

    def view(self, after: int) -> SegmentsView:
        """See Table."""
        return SegmentsView(self, after)

    def refresh(self) -> None:
        """See Table."""
        self.follower.refresh()

    def metadata(self) -> TableMetadata:
        """The metadata of the table, which never changes."""
        if self._metadata is None:
            origin = table_origin(self.follower, 0)
            self._metadata = TableMetadata(origin.id, "segments", origin.created_ms, LOG_PROPERTIES)
        return self._metadata

    def tidy(self, shown: TableVersion) -> None:
        """Delete the data files that the newest version does not name, a week after they were replaced."""
        view = self.view(-1)
        named = {file for file, _ in view.files(shown.version)}
        files = dict(self.log.files())
        # At most the newest file's time: a clock that is ahead must not delete files that others just made.
        now_ms = min(self.runtime.now_ms(), max(files.values(), default=0))
        since_ms = files | view.followed(files)
        old = [unique for unique in files if unique not in named and now_ms - since_ms[unique] > KEPT_MS]
        self.runtime.run_all([partial(self.log.delete_file, unique) for unique in old])


class SegmentsView:
    """What the table shows after a version, by one look at the materialized state."""

    def __init__(self, table: SegmentsTable, after: int) -> None:
        self._table = table
        follower = table.follower
        first = max(0, after) // STRETCH * STRETCH
        self.newest, topics, base, records = follower.look(
            lambda state: (
                state.head.version,
                list(state.topics.values()),
                follower.base,
                list(state.segments.values()),
            )
        )
        self._topics = {item.id: item.name for item in topics}
        if base is not None and first <= base.version:
            records = [item for topic in self._topics for item in follower.segments(topic)[0]]
        self._by_version: dict[int, list[SegmentRecord]] = {}
        for record in sorted(records, key=lambda item: item.number):
            if record.state == "visible" and record.ended_version is not None and record.ended_version >= first:
                self._by_version.setdefault(record.ended_version, []).append(record)
        self._versions = sorted(self._by_version)

    def _changes(self, after: int) -> list[int]:
        found = [version for version in self._versions if after < version <= self.newest]
        return found if after >= 0 else sorted({0, *found})

    def next_version(self, after: int) -> int | None:
        """See View."""
        changes = self._changes(after)
        if not changes:
            return None
        limit = (changes[0] // STRETCH + MOST_STRETCHES) * STRETCH
        return max(version for version in changes if version < limit)

    def least_version(self, after: int) -> int | None:
        """See View."""
        return next(iter(self._changes(after)), None)

    def may_show(self, version: int) -> bool:
        """See View."""
        return version == 0 or version in self._by_version

    def time_of(self, version: int) -> int:
        """See View."""
        for record in self._by_version.get(version, ()):
            if record.timestamp_ms is not None:
                return record.timestamp_ms
        return self._table.times.of(version)

    def files(self, version: int) -> list[tuple[str, range]]:
        """The files of the table at a covered version, each with the versions whose segments it contains."""
        found: dict[int, int] = {}
        for item in self._versions:
            if item <= version:
                found[item // STRETCH] = item
        return [(self._unique(last), range(stretch * STRETCH, last + 1)) for stretch, last in sorted(found.items())]

    def followed(self, files: Mapping[str, int]) -> dict[str, int]:
        """The modification times of replaced files' successors: until then the newest version named the files.

        Args:
            files: the modification times of the existing files by name, in epoch milliseconds.
        """
        found: dict[str, int] = {}
        stretch, longer = -1, None
        for last in reversed(self._versions):
            unique = self._unique(last)
            if unique not in files:
                continue
            if longer is not None and last // STRETCH == stretch:
                found[unique] = files[longer]
            stretch, longer = last // STRETCH, unique
        return found

    def _unique(self, last: int) -> str:
        """The name of the file whose newest segments became visible at a version."""
        text = f"{self._table.identity.coordinator}/{last}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def commit(self, shown: TableVersion) -> bytes:
        """See View. Missing or damaged files are written first."""
        before = {} if shown.before < 0 else dict(self.files(shown.before))
        after = dict(self.files(shown.version))
        actions: list[Action] = [
            {"remove": self._remove(unique, shown.timestamp_ms)} for unique in before if unique not in after
        ]
        actions += [
            {"add": self._add(unique, versions, changes=True)}
            for unique, versions in after.items()
            if unique not in before
        ]
        metadata = self._table.metadata().as_json(_schema_json()) if shown.delta_version == 0 else None
        operation = "CREATE TABLE" if shown.delta_version == 0 else "WRITE"
        return commit_lines(self._table.identity, shown, actions, operation=operation, metadata=metadata)

    def file_count(self, version: int) -> int:
        """See View."""
        return len(self.files(version))

    def checkpoint(self, shown: TableVersion) -> Sequence[Action]:
        """See View."""
        files = (self._add(unique, versions, changes=False) for unique, versions in self.files(shown.version))
        metadata = self._table.metadata().as_json(_schema_json())
        return checkpoint_actions(self._table.identity, shown, files, metadata=metadata)

    def _add(self, unique: str, versions: range, *, changes: bool) -> dict[str, Any]:
        table = self._rows(versions)
        return added(
            f"{unique}.parquet",
            self._written_size(unique, table),
            self.time_of(versions[-1]),
            stats=msgspec.json.encode(_statistics(table)).decode(),
            changes=changes,
        )

    def _written_size(self, unique: str, table: pa.Table) -> int:
        """Write a data file if it is missing or does not contain these rows. Returns the file's size in bytes.

        Files are compared by their rows: another version of the Parquet library writes other bytes for the same rows.
        """
        log = self._table.log
        wanted = _encoded(table)
        found = log.file(unique, _most_bytes(table) + 1)  # one byte more shows that a file is too large
        if found is None:
            found = log.create_file(unique, wanted)
        if found == wanted or _holds(found, table):
            return len(found)
        log.overwrite_file(unique, wanted)
        _logger.warning(
            "the file %s.parquet of the Delta table of %r was damaged: the log says what it should be",
            unique,
            self._table.name,
        )
        return len(wanted)

    def _remove(self, unique: str, timestamp_ms: int) -> dict[str, Any]:
        return removed(f"{unique}.parquet", self._table.log.file_size(unique) or 0, timestamp_ms, changes=True)

    def _rows(self, versions: range) -> pa.Table:
        """The rows of segments that became visible in a stretch of versions."""
        rows: list[dict[str, Any]] = []
        for version in self._versions:
            if version in versions:
                for record in self._by_version[version]:
                    rows += self._rows_of(record)
        return pa.Table.from_pylist(rows, _ARROW)

    def _rows_of(self, record: SegmentRecord) -> list[dict[str, Any]]:
        coordinators = self._table.follower.state.head.coordinators
        own = record.txn is not None and not record.compacted
        rows: list[dict[str, Any]] = []
        first_row = 0
        for item in record.slices:
            rows.append(
                {
                    "segment": record.number,
                    "topic": self._topics[record.topic],
                    "topic_id": record.topic,
                    "partition": item.partition,
                    # Of a file with holes only its rows say at which offsets they are.
                    "base_offset": item.offset if record.extent is None else None,
                    "first_row": first_row,
                    "rows": item.rows,
                    "version": None if record.compacted else record.ended_version,
                    "timestamp": None if record.compacted else (record.timestamp_ms or 0) * 1_000,
                    "txn_id": str(coordinators.txn_id(record.txn)) if own and record.txn is not None else None,
                }
            )
            first_row += item.rows
        return rows


def _statistics(table: pa.Table) -> dict[str, Any]:
    """Delta's statistics of a file, with bounds for all columns: :mod:`catalog.delta_log.statistics` says why."""
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    for name in table.column_names:
        found = pc.min_max(table.column(name))
        for side, value in zip(bounds.values(), (found["min"].as_py(), found["max"].as_py()), strict=True):
            if value is not None:
                side[name] = _as_json(value)
    nulls = {name: table.column(name).null_count for name in table.column_names}
    return {"numRecords": table.num_rows, **bounds, "nullCount": nulls}


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime.datetime):  # always whole milliseconds
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return value


def _schema_json() -> str:
    return msgspec.json.encode(SCHEMA).decode()


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", store_schema=False)
    return sink.getvalue().to_pybytes()


def _most_bytes(table: pa.Table) -> int:
    """An upper bound for the bytes of a file of these rows, compressed or decompressed."""
    return _TIMES_AS_LARGE * int(table.nbytes) + _ANY_BYTES


def _holds(data: bytes, table: pa.Table) -> bool:
    """Whether a file contains exactly these rows. Its pages are not read if its footer claims more rows or bytes."""
    most = _most_bytes(table)
    if len(data) > most:
        return False
    try:
        footer = read_footer(lambda start, end: data[start:end], len(data))
        if footer.rows != table.num_rows or sum(chunk.uncompressed_bytes for chunk in footer.chunks) > most:
            return False
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        return bool(file.schema_arrow.equals(table.schema) and file.read().equals(table))
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise_of_handler(error)
        return False


__all__ = ["KEPT_MS", "MOST_STRETCHES", "SCHEMA", "STRETCH", "SegmentsTable", "SegmentsView"]
