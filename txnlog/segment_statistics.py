"""Minimum, maximum and null count of a segment's columns, as the log records them.

They come from the Parquet footer, which the writer has in hand anyway. A bound that is not known is None; a known one
always holds: text is cut short so that the minimum stays below and the maximum above.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.limits import STATISTICS_CHARACTERS, STATISTICS_COLUMNS

if TYPE_CHECKING:  # msgspec is more than executors have
    from txnlog.actions import Bound
    from txnlog.state import Statistics

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand, and only where there is one
_HIGHEST: Final = "\U0010ffff"


def leaves(kind: pa.DataType) -> int:
    """How many Parquet columns an Arrow type takes."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(leaves(kind.field(index).type) for index in range(kind.num_fields))


def measured(schema: pa.Schema) -> list[tuple[int, pa.Field]]:
    """The columns with statistics: ``(index of the Parquet column, field)`` of the first simple ones of the user's."""
    result: list[tuple[int, pa.Field]] = []
    index = 0
    for field in schema:
        if not pa.types.is_nested(field.type) and not field.name.startswith("_"):
            result.append((index, field))
            if len(result) == STATISTICS_COLUMNS:
                break
        index += leaves(field.type)
    return result


def bounded(kind: pa.DataType) -> bool:
    """Whether a minimum and maximum of the type say anything."""
    return not pa.types.is_binary(kind)


def from_footer(
    metadata: Any, columns: Sequence[tuple[int, pa.Field]], not_numbers: frozenset[str] = frozenset()
) -> Statistics:
    """Statistics of a written file; ``not_numbers`` names the columns with a NaN, for which no order holds."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)] if metadata.num_rows else []
    result: Statistics = {}
    for index, field in columns:
        low: Any = None
        high: Any = None
        nulls: int | None = 0
        known = bounded(field.type) and field.name not in not_numbers
        for group in groups:
            statistics = group.column(index).statistics
            if statistics is None or not statistics.has_null_count:
                nulls, known = None, False
                break
            nulls += statistics.null_count
            if statistics.has_min_max:
                first, last = _extremes(statistics, field.type)
                low = first if low is None or first < low else low
                high = last if high is None or last > high else high
            elif statistics.null_count < group.num_rows:
                known = False
        if known and low is not None:
            result[field.name] = (_lower(low, field.type), _upper(high, field.type), nulls)
        else:
            result[field.name] = (None, None, nulls)
    return result


def columns_with_nan(table: pa.Table | pa.RecordBatch, columns: Sequence[tuple[int, pa.Field]]) -> frozenset[str]:
    """The names of the measured columns that hold a NaN."""
    return frozenset(
        field.name
        for _, field in columns
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(table.column(field.name))).as_py()
    )


def _extremes(statistics: Any, kind: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # As numbers: Python's own dates end with the year 9999.
        return statistics.min_raw, statistics.max_raw
    return statistics.min, statistics.max


def _lower(value: Any, kind: pa.DataType) -> Bound:
    if isinstance(value, str):
        return value[:STATISTICS_CHARACTERS]
    return _plain(value, kind)


def _upper(value: Any, kind: pa.DataType) -> Bound:
    if not isinstance(value, str):
        return _plain(value, kind)
    if len(value) <= STATISTICS_CHARACTERS:
        return value
    # Delta's rule: the highest character takes the place of the rest. It is above the first character cut off unless
    # that is the highest itself: then the cut moves on.
    for end in range(STATISTICS_CHARACTERS, len(value)):
        if value[end] != _HIGHEST:
            return value[:end] + _HIGHEST
    return value


def _plain(value: Any, kind: pa.DataType) -> Bound:
    if pa.types.is_date(kind):
        return _iso(value * 86_400_000_000)[:10] or None
    if pa.types.is_timestamp(kind):
        text = _iso(value)
        return f"{text}Z" if text and kind.tz else text or None
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    result: Bound = value
    return result


def _iso(microseconds: int) -> str:
    """ISO text with six places, or nothing outside of the years 1 to 9999."""
    try:
        return (_EPOCH + datetime.timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    except OverflowError:
        return ""


__all__ = ["bounded", "columns_with_nan", "from_footer", "leaves", "measured"]
