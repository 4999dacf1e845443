"""Rows as plain bytes for another process: what was encoded comes back, and nothing that is not valid is read."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given

from tests.effort import tries
from tests.unit.arrow_strategies import tables
from txnlog.data.wire_rows import MalformedRows, WireRows, decode, encode

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("yes", pa.bool_()),
        pa.field("ratio", pa.float32()),
        pa.field("text", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("amount", pa.decimal128(38, 9)),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("flags", pa.list_(pa.field("element", pa.bool_()))),
        pa.field("deep", pa.list_(pa.list_(pa.string()))),
        pa.field("names", pa.map_(pa.string(), pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())]))),
    ]
)


def row(number: int) -> dict[str, object]:
    return {
        "id": number,
        "small": -number,
        "yes": (True, None, False)[number % 3],
        "ratio": number / 4,
        "text": None if number % 3 == 0 else "é" * number,
        "raw": b"\x00\xff" * (number % 4),
        "amount": Decimal(number) / 4,
        "day": date(2026, 1, 1 + number),
        "at": datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC),
        "flags": None if number == 7 else [True, None, False][: number % 4],
        "deep": [["a"], None, ["b", None] * (number % 2)],
        "names": [("a", {"x": number / 2, "y": None}), ("b", None)][: number % 3],
    }


TABLE = pa.Table.from_pylist([row(number) for number in range(20)], SCHEMA)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(TABLE, id="all"),
        pytest.param(TABLE.slice(3, 5), id="a slice"),
        pytest.param(TABLE.slice(19, 1), id="the last one"),
        pytest.param(TABLE.slice(0, 0), id="none"),
        pytest.param(SCHEMA.empty_table(), id="no chunk"),
        pytest.param(pa.concat_tables([TABLE.slice(5), TABLE.slice(0, 7)]), id="two chunks"),
    ],
)
def test_rows_come_back(table: pa.Table) -> None:
    found = decode(encode(table), SCHEMA)
    assert found.equals(table)
    assert found.schema.equals(SCHEMA)


@given(tables())
def test_rows_of_whatever_schema_come_back(table: pa.Table) -> None:
    assert encode(decode(encode(table), table.schema)) == encode(table), "NaN is not equal to itself"


def test_a_slice_takes_nothing_else_along() -> None:
    big = pa.table({"text": ["x" * 1000] * 1000})
    assert sum(len(buffer or b"") for buffer in encode(big.slice(500, 1)).buffers) < 1100


def test_a_nested_schema_that_has_one_buffer_less_is_refused() -> None:
    wire = encode(TABLE)
    with pytest.raises(MalformedRows):
        decode(WireRows(wire.rows, wire.buffers[:-1]), SCHEMA)
    with pytest.raises(MalformedRows, match="more buffers"):
        decode(WireRows(wire.rows, (*wire.buffers, b"")), SCHEMA)


@pytest.mark.parametrize("rows", [-1, 21, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62])
def test_a_number_of_rows_that_the_buffers_do_not_have_is_refused(rows: int) -> None:
    with pytest.raises(MalformedRows):
        decode(WireRows(rows, encode(TABLE).buffers), SCHEMA)


def offsets(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little", signed=True) for value in values)


@pytest.mark.parametrize(
    ("kind", "buffers"),
    [
        pytest.param(pa.int64(), (None, bytes(8)), id="values are cut"),
        pytest.param(pa.int64(), (b"", bytes(16)), id="validity is cut"),
        pytest.param(pa.int64(), (None, None), id="no values"),
        pytest.param(pa.string(), (None, offsets(0, 100, 3), b"abc"), id="an offset behind the end"),
        pytest.param(pa.string(), (None, offsets(0, 2, 1), b"abc"), id="offsets that go back"),
        pytest.param(pa.string(), (None, offsets(-5, 0, 1), b"abc"), id="an offset below 0"),
        pytest.param(pa.string(), (None, offsets(0, 1, 2), b"\xff\xff"), id="no UTF-8"),
        pytest.param(pa.list_(pa.bool_()), (None, offsets(0, 9, 9), None, b"\x00"), id="elements are cut"),
        pytest.param(
            pa.map_(pa.int8(), pa.int8()), (None, offsets(0, 1, 1), b"\x00", None, b"1", None, b"1"), id="no entry"
        ),
        pytest.param(
            pa.map_(pa.int8(), pa.int8()), (None, offsets(0, 1, 1), None, b"\x00", b"1", None, b"1"), id="no key"
        ),
    ],
)
def test_buffers_that_lie_are_refused(kind: pa.DataType, buffers: tuple[bytes | None, ...]) -> None:
    with pytest.raises(MalformedRows):
        decode(WireRows(2, buffers), pa.schema([pa.field("x", kind)]))


def test_whatever_bytes_change_what_is_read_is_valid() -> None:
    """Offsets that lie, buffers that are cut, left out or exchanged: refused, or rows all the same."""
    wire = encode(TABLE)
    chance = random.Random(11)
    refused, count = 0, tries(50_000, 5_000)
    for _ in range(count):
        rows, buffers = wire.rows, list(wire.buffers)
        for _ in range(chance.choice((1, 1, 2, 8))):
            place = chance.randrange(len(buffers))
            data = bytearray(buffers[place] or b"")
            match chance.randrange(6):
                case 0:
                    buffers[place] = None
                case 1:
                    buffers[place] = bytes(data[: chance.randrange(len(data) + 1)])
                case 2:
                    other = chance.randrange(len(buffers))
                    buffers[place], buffers[other] = buffers[other], buffers[place]
                case 3:
                    rows = chance.choice((0, rows, rows + chance.randrange(1, 200), chance.randrange(1 << 31)))
                case _ if data:
                    data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
                    buffers[place] = bytes(data)
        try:
            found = decode(WireRows(rows, tuple(buffers)), SCHEMA)
        except MalformedRows:
            refused += 1
            continue
        found.validate(full=True)
        assert found.schema.equals(SCHEMA)
        assert found.num_rows == rows
        python = found.drop(["at", "day"])  # which have years that Python does not know
        assert len(python.to_pylist()) == rows
    assert 0.5 < refused / count < 0.95
