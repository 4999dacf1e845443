"""Bounds in the log, of files that are deleted: no row is left that would say whether one was erased.

A bound is a value of some row of its file. Where a row that goes has the value, it is one of an erased row, whoever
else has it. Where only rows that stay have it, it says nothing of the others. Else it counts as a value of an erased
row, where the bounds of the file admit one: rather one column too many is named than one too few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import reduce
from operator import and_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.limits import STATISTICS_CHARACTERS
from txnlog.data.segment_statistics import value_of
from txnlog.fold.state import SegmentRecord
from txnlog.format.actions import Bound

_MOST_ASKED: Final = 1_000
"""Files of which it is asked whether their bounds admit such a row: that takes half a millisecond each."""


class BoundsOfGoneFiles:
    """The bounds of some segments, and which of them no row of the topic that was seen has.

    Args:
        records: the segments, whose files are gone.
        schema: of the topic.
        where: the condition of the erasure.
        named: the columns that it names.
    """

    def __init__(
        self, records: Sequence[SegmentRecord], schema: pa.Schema, where: pc.Expression, named: Sequence[str]
    ) -> None:
        self._values: dict[str, set[Any]] = {}
        for record in _admitting(records, schema, where):
            for name, bounds in record.statistics.items():
                if name in schema.names:
                    found = (value_of(bound, schema.field(name).type) for bound in bounds[:2])
                    self._values.setdefault(name, set()).update(
                        _begin_of(value.as_py()) for value in found if value is not None
                    )
        self._schema = schema
        if len(named) == 1:  # then it says itself which values are those of such rows
            self._keep_matching(named[0], where)
        self._values = {name: values for name, values in self._values.items() if values}
        self._all = {name: frozenset(values) for name, values in self._values.items()}

    def _keep_matching(self, name: str, where: pc.Expression) -> None:
        values = self._values.get(name, set())
        kind = self._schema.field(name).type
        if not any(isinstance(value, str) and len(value) >= STATISTICS_CHARACTERS for value in values):
            table = pa.table({name: pa.array(list(values), kind)})
            self._values[name] = set(table.filter(where).column(name).to_pylist())

    @property
    def columns(self) -> list[str]:
        """Those with bounds that are left: a value of an erased row may be one."""
        return sorted(self._values)

    def see(self, rows: pa.Table) -> None:
        """Rows of the topic that stay: what they say, the bounds say of them."""
        for name in self.columns:
            self._values[name] -= _among(self._values[name], rows.column(name))
            if not self._values[name]:
                del self._values[name]

    def said_of(self, rows: pa.Table) -> set[str]:
        """The columns with bounds that are values of rows which go, also where others that were seen have them."""
        if not len(rows):
            return set()
        return {name for name, values in self._all.items() if _among(values, rows.column(name))}


def _among(values: Set[Any], column: pa.ChunkedArray) -> set[Any]:
    """Those of some bounds that are values of a column."""
    if pa.types.is_string(column.type):
        column = pc.utf8_slice_codeunits(column, 0, STATISTICS_CHARACTERS)
    wanted = pa.array(list(values), column.type)
    return set(column.filter(pc.is_in(column, value_set=wanted)).unique().to_pylist())


def _begin_of(value: Any) -> Any:
    return value[:STATISTICS_CHARACTERS] if isinstance(value, str) else value


def _admitting(records: Sequence[SegmentRecord], schema: pa.Schema, where: pc.Expression) -> list[SegmentRecord]:
    """The segments that may have had a row which satisfies a condition, by their bounds."""
    import pyarrow.dataset as ds  # noqa: PLC0415 - it looks for pandas, and few processes erase
    import pyarrow.fs  # noqa: PLC0415

    said = [record for record in records if record.statistics]
    asked = said[:_MOST_ASKED]
    kind, nowhere = ds.ParquetFileFormat(), pyarrow.fs.LocalFileSystem()  # nothing of it is opened
    fragments = [
        kind.make_fragment(f"/{record.number}", nowhere, partition_expression=_guarantee(record.statistics, schema))
        for record in asked
    ]
    found = ds.FileSystemDataset(fragments, schema, kind, nowhere).get_fragments(filter=where) if fragments else ()
    numbers = {int(fragment.path.rpartition("/")[2]) for fragment in found}
    return [record for record in asked if record.number in numbers] + said[_MOST_ASKED:]


def _guarantee(statistics: Mapping[str, tuple[Bound, Bound, int | None]], schema: pa.Schema) -> pc.Expression:
    """What the bounds of a file say of each of its rows."""
    return reduce(and_, _ranges(statistics, schema), pc.scalar(True))


def _ranges(statistics: Mapping[str, tuple[Bound, Bound, int | None]], schema: pa.Schema) -> Iterable[pc.Expression]:
    for name, (low, high, nulls) in statistics.items():
        if name not in schema.names:
            continue
        field, kind = pc.field(name), schema.field(name).type
        least, most = value_of(low, kind), value_of(high, kind)
        if least is not None and most is not None:
            inside = (field >= least) & (field <= most)
            yield inside if nulls == 0 else inside | field.is_null()


__all__ = ["BoundsOfGoneFiles"]
