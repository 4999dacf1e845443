"""Rows for people to look at: what Python has no value for is a text, everything else is what Arrow gives."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.effort import tries
from tests.unit.arrow_strategies import tables
from txnlog.data.python_rows import python_rows

DAY = pa.date32()
INSTANT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")


def far(number: int, kind: pa.DataType) -> object:
    array = pa.array([number], pa.int32() if kind == DAY else pa.int64()).cast(kind)
    ((value,),) = (row.values() for row in python_rows(pa.table({"x": array})))
    return value


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (2_932_896, DAY, dt.date(9999, 12, 31)),
        (2_932_897, DAY, "+10000-01-01"),
        (2**31 - 1, DAY, "+5881580-07-11"),
        (-719_162, DAY, dt.date(1, 1, 1)),
        (-719_163, DAY, "+0000-12-31"),
        (-(2**31), DAY, "-5877641-06-23"),
        (253_402_300_800_000_000, INSTANT, "+10000-01-01T00:00:00+00:00"),
        (2**63 - 1, INSTANT, "+294247-01-10T04:00:54.775807+00:00"),
        (-(2**63), LOCAL, "-290308-12-21T19:59:05.224192"),
    ],
)
def test_a_time_that_python_does_not_have_is_its_text(number, kind, text):
    assert far(number, kind) == text


def test_such_times_are_found_inside_of_other_values():
    days = pa.array([2_932_897], pa.int32()).cast(DAY)
    lists = pa.ListArray.from_arrays([0, 1], days)
    maps = pa.MapArray.from_arrays([0, 1], pa.array(["a"]), days)
    table = pa.table({"s": pa.StructArray.from_arrays([days, lists], ["d", "l"]), "m": maps})
    day = "+10000-01-01"
    assert python_rows(table) == [{"s": {"d": day, "l": [day]}, "m": [("a", day)]}]


@settings(max_examples=tries(200, 50), deadline=None)
@given(tables())
def test_all_else_is_what_arrow_gives(table):
    assert repr(python_rows(table)) == repr(table.to_pylist())
