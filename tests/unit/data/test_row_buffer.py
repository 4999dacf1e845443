"""What producers hand over is buffered as rows of exactly the topic's schema, whatever kind of input it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.unit.arrow_strategies import junk, schemas, tables
from tests.unit.row_values import DEFAULT, one
from txnlog.data import row_buffer
from txnlog.data.row_buffer import RowBuffer, concat, conform
from txnlog.errors import InvalidInputError, SchemaMismatch, StoreError

# --- kinds of input ---------------------------------------------------------------------------------------------------


ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
SMALL = pa.schema([("id", pa.int32()), ("name", pa.string())])


class OnlyStream:
    def __arrow_c_stream__(self, requested_schema=None):
        return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)


class OnlyArray:
    def __arrow_c_array__(self, requested_schema=None):
        return pa.RecordBatch.from_pylist(ROWS).__arrow_c_array__(requested_schema)


def duckdb_relation():
    import duckdb

    return duckdb.sql("select * from (values (1, 'a'), (2, null)) t(id, name)")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: tuple(ROWS),
        lambda: iter(ROWS),
        lambda: pa.Table.from_pylist(ROWS),
        lambda: pa.RecordBatch.from_pylist(ROWS),
        lambda: [pa.RecordBatch.from_pylist(ROWS[:1]), pa.Table.from_pylist(ROWS[1:], schema=SMALL)],
        lambda: (pa.RecordBatch.from_pylist([row], schema=SMALL) for row in ROWS),
        lambda: pa.Table.from_pylist(ROWS).to_reader(),
        lambda: pa.array(ROWS),
        OnlyStream,
        OnlyArray,
        lambda: [OnlyArray()],
        lambda: pd.DataFrame(ROWS),
        lambda: pd.DataFrame(ROWS, index=[7, 9]),
        lambda: [
            pd.DataFrame(ROWS[:1]),
            polars.DataFrame(ROWS[1:], schema={"id": polars.Int64, "name": polars.String}),
        ],
        lambda: polars.DataFrame(ROWS),
        duckdb_relation,
    ],
)
def test_every_kind_of_input_gives_the_same_rows(make):
    table = conform(make(), SMALL, topic="t")
    assert table.schema.equals(SMALL)
    assert table.to_pylist() == ROWS
    buffer = RowBuffer(SMALL, "t")
    assert buffer.append(make()) == buffer.rows == 2
    assert buffer.to_table().equals(table)


def test_one_dict_is_one_row():
    assert conform(ROWS[0], SMALL, topic="t").to_pylist() == ROWS[:1]


@pytest.mark.parametrize("data", [[], (), iter(()), pa.table({}), SMALL.empty_table(), pd.DataFrame({"id": []})])
def test_no_rows_are_an_empty_table_of_the_schema(data):
    assert conform(data, SMALL, topic="t").equals(SMALL.empty_table())


@pytest.mark.parametrize(
    "data",
    [None, 1, "text", b"bytes", object(), [1], [None], [ROWS[0], 1], [pa.table({}), ROWS[0]], [ROWS[0], pa.table({})]],
)
def test_what_is_no_rows_is_refused(data):
    with pytest.raises(SchemaMismatch, match="topic 't'"):
        conform(data, SMALL, topic="t")


def test_a_series_is_no_table():
    with pytest.raises(SchemaMismatch, match="topic 't'"):
        conform(polars.Series("id", [1]), SMALL, topic="t")


def test_a_data_frame_that_does_not_convert_is_refused():
    with pytest.raises(SchemaMismatch, match="DataFrame does not become an Arrow table"):
        conform(pd.DataFrame({"id": [1, "a"]}), SMALL, topic="t")


class Broken:
    error: Exception = AssertionError()

    def __arrow_c_stream__(self, requested_schema=None):
        raise self.error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AssertionError(), "AssertionError"),
        (RuntimeError("no stream\nat org.apache"), "no stream"),
        (OSError("x"), "x"),
    ],
)
def test_whatever_a_data_frame_raises_is_our_refusal(error, told):
    data = Broken()
    data.error = error
    match = rf"Broken does not become an Arrow table: {told} \(pass a py"
    for taken in (data, [data]):
        with pytest.raises(SchemaMismatch, match=match) as caught:
            conform(taken, SMALL, topic="t")
        assert caught.value.__cause__ is error


def test_an_error_of_our_own_under_a_stream_stays_what_it_is():
    data = Broken()
    data.error = StoreError("gone")
    with pytest.raises(StoreError, match="gone"):
        conform(data, SMALL, topic="t")


@pytest.mark.parametrize("base", [Broken, object])
def test_a_data_frame_of_spark_is_answered_with_the_two_ways_to_write_it(base):
    frame = type("DataFrame", (base,), {"__module__": "pyspark.sql.classic.dataframe"})()
    with pytest.raises(SchemaMismatch, match=r"\(pass df\.toArrow\(\).* or .*spark_ext\.transaction"):
        conform(frame, SMALL, topic="t")


def test_an_error_of_the_users_own_iterator_comes_through():
    def broken():
        yield ROWS[0]
        raise ConnectionError("gone")

    buffer = RowBuffer(SMALL, "t")
    with pytest.raises(ConnectionError):
        buffer.append(broken())
    assert buffer.rows == 0


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_a_refused_append_takes_nothing():
    buffer = RowBuffer(SMALL, "t")
    buffer.append(ROWS)
    for bad in ([ROWS[0], {"id": "x"}], pa.table({"id": ["x"]}), iter([ROWS[0], {"idd": 1}])):
        with pytest.raises(InvalidInputError):
            buffer.append(bad)
    assert buffer.to_table().to_pylist() == ROWS


def test_later_changes_to_what_was_passed_do_not_reach_the_buffer():
    schema = pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64())), ("b", pa.binary())])
    row: dict[str, Any] = {"l": [1], "m": {"a": 1}, "b": bytearray(b"1")}
    before = conform(row, schema, topic="t")
    buffer = RowBuffer(schema, "t")
    buffer.append([row])
    row["l"].append(2)
    row["m"]["b"] = 2
    row["b"][0] = 0
    row["l"] = None
    assert buffer.to_table().equals(before)


def over(memory):
    """An Arrow array over memory that somebody else goes on changing."""
    return pa.Array.from_buffers(pa.float64(), len(memory), [None, pa.py_buffer(memory)])


@pytest.mark.parametrize(
    "give",
    [
        lambda memory: pd.DataFrame({"x": memory}, copy=False),
        lambda memory: [pd.DataFrame({"x": memory}, copy=False)],
        lambda memory: pa.table({"x": memory}),
        lambda memory: pa.table({"x": over(memory)}),
        lambda memory: pa.record_batch({"x": memory}),
        lambda memory: [pa.record_batch({"x": memory})],
        lambda memory: pa.table({"x": memory}).to_reader(),
        lambda memory: pa.Table.from_pandas(pd.DataFrame({"x": memory}, copy=False)),
    ],
)
def test_later_changes_to_the_memory_of_what_was_passed_do_not_reach_the_buffer(give):
    memory = np.array([1.0, 2.0])
    buffer = RowBuffer(one(pa.float64()), "t")
    buffer.append(give(memory))
    memory[0] = 99.0
    assert buffer.to_table()["x"].to_pylist() == [1.0, 2.0]


def test_later_changes_to_the_memory_inside_of_a_list_do_not_reach_the_buffer():
    memory = np.array([1.0, 2.0, 3.0])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), over(memory))
    buffer = RowBuffer(one(pa.list_(pa.float64())), "t")
    buffer.append(pa.table({"x": lists}).slice(1))
    memory[:] = 99.0
    assert buffer.to_table()["x"].to_pylist() == [[2.0, 3.0]]


@pytest.mark.parametrize("as_stream", [False, True])
def test_batches_of_one_memory_that_is_filled_again_are_all_taken(as_stream):
    memory = np.zeros(1)

    def batches():
        for value in (1.0, 2.0, 3.0):
            memory[:] = value
            yield pa.record_batch({"x": memory})

    buffer = RowBuffer(one(pa.float64()), "t")
    buffer.append(pa.RecordBatchReader.from_batches(one(pa.float64()), batches()) if as_stream else batches())
    assert buffer.to_table()["x"].to_pylist() == [1.0, 2.0, 3.0]


def test_a_stream_without_batches_says_which_columns_it_has():
    empty = pa.schema([("y", pa.float64())])
    with pytest.raises(SchemaMismatch, match="no column 'y'"):
        RowBuffer(one(pa.float64()), "t").append(pa.RecordBatchReader.from_batches(empty, []))


def test_rows_of_many_calls_and_buffers_stay_in_order():
    buffers = []
    expected = []
    for number in range(6):
        buffer = RowBuffer(SMALL, "t")
        for data in ([{"id": number}], pa.table({"id": [number + 10]}), {"id": number + 20}, [], [{"id": number + 30}]):
            buffer.append(data if number % 2 else (data if isinstance(data, list) else [{"id": number + 20}]))
        expected += buffer.to_table()["id"].to_pylist()
        buffers.append(buffer)
    assert concat(buffers)["id"].to_pylist() == expected
    assert expected[4:8] == [1, 11, 21, 31]


def test_rows_above_the_limit_become_arrow_at_once(monkeypatch):
    monkeypatch.setattr(row_buffer, "SEAL_BYTES", 100)
    schema = one(pa.string())
    buffers = [RowBuffer(schema, "t") for _ in range(3)]
    expected = []
    for buffer in buffers:
        for data in ([{"x": "a" * 30}] * 2, [{"x": "b" * 99}], [{"x": str(i) * 20} for i in range(50)], [{"x": "c"}]):
            buffer.append(data)
            expected += [row["x"] for row in data]
        assert len(buffer._tables) > 2
        for _ in range(20):
            buffer.append({"x": "d" * 10})
            expected.append("d" * 10)
            assert len(buffer._open) <= 6
    assert concat(buffers)["x"].to_pylist() == expected


def test_a_row_that_no_array_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr(row_buffer, "SEAL_BYTES", 100)
    monkeypatch.setattr(row_buffer, "MAX_ROW_BYTES", 1000)
    with pytest.raises(SchemaMismatch, match="row 1 takes more than 1,000 bytes"):
        conform([{"x": "a"}, {"x": "a" * 1001}], one(pa.string()), topic="t")


def test_the_size_is_about_that_of_arrow():
    schema = pa.schema([*DEFAULT, ("n", pa.list_(pa.struct([("a", pa.string())])))])
    data = [
        {"key": b"k" * 30, "value": b"v" * 300, "headers": {"a" * 20: b"b" * 50}, "n": [{"a": "c" * 40}] * 3}
        for _ in range(100)
    ]
    buffer = RowBuffer(schema, "t")
    buffer.append(data)
    assert 0.8 < buffer.size_bytes / buffer.to_table().nbytes < 1.2


def test_plans_of_forgotten_schemas_are_dropped(monkeypatch):
    monkeypatch.setattr(row_buffer, "MAX_CACHED_PLANS", 3)
    for number in range(10):
        assert conform({str(number): 1}, pa.schema([(str(number), pa.int64())]), topic="t").num_rows == 1
    assert len(row_buffer._PLANS) <= 3


def test_buffers_of_equal_schemas_go_together():
    buffers = []
    for number in range(3):
        row_buffer._PLANS.clear()
        buffers.append(RowBuffer(pa.schema(list(SMALL)), "t"))
        buffers[-1].append([{"id": number}] * (row_buffer.ROWS_AT_ONCE + 1 if number == 1 else 1))
    assert concat(buffers)["id"].to_pylist() == [0, *[1] * (row_buffer.ROWS_AT_ONCE + 1), 2]


# --- properties -------------------------------------------------------------------------------------------------------


@given(tables())
@settings(max_examples=tries(300, 50), deadline=None)
def test_rows_of_any_schema_come_back_as_they_are(table):
    listed = table.to_pylist()
    from_rows = conform(listed, table.schema, topic="t")
    from_rows.validate(full=True)
    assert from_rows.schema.equals(table.schema)
    assert repr(from_rows.to_pylist()) == repr(listed)
    from_table = conform(table, table.schema, topic="t")
    assert repr(from_table.to_pylist()) == repr(listed)


@given(tables(), st.data())
@settings(max_examples=tries(300, 50), deadline=None)
def test_other_encodings_of_the_same_values_give_the_same_rows(table, data):
    def encoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = column.type
        choices = [column]
        if pa.types.is_string(kind):
            choices += [column.cast(pa.large_string()), column.cast(pa.string_view()), column.dictionary_encode()]
        elif pa.types.is_integer(kind):
            choices += [column.cast(pa.int64()), column.dictionary_encode()]
        elif pa.types.is_timestamp(kind) and kind.tz:
            choices += [column.cast(pa.timestamp("us", "Asia/Kathmandu"))]
        elif pa.types.is_list(kind):
            choices += [column.cast(pa.large_list(kind.value_type))] if kind.value_field.nullable else []
        return data.draw(st.sampled_from(choices))

    columns = [encoded(column) for column in table.columns]
    order = data.draw(st.permutations(range(len(columns))))
    given_ = pa.Table.from_arrays([columns[i] for i in order], names=[table.column_names[i] for i in order])
    start = data.draw(st.integers(0, table.num_rows))
    result = conform(given_.slice(start), table.schema, topic="t")
    result.validate(full=True)
    assert result.schema.equals(table.schema)
    assert repr(result.to_pylist()) == repr(table.slice(start).to_pylist())


@given(schemas(), st.data())
@settings(max_examples=tries(500, 75), deadline=None)
def test_junk_is_taken_whole_or_refused_with_one_error(schema, data):
    names = st.sampled_from([*schema.names, "other"])
    rows_ = data.draw(st.lists(st.dictionaries(names, junk), min_size=1, max_size=3))
    buffer = RowBuffer(schema, "t")
    try:
        taken = buffer.append(rows_)
    except SchemaMismatch:
        assert buffer.rows == 0
        return
    assert taken == len(rows_)
    table = buffer.to_table()
    table.validate(full=True)
    assert table.num_rows == taken
    # What was taken from Python is taken again from Arrow: there is one set of rules.
    assert conform(table, schema, topic="t").equals(table) or "nan" in repr(table.to_pylist())


@given(schemas(), tables())
@settings(max_examples=tries(300, 50), deadline=None)
def test_a_strangers_table_is_taken_whole_or_refused_with_one_error(schema, table):
    names = [*schema.names, *(f"more{i}" for i in range(table.num_columns))][: table.num_columns]
    try:
        result = conform(table.rename_columns(names), schema, topic="t")
    except SchemaMismatch:
        return
    result.validate(full=True)
    assert result.num_rows == table.num_rows
    assert result.schema.equals(schema)
