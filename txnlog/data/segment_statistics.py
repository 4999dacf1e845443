"""Minimum, maximum and null count of a segment's columns, as the log records them.

They come from the Parquet footer, which the writer has in hand anyway; but for floats, of which the footer has none
where there is, or may be, a NaN: readers take its bounds for those of all rows, and to most of them a NaN is above all
numbers. A bound that is not known is None; a known one always holds: text is cut short so that the minimum stays below
and the maximum above.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.limits import STATISTICS_CHARACTERS, STATISTICS_COLUMNS

if TYPE_CHECKING:  # msgspec is more than executors have
    from txnlog.fold.state import Statistics
    from txnlog.format.actions import Bound

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand, and only where there is one
_HIGHEST: Final = "\U0010ffff"
_DECIMAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME: Final = re.compile(rf"{_DATE.pattern}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}\.[0-9]{{6}}Z?", re.ASCII)
"""The texts of bounds that stand for values: as texts those of one form compare as the values do."""


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


def from_footer(metadata: Any, columns: Sequence[tuple[int, pa.Field]], reals: Mapping[str, Reals]) -> Statistics:
    """Statistics of a written file; those of floats are arguments, and not read from its footer."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)] if metadata.num_rows else []
    result: Statistics = {}
    for index, field in columns:
        if field.name in reals:
            result[field.name] = reals[field.name].statistics()
            continue
        low: Any = None
        high: Any = None
        nulls: int | None = 0
        known = bounded(field.type)
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


@dataclass(frozen=True, slots=True)
class Reals:
    """What is known of a column of floats: bounds of what is a number, nulls, and whether there is a NaN."""

    low: float = math.inf
    high: float = -math.inf
    nulls: int = 0
    has_nan: bool = False

    def joined(self, other: Reals) -> Reals:
        """What is known of the rows of both together."""
        return Reals(
            min(self.low, other.low),
            max(self.high, other.high),
            self.nulls + other.nulls,
            self.has_nan or other.has_nan,
        )

    def statistics(self) -> tuple[Bound, Bound, int]:
        """The statistics for the log: no bounds where there is a NaN, for no order holds, and none without an end."""
        if self.has_nan or self.low > self.high:
            return None, None, self.nulls
        # Zeros have two signs, which some readers distinguish.
        low, high = (-0.0 if self.low == 0 else self.low), (0.0 if self.high == 0 else self.high)
        return low if math.isfinite(low) else None, high if math.isfinite(high) else None, self.nulls


def reals_of(table: pa.Table | pa.RecordBatch, columns: Sequence[tuple[int, pa.Field]]) -> dict[str, Reals]:
    """What is known of the measured columns of floats, by name."""
    return {field.name: _reals(table.column(field.name)) for _, field in columns if pa.types.is_floating(field.type)}


def _reals(column: pa.Array | pa.ChunkedArray) -> Reals:
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return Reals(nulls=column.null_count)
    has_nan = bool(pc.any(pc.is_nan(column)).as_py())
    return Reals(bounds["min"], bounds["max"], column.null_count, has_nan)


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
    result: Bound = value
    return result


def _iso(microseconds: int) -> str:
    """ISO text with six places, or nothing outside of the years 1 to 9999."""
    try:
        return (_EPOCH + datetime.timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
    except OverflowError:
        return ""


# --- checking ---------------------------------------------------------------------------------------------------------


def contradiction(said: tuple[Bound, Bound, int | None], column: pa.ChunkedArray) -> str:
    """How the values of a column contradict its statistics in the log, in words; nothing where they do not.

    ``column`` may be wider than the file's: whatever widens keeps its values.
    """
    low, high, nulls = said
    if nulls is not None and nulls != column.null_count:
        return f"{column.null_count:,} values are null, the log says {nulls:,}"
    kind = column.type
    least_said, most_said = _comparable(low, kind), _comparable(high, kind)
    if least_said is None and most_said is None:
        return ""
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return "a value is NaN, and the log has bounds"
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    found = pc.min_max(column).as_py()
    if found["min"] is None:
        return "no value is there, and the log has bounds"
    # Of a date that no text stands for, there is no bound on its side either.
    least, most = (_comparable(_plain(found[name], kind), kind) for name in ("min", "max"))
    if least_said is not None and (least is None or least < least_said):
        return f"a value is below the log's minimum, {low!r:.80}"
    if most_said is not None and (most is None or most > most_said):
        return f"a value is above the log's maximum, {high!r:.80}"
    return ""


def is_bound(bound: Bound, column: pa.ChunkedArray) -> bool:
    """Whether a bound of the log says a value of a column, or how one begins."""
    kind = column.type
    if bound is None or not bounded(kind):
        return False
    if isinstance(bound, str) and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        if len(bound) < STATISTICS_CHARACTERS:
            return bool(pc.any(pc.equal(column, bound)).as_py())
        begin = pc.utf8_slice_codeunits(column, 0, STATISTICS_CHARACTERS)
        values = column.filter(pc.equal(begin, bound[:STATISTICS_CHARACTERS])).unique().to_pylist()
        return any(bound in (_lower(value, kind), _upper(value, kind)) for value in values)
    value = value_of(bound, kind)
    return value is not None and bool(pc.any(pc.equal(column, value)).as_py())


def value_of(bound: Bound, kind: pa.DataType) -> pa.Scalar | None:
    """A bound of the log as a value of a column; None where it says none of that type."""
    if bound is None or not bounded(kind):
        return None
    try:
        return pa.scalar(bound, pa.string()).cast(kind) if isinstance(bound, str) else pa.scalar(bound, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _comparable(bound: Bound, kind: pa.DataType) -> Any:
    """A bound as something that compares as the column's values do; None for one that has not the column's form."""
    is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
    if pa.types.is_boolean(kind):
        return bound if isinstance(bound, bool) else None
    if pa.types.is_integer(kind):
        return bound if is_number and isinstance(bound, int) else None
    if pa.types.is_floating(kind):
        return bound if is_number else None
    if not isinstance(bound, str) or not bounded(kind):
        return None
    if pa.types.is_decimal(kind):
        return decimal.Decimal(bound) if _DECIMAL.fullmatch(bound) else None
    if pa.types.is_date(kind):
        return bound if _DATE.fullmatch(bound) else None
    if pa.types.is_timestamp(kind):
        return bound if _TIME.fullmatch(bound) and bound.endswith("Z") == bool(kind.tz) else None
    return bound


__all__ = ["Reals", "bounded", "contradiction", "from_footer", "is_bound", "leaves", "measured", "reals_of", "value_of"]
