"""Reading planned segments as Arrow, verified, with the metadata columns that the log knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txnlog.common.lru import Recent
from txnlog.common.names import nearest
from txnlog.common.runtime import Runtime
from txnlog.data import segment_file
from txnlog.data.scan_planner import ScanPlan
from txnlog.data.segment_rows import (
    METADATA_FIELDS,
    STATE_FIELD,
    PlannedSegment,
    check_partitions,
    file_schema,
    metadata_column,
    naming_segment,
    slices_of,
    stored_fields,
)
from txnlog.errors import InvalidInputError, TxnLogError
from txnlog.format import schema as schemas
from txnlog.format.schema import StructType
from txnlog.store.base import ObjectNotFound, Store

_CACHED_BYTES = 64 << 20
_CACHEABLE_BYTES = 4 << 20
"""Small segments are cut into many batches by consumers: kept decoded, up to a bound."""

_OPEN_BYTES = 256 << 20
"""Big ones too, while a consumer is in the middle of them: else every batch would fetch and decode the whole file."""

_READ_AHEAD = 4


def output_schema(plan: ScanPlan, columns: Sequence[str] | None, *, include_metadata: bool) -> pa.Schema:
    """The Arrow schema of a scan. Raises InvalidInputError for a column the topic does not have."""
    schema = schemas.to_arrow(plan.schema)
    if columns is not None:
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise InvalidInputError("columns is a list of the names of columns", advice='use columns=["id"]')
        for name in columns:
            if name not in schema.names:
                raise InvalidInputError(
                    f"the topic {plan.topic!r} has no column {ascii(name)[:80]}",
                    advice="columns names the topic's own; include_metadata=True adds all of the metadata"
                    if name in {field.name for field in METADATA_FIELDS}
                    else nearest(str(name), schema.names),
                )
        schema = pa.schema([schema.field(name) for name in columns])
    if include_metadata:
        for field in METADATA_FIELDS:
            schema = schema.append(field)
        if plan.isolation_level == "read_uncommitted":
            schema = schema.append(STATE_FIELD)
    return schema


def parts_of(plan: ScanPlan) -> Iterator[ScanPlan]:
    """The plan in pieces, one after the other: the segments of each are fetched side by side."""
    for first in range(0, len(plan.segments), _READ_AHEAD):
        yield replace(plan, segments=plan.segments[first : first + _READ_AHEAD])


class SegmentReader:
    """Fetches and decodes segments of one namespace. Thread-safe."""

    def __init__(
        self, store: Store, runtime: Runtime, missing: Callable[[ScanPlan, PlannedSegment], TxnLogError]
    ) -> None:
        """``missing`` says what it means that a planned file is not there."""
        self._missing = missing
        self._store = store
        self._runtime = runtime
        self._small: Recent[tuple[str, int], pa.Table] = Recent(_CACHED_BYTES, _bytes_of)
        self._open: Recent[tuple[str, int], pa.Table] = Recent(_OPEN_BYTES, _bytes_of, least=1)
        self._arrow: dict[int, tuple[StructType, pa.Schema]] = {}

    def batches(
        self,
        plan: ScanPlan,
        *,
        columns: Sequence[str] | None = None,
        include_metadata: bool = False,
        in_parts: bool = False,
    ) -> Iterator[pa.Table]:
        """One table a segment, in the plan's order; a few segments are fetched ahead.

        ``in_parts``: the next call goes on in the last segment; so it is kept, decoded, until its end was read.

        Raises CorruptionError for a segment that is missing or is not what the log recorded.
        """
        schema = output_schema(plan, columns, include_metadata=include_metadata)
        for part in parts_of(plan):
            calls = [partial(self.decode, plan, segment, columns, in_parts=in_parts) for segment in part.segments]
            for segment, table in zip(part.segments, self._runtime.run_all(calls), strict=True):
                with naming_segment(plan.topic, segment):
                    shaped = self._shape(plan, segment, table, columns, schema, include_metadata=include_metadata)
                yield shaped

    def decode(
        self, plan: ScanPlan, segment: PlannedSegment, columns: Sequence[str] | None, *, in_parts: bool = False
    ) -> pa.Table:
        """All rows of a segment: the wanted columns and the metadata columns that the file stores."""
        key = (segment.key, id(plan.schema))
        small = segment.size_bytes <= _CACHEABLE_BYTES
        kept = self._small if small else self._open if in_parts and columns is None else None
        table = None if kept is None else kept.get(key)
        if table is None:
            table = self._fetch(plan, segment, None if small else columns)
            if kept is not None:
                kept.put(key, table)
        last = segment.slices[-1]
        if not small and last.first_row + last.rows == segment.file_rows:
            self._open.drop(key)
        return table

    def _fetch(self, plan: ScanPlan, segment: PlannedSegment, columns: Sequence[str] | None) -> pa.Table:
        try:
            with naming_segment(plan.topic, segment):
                return self.whole(self._arrow_schema(plan), segment, columns)
        except ObjectNotFound:
            raise self._missing(plan, segment) from None

    def whole(self, schema: pa.Schema, segment: PlannedSegment, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a file, verified, in a topic's schema, with the metadata columns that it stores. Keeps nothing.

        Raises ObjectNotFound.
        """
        table = segment_file.decode(
            self._store.get(segment.key),
            segment.checksum,
            schema=file_schema(schema, segment),
            rows=segment.file_rows,
            key=segment.key,
            columns=None if columns is None else [*columns, *(field.name for field in stored_fields(segment))],
            size_bytes=segment.size_bytes,
        )
        check_partitions(segment, table)
        return table

    def _arrow_schema(self, plan: ScanPlan) -> pa.Schema:
        known = self._arrow.get(id(plan.schema))
        if known is None:
            known = (plan.schema, schemas.to_arrow(plan.schema))
            self._arrow[id(plan.schema)] = known
        return known[1]

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
        metadata = schema.names[len(names) :] if include_metadata else []
        pieces: list[pa.Table] = []
        for item, rows in slices_of(segment, table):
            piece = rows.select(names)
            for name in metadata:
                piece = piece.append_column(name, metadata_column(name, plan.coordinators, segment, item, rows))
            pieces.append(piece)
        if not schema.names:  # what joins or casts tables forgets how many rows one without columns has
            return pa.Table.from_batches([batch for piece in pieces for batch in piece.to_batches()], schema)
        return pa.concat_tables(pieces).cast(schema)


def _bytes_of(table: pa.Table) -> int:
    size: int = table.nbytes
    return size


__all__ = ["SegmentReader", "output_schema", "parts_of"]
