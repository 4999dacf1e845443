"""Hypothesis strategies: schemas that a topic may have, tables of them, and junk."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import pyarrow as pa
from hypothesis import strategies as st

PRIMITIVES = [
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.decimal128(38, 0),
    pa.decimal128(10, 2),
    pa.decimal128(38, 38),
]

_NAMES = ["a", "b.c", "ä", "Z", "value", "key", "element"]


def _types(nullable: st.SearchStrategy[bool]) -> st.SearchStrategy[pa.DataType]:
    def extend(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        lists = st.builds(lambda kind, null: pa.list_(pa.field("element", kind, null)), children, nullable)
        maps = st.builds(
            lambda key, kind, null: pa.map_(key, pa.field("value", kind, null)),
            st.sampled_from([pa.string(), pa.int32(), pa.binary()]),
            children,
            nullable,
        )
        structs = _fields(children, nullable).map(pa.struct)
        return lists | maps | structs

    return st.recursive(st.sampled_from(PRIMITIVES), extend, max_leaves=4)


def _fields(
    kinds: st.SearchStrategy[pa.DataType], nullable: st.SearchStrategy[bool]
) -> st.SearchStrategy[list[pa.Field]]:
    return st.lists(
        st.tuples(st.sampled_from(_NAMES), kinds, nullable), min_size=1, max_size=4, unique_by=lambda item: item[0]
    ).map(lambda items: [pa.field(name, kind, null) for name, kind, null in items])


def schemas() -> st.SearchStrategy[pa.Schema]:
    """Schemas with every type that the log has, nested and not."""
    return _fields(_types(st.booleans()), st.booleans()).map(pa.schema)


def values(kind: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[object]:
    """Values of a type, as pyarrow gives them back."""
    strategy = _plain_values(kind)
    return st.none() | strategy if nullable else strategy


def _plain_values(kind: pa.DataType) -> st.SearchStrategy[object]:
    types = pa.types
    if types.is_string(kind):
        return st.text(max_size=40) | st.sampled_from(["", "x" * 50, "\U0010ffff" * 40, "é" * 33])
    if types.is_binary(kind):
        return st.binary(max_size=40)
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_integer(kind):
        return st.integers(-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if types.is_date(kind):
        return st.dates()
    if types.is_timestamp(kind):
        return st.datetimes(timezones=st.just(dt.UTC)) if kind.tz else st.datetimes()
    if types.is_decimal(kind):
        limit = 10**kind.precision - 1
        return st.integers(-limit, limit).map(
            lambda number: decimal.Decimal((number < 0, tuple(map(int, str(abs(number)))), -kind.scale))
        )
    if types.is_map(kind):
        return st.lists(
            st.tuples(values(kind.key_type, nullable=False), values(kind.item_type, nullable=kind.item_field.nullable)),
            max_size=3,
        )
    if types.is_list(kind):
        return st.lists(values(kind.value_type, nullable=kind.value_field.nullable), max_size=3)
    return st.fixed_dictionaries({child.name: values(child.type, nullable=child.nullable) for child in kind})


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 6) -> pa.Table:
    """Tables of any schema, in one or two chunks."""
    schema = draw(schemas())
    rows = draw(st.integers(0, max_rows))
    chunks = []
    for count in (rows, draw(st.integers(0, 2))):
        arrays = [
            pa.array(
                draw(st.lists(values(field.type, nullable=field.nullable), min_size=count, max_size=count)), field.type
            )
            for field in schema
        ]
        chunks.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(chunks)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["\ud800", math.nan, object(), 2**100, -(2**63), dt.time(1), dt.timedelta(1), {1, 2}, 1j, print])
    | st.binary(max_size=5)
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3),
    max_leaves=5,
)
"""Whatever a user may put into a dict."""
