"""Reading planned segments as Arrow, verified, with the metadata columns that the log knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.common.lru import Recent
from txnlog.common.names import nearest
from txnlog.data import segment_file
from txnlog.data.joined_tables import joined
from txnlog.data.scan_planner import ScanPlan
from txnlog.data.segment_metadata import Found, metadata_columns, wanted_rows
from txnlog.data.segment_rows import (
    METADATA_FIELDS,
    STATE_FIELD,
    PlannedSegment,
    check_places,
    file_schema,
    naming_segment,
    stored_fields,
)
from txnlog.data.segment_run import SegmentRun, by_offset
from txnlog.engine.runtime import Runtime
from txnlog.errors import InvalidInputError, TxnLogError
from txnlog.format import schema as schemas
from txnlog.format.schema import StructType
from txnlog.store.base import ObjectNotFound, Store
from txnlog.store.identity import identity_of

_CACHED_BYTES = 64 << 20
_CACHEABLE_BYTES = 4 << 20
"""Small segments are cut into many batches by consumers: kept decoded, up to a bound."""

_WRITTEN_BYTES = 4 << 20
"""Rows that this process wrote, as it had them: whoever merges small segments need not fetch and decode its own. A
merge comes after some hundred of them."""

_RUN_BYTES = 4 << 20
"""Of the files of one run: a consumer decodes all of them before it delivers the first message."""

_OPEN_BYTES = 256 << 20
"""Big ones too, while a consumer is in the middle of them: else every batch would fetch and decode the whole file."""

_TABLE_BYTES = 4 << 10
"""Of a decoded segment, besides its rows: buffers are rounded up, and each column has objects of its own."""

_RUNS_BYTES = 64 << 20
"""Rows that consumers are in the middle of, shaped."""

_STEP_SEGMENTS = 4
_STEP_BYTES = 4 << 20
_MOST_SEGMENTS = 256
"""Segments that are fetched side by side, and shaped at once: so many however big they are, and as many small ones as
make a big one. What a step costs is shared by its segments."""

_LOCAL_CALL_BYTES = 1 << 20
"""Of a store in this machine a thread fetches so much: to pass a small segment to one takes longer than to read it."""


RunKey = tuple[int, int, tuple[int, ...]]
"""A run: the topic, the version of its schema, and the numbers of the segments."""


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
    """The plan in steps, one after the other: the segments of each are fetched side by side."""
    step: list[PlannedSegment] = []
    size_bytes = 0
    for segment in plan.segments:
        step.append(segment)
        size_bytes += segment.size_bytes
        if len(step) >= _STEP_SEGMENTS and (size_bytes >= _STEP_BYTES or len(step) == _MOST_SEGMENTS):
            yield replace(plan, segments=tuple(step))
            step, size_bytes = [], 0
    if step:
        yield replace(plan, segments=tuple(step))


class SegmentReader:
    """Fetches and decodes segments of one namespace. Thread-safe.

    Attributes:
        runs: what consumers are in the middle of, by a key of theirs: up to a bound, for all of them together.
    """

    def __init__(
        self, store: Store, runtime: Runtime, missing: Callable[[ScanPlan, PlannedSegment], TxnLogError]
    ) -> None:
        """``missing`` says what it means that a planned file is not there."""
        self._missing = missing
        self._is_near = identity_of(store).is_near
        self._store = store
        self._runtime = runtime
        self._small: Recent[tuple[str, int], pa.Table] = Recent(_CACHED_BYTES, _bytes_of)
        self._written: Recent[str, pa.Table] = Recent(_WRITTEN_BYTES, _bytes_of)
        self._open: Recent[tuple[str, int], pa.Table] = Recent(_OPEN_BYTES, _bytes_of, least=1)
        self.runs: Recent[RunKey, SegmentRun] = Recent(_RUNS_BYTES, _weight_of_run, least=1)
        self._arrow: dict[int, tuple[StructType, pa.Schema]] = {}

    def batches(
        self,
        plan: ScanPlan,
        *,
        columns: Sequence[str] | None = None,
        include_metadata: bool = False,
        in_parts: bool = False,
    ) -> Iterator[pa.Table]:
        """The rows in the plan's order, a table for each step (``parts_of``).

        ``in_parts``: the next call goes on in the last segment; so it is kept, decoded, until its end was read.

        Raises CorruptionError for a segment that is missing or is not what the log recorded.
        """
        schema = output_schema(plan, columns, include_metadata=include_metadata)
        for part in parts_of(plan):
            read = partial(self.decode, plan, columns=columns, in_parts=in_parts)
            found = [wanted_rows(segment, table) for segment, table in self._side_by_side(part.segments, read)]
            yield self._shape(plan, found, columns, schema, include_metadata=include_metadata)

    @property
    def most_bytes_of_run(self) -> int:
        """The bytes of the files that a run may have."""
        return _RUN_BYTES

    def run(self, plan: ScanPlan) -> SegmentRun:
        """All rows of some visible segments with their metadata, decoded and shaped at once. Keeps nothing.

        Raises CorruptionError as ``batches`` does.
        """
        schema = output_schema(plan, None, include_metadata=True)
        read = partial(self.decode, plan, keeps=False)
        found = by_offset(self._side_by_side(plan.segments, read))
        return SegmentRun(found, self._shape(plan, found, None, schema, include_metadata=True))

    def _side_by_side(
        self, segments: Sequence[PlannedSegment], read: Callable[[PlannedSegment], pa.Table]
    ) -> list[tuple[PlannedSegment, pa.Table]]:
        """Segments with all of their rows, in their order."""

        def several(chosen: Sequence[PlannedSegment]) -> list[tuple[PlannedSegment, pa.Table]]:
            return [(segment, read(segment)) for segment in chosen]

        calls = [partial(several, chosen) for chosen in self._for_threads(segments)]
        return [item for found in self._runtime.run_all(calls) for item in found]

    def _for_threads(self, segments: Sequence[PlannedSegment]) -> Iterator[Sequence[PlannedSegment]]:
        """The segments of a step by the thread that fetches them: of a distant store as many at once as may be."""
        most = len(segments) if self._is_near else -(-len(segments) // PARALLEL_REQUESTS)
        first = size_bytes = 0
        for position, segment in enumerate(segments, 1):
            size_bytes += segment.size_bytes
            if position == len(segments) or position - first == most or size_bytes >= _LOCAL_CALL_BYTES:
                yield segments[first:position]
                first, size_bytes = position, 0

    def decode(
        self,
        plan: ScanPlan,
        segment: PlannedSegment,
        columns: Sequence[str] | None = None,
        *,
        in_parts: bool = False,
        keeps: bool = True,
    ) -> pa.Table:
        """All rows of a segment: the wanted columns and the metadata columns that the file stores."""
        if not keeps:
            return self._fetch(plan, segment, columns)
        key = (segment.key, id(plan.schema))
        small = segment.size_bytes <= _CACHEABLE_BYTES
        kept = self._small if small else self._open if in_parts and columns is None else None
        table = None if kept is None else kept.get(key)
        if table is None:
            table = self._fetch(plan, segment, None if small else columns)
            if kept is not None:
                kept.put(key, table)
        if not small and segment.reaches_end:
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
        return self.whole_of(self._store.get(segment.key), schema, segment, columns)

    def whole_of(
        self, data: bytes, schema: pa.Schema, segment: PlannedSegment, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """``whole``, of a file that was fetched before."""
        wanted = None
        if columns is not None:
            # Parts of a table without columns, once joined, have no rows either: then some column has to count them.
            wanted = [*columns, *(field.name for field in stored_fields(segment))] or schema.names[:1]
        table = segment_file.decode(
            data,
            segment.checksum,
            schema=file_schema(schema, segment),
            rows=segment.file_rows,
            key=segment.key,
            columns=wanted,
            size_bytes=segment.size_bytes,
        )
        check_places(segment, table)
        return table

    def keep_written(self, key: str, table: pa.Table) -> None:
        """Keep the rows of a file that is being written, for ``written``."""
        self._written.put(key, table)

    def written(self, schema: pa.Schema, segment: PlannedSegment) -> pa.Table | None:
        """What ``whole`` gives of a file that this process wrote lately; None where it has to be asked for.

        Nothing is verified: whoever reads for somebody else than for a merge wants to know what is on the store.
        """
        table = self._written.get(segment.key)
        return table if table is not None and table.schema.equals(file_schema(schema, segment)) else None

    def _arrow_schema(self, plan: ScanPlan) -> pa.Schema:
        known = self._arrow.get(id(plan.schema))
        if known is None:
            known = (plan.schema, schemas.to_arrow(plan.schema))
            self._arrow[id(plan.schema)] = known
        return known[1]

    @staticmethod
    def _shape(
        plan: ScanPlan,
        found: Sequence[Found],
        columns: Sequence[str] | None,
        schema: pa.Schema,
        *,
        include_metadata: bool,
    ) -> pa.Table:
        names = [field.name for field in plan.schema.fields] if columns is None else list(columns)
        parts = [each.rows if each.rows.schema.names == names else each.rows.select(names) for each in found]
        if not schema.names:  # what joins tables forgets how many rows one without columns has
            return pa.Table.from_batches([batch for part in parts for batch in part.to_batches()], schema)
        rows = joined(parts, _STEP_SEGMENTS)
        metadata = metadata_columns(schema.names[len(names) :] if include_metadata else (), plan.coordinators, found)
        return pa.Table.from_arrays([*rows.columns, *metadata.values()], schema=schema)


def _bytes_of(table: pa.Table) -> int:
    """What a table takes in memory: a small one less for its rows than for the objects that hold them."""
    size: int = table.get_total_buffer_size()
    return size + _TABLE_BYTES


def _weight_of_run(run: SegmentRun) -> int:
    return run.size_bytes + _TABLE_BYTES


__all__ = ["RunKey", "SegmentReader", "output_schema", "parts_of"]
