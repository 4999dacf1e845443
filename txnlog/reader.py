"""Reading planned segments as Arrow, verified, with the metadata columns that the log knows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from txnlog import schema as schemas
from txnlog import segment_file
from txnlog.errors import CorruptionError, InvalidInputError
from txnlog.ids import TxnId
from txnlog.names import nearest
from txnlog.planner import PlannedSegment, PlannedSlice, ScanPlan
from txnlog.runtime import Runtime
from txnlog.schema import StructType
from txnlog.store.base import ObjectNotFound, Store

METADATA_FIELDS = (
    pa.field("_partition", pa.int32(), False),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", pa.timestamp("us", "UTC")),
    pa.field("_txn_id", pa.binary(16), False),
    pa.field("_version", pa.int64()),
)
STATE_FIELD = pa.field("_txn_state", pa.string(), False)

_CACHED_BYTES = 64 << 20
_CACHEABLE_BYTES = 4 << 20
"""Small segments are cut into many batches by consumers: kept decoded, up to a bound."""

_READ_AHEAD = 4


def output_schema(plan: ScanPlan, columns: Sequence[str] | None, *, include_metadata: bool) -> pa.Schema:
    """The Arrow schema of a scan. Raises InvalidInputError for a column the topic does not have."""
    schema = schemas.to_arrow(plan.schema)
    if columns is not None:
        for name in columns:
            if name not in schema.names:
                raise InvalidInputError(
                    f"the topic {plan.topic!r} has no column {ascii(name)[:80]}",
                    advice=nearest(str(name), schema.names),
                )
        schema = pa.schema([schema.field(name) for name in columns])
    if include_metadata:
        for field in METADATA_FIELDS:
            schema = schema.append(field)
        if plan.isolation_level == "read_uncommitted":
            schema = schema.append(STATE_FIELD)
    return schema


class SegmentReader:
    """Fetches and decodes segments of one namespace. Thread-safe."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, int], pa.Table] = OrderedDict()
        self._cached_bytes = 0
        self._arrow: dict[int, tuple[StructType, pa.Schema]] = {}

    def batches(
        self, plan: ScanPlan, *, columns: Sequence[str] | None = None, include_metadata: bool = False
    ) -> Iterator[pa.Table]:
        """One table a segment, in the plan's order; a few segments are fetched ahead.

        Raises CorruptionError for a segment that is missing or is not what the log recorded.
        """
        schema = output_schema(plan, columns, include_metadata=include_metadata)
        for first in range(0, len(plan.segments), _READ_AHEAD):
            chunk = plan.segments[first : first + _READ_AHEAD]
            calls = [_Decode(self, plan, segment, columns) for segment in chunk]
            for segment, table in zip(chunk, self._runtime.run_all(calls), strict=True):
                yield self._shape(plan, segment, table, columns, schema, include_metadata=include_metadata)

    def decode(self, plan: ScanPlan, segment: PlannedSegment, columns: Sequence[str] | None) -> pa.Table:
        """All rows of a segment: the wanted columns and the metadata columns that the file stores."""
        key = (segment.key, id(plan.schema))
        small = segment.size_bytes <= _CACHEABLE_BYTES
        if small:
            with self._lock:
                table = self._cache.get(key)
                if table is not None:
                    self._cache.move_to_end(key)
                    return table
        try:
            data = self._store.get(segment.key)
        except ObjectNotFound:
            raise CorruptionError(f"the segment {segment.key} is missing") from None
        if len(data) != segment.size_bytes:
            raise CorruptionError(
                f"the segment {segment.key} has {len(data):,} bytes, the log recorded {segment.size_bytes:,}"
            )
        schema = self._arrow_schema(plan)
        for name, kind, stored in (
            ("_txn", pa.int64(), segment.stores_txn),
            ("_partition", pa.int32(), segment.stores_partition),
            ("_version", pa.int64(), segment.compacted),
            ("_timestamp", pa.timestamp("us", "UTC"), segment.compacted),
        ):
            if stored:
                schema = schema.append(pa.field(name, kind))
        wanted = None
        if columns is not None and not small:
            wanted = [*columns, *(name for name in schema.names if name.startswith("_"))]
        table = segment_file.decode(
            data, segment.checksum, schema=schema, rows=segment.file_rows, columns=wanted, key=segment.key
        )
        if small:
            self._remember(key, table)
        return table

    def _arrow_schema(self, plan: ScanPlan) -> pa.Schema:
        known = self._arrow.get(id(plan.schema))
        if known is None:
            known = (plan.schema, schemas.to_arrow(plan.schema))
            self._arrow[id(plan.schema)] = known
        return known[1]

    def _remember(self, key: tuple[str, int], table: pa.Table) -> None:
        with self._lock:
            self._cache[key] = table
            self._cached_bytes += table.nbytes
            while self._cached_bytes > _CACHED_BYTES:
                _, old = self._cache.popitem(last=False)
                self._cached_bytes -= old.nbytes

    @staticmethod
    def _shape(
        plan: ScanPlan,
        segment: PlannedSegment,
        table: pa.Table,
        columns: Sequence[str] | None,
        schema: pa.Schema,
        *,
        include_metadata: bool,
    ) -> pa.Table:
        names = [field.name for field in plan.schema.fields] if columns is None else list(columns)
        pieces: list[pa.Table] = []
        for item in segment.slices:
            rows = table.slice(item.first_row, item.rows)
            if segment.stores_partition:
                _check_partition(segment, item, rows)
            piece = rows.select(names)
            if include_metadata:
                for name, column in _metadata(plan, segment, item, rows):
                    piece = piece.append_column(name, column)
            pieces.append(piece)
        return pa.concat_tables(pieces).cast(schema)


class _Decode:
    """One segment to decode: a call for the runtime."""

    def __init__(
        self, reader: SegmentReader, plan: ScanPlan, segment: PlannedSegment, columns: Sequence[str] | None
    ) -> None:
        self._arguments = (plan, segment, columns)
        self._reader = reader

    def __call__(self) -> pa.Table:
        return self._reader.decode(*self._arguments)


def _check_partition(segment: PlannedSegment, item: PlannedSlice, rows: pa.Table) -> None:
    """What the file says of its partitions must be what the log says: the two are checked against each other."""
    stored = rows.column("_partition")
    if any((np.asarray(chunk) != item.partition).any() for chunk in stored.chunks):
        raise CorruptionError(f"the segment {segment.key} has its rows in other partitions than the log recorded")


def _metadata(
    plan: ScanPlan, segment: PlannedSegment, item: PlannedSlice, rows: pa.Table
) -> Iterator[tuple[str, pa.Array | pa.ChunkedArray]]:
    count = item.rows
    yield "_partition", _repeat(item.partition, count, pa.int32())
    if item.offset is None:
        yield "_offset", pa.nulls(count, pa.int64())
    else:
        yield "_offset", pa.array(np.arange(item.offset, item.offset + count), pa.int64())
    if segment.compacted:
        yield "_timestamp", rows.column("_timestamp")
    else:
        milliseconds = segment.timestamp_ms
        value = None if milliseconds is None else milliseconds * 1000
        yield "_timestamp", _repeat(value, count, pa.int64()).cast(pa.timestamp("us", "UTC"))
    if segment.txn is not None and not segment.compacted:
        identity = TxnId(plan.coordinator, segment.txn).to_bytes()
        yield "_txn_id", _repeat(identity, count, pa.binary(16))
    else:
        yield "_txn_id", txn_ids(plan.coordinator, rows.column("_txn"))
    if segment.compacted:
        yield "_version", rows.column("_version")
    else:
        yield "_version", _repeat(segment.version, count, pa.int64())
    if plan.isolation_level == "read_uncommitted":
        yield STATE_FIELD.name, _repeat(segment.state, count, pa.string())


def _repeat(value: object, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def txn_ids(coordinator: int, numbers: pa.ChunkedArray) -> pa.Array:
    """The 16-byte TxnIDs of a column of numbers."""
    words = np.empty((len(numbers), 2), ">u8")
    words[:, 0] = coordinator << 48
    words[:, 1] = numbers.to_numpy()
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(numbers), [None, pa.py_buffer(words.tobytes())])


__all__ = ["METADATA_FIELDS", "STATE_FIELD", "SegmentReader", "output_schema", "txn_ids"]
