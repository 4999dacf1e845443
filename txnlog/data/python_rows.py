"""Rows as values of Python for people to look at: a time that Python does not have is its text."""

from __future__ import annotations

import datetime
from typing import Any, Final

import pyarrow as pa

_EPOCH: Final = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand, and only where there is one
_DAY_US: Final = 86_400_000_000
_CYCLE_YEARS: Final = 400
_CYCLE_US: Final = 146_097 * _DAY_US
"""After so many years the calendar is the same again."""


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """What ``to_pylist`` gives; a time before the year 1 or after 9999 is its text, as ISO 8601 has it."""
    columns = [[_value(scalar) for scalar in column] for column in rows.columns]
    names = rows.schema.names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _value(scalar: pa.Scalar) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [tuple(_value(pair).values()) for pair in scalar.values]
    if pa.types.is_list(kind):
        return [_value(item) for item in scalar.values]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_date32(kind):
            return _far(scalar.value * _DAY_US).partition("T")[0]
        if pa.types.is_timestamp(kind):
            return _far(scalar.value) + ("" if kind.tz is None else "+00:00")
        raise


def _far(since_epoch_us: int) -> str:
    cycles, rest = divmod(since_epoch_us, _CYCLE_US)
    moment = _EPOCH + datetime.timedelta(microseconds=rest)
    return f"{moment.year + _CYCLE_YEARS * cycles:+05d}{moment.isoformat()[4:]}"


__all__ = ["python_rows"]
