"""How a schema may change: what is allowed, and which rule and column a refusal names."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnlog.data.schema_evolution import carried, evolved, is_read_by, takes, widens
from txnlog.data.segment_columns import read_columns
from txnlog.errors import SchemaMismatch
from txnlog.format import schema
from txnlog.format.schema import ArrayType, DataType, MapType, StructField, StructType

SIMPLE = (
    *("string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp"),
    *(
        "timestamp_ntz",
        "decimal(5,2)",
        "decimal(7,2)",
        "decimal(7,4)",
        "decimal(5,4)",
        "decimal(38,0)",
        "decimal(38,10)",
    ),
)
WIDER = {
    ("byte", "short"),
    ("byte", "integer"),
    ("byte", "long"),
    ("byte", "double"),
    ("short", "integer"),
    ("short", "long"),
    ("short", "double"),
    ("integer", "long"),
    ("integer", "double"),
    ("float", "double"),
    ("decimal(5,2)", "decimal(7,2)"),
    ("decimal(5,2)", "decimal(7,4)"),
    ("decimal(5,2)", "decimal(38,10)"),
    ("decimal(7,2)", "decimal(38,10)"),
    ("decimal(7,4)", "decimal(38,10)"),
    ("decimal(5,4)", "decimal(7,4)"),
    ("decimal(5,4)", "decimal(38,10)"),
}


def columns(*fields: tuple[str, DataType] | StructField) -> StructType:
    return StructType(tuple(item if isinstance(item, StructField) else StructField(*item) for item in fields))


OLD = columns(StructField("id", "integer", nullable=False), ("amount", "decimal(5,2)"))


@pytest.mark.parametrize("old", SIMPLE)
def test_a_simple_type_widens_to_those_that_have_all_its_values_and_to_no_other(old):
    assert {new for new in SIMPLE if widens(old, new)} == {new for new in SIMPLE if (old, new) in WIDER} | {old}


VALUES: dict[str, list[Any]] = {
    "string": ["", "a"],
    "binary": [b"", b"a"],
    "boolean": [True, False],
    "byte": [-(2**7), 2**7 - 1],
    "short": [-(2**15), 2**15 - 1],
    "integer": [-(2**31), 2**31 - 1],
    "long": [-(2**63), 2**63 - 1, 2**53 + 1],
    "float": [0.1, -0.0, math.inf, 3.4e38],
    "double": [0.1, 1.7e308],
    "date": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)],
    "timestamp_ntz": [datetime.datetime(2026, 11, 21)],  # noqa: DTZ001 - it has no zone
    "decimal(5,2)": [Decimal("999.99"), Decimal("-0.01")],
    "decimal(7,2)": [Decimal("99999.99")],
    "decimal(7,4)": [Decimal("999.9999")],
    "decimal(5,4)": [Decimal("9.9999")],
    "decimal(38,0)": [Decimal(10**38 - 1)],
    "decimal(38,10)": [Decimal("9999999999999999999999999999.9999999999")],
}


def stored(table: pa.Table) -> pa.Buffer:
    """The bytes of a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, write_page_checksum=True)
    return sink.getvalue()


@pytest.mark.parametrize(("old", "new"), sorted(WIDER))
def test_whatever_may_be_widened_is_read_from_old_files_with_the_very_values(old, new):
    table = pa.table({"x": pa.array([*VALUES[old], None], schema.type_to_arrow(old))})
    wanted = pa.schema([("x", schema.type_to_arrow(new))])
    found = read_columns(stored(table), wanted, table.num_rows).column("x").to_pylist()
    expected = table.column("x").to_pylist()
    assert found == expected
    assert [str(item) for item in found if item == 0] == [str(item) for item in expected if item == 0]  # -0.0


def test_nested_columns_are_read_from_old_files_as_they_may_be_widened():
    old = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32()))])
    new = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64())), ("c", pa.string())])
    before, after = (
        schema.from_arrow(pa.schema([("x", kind), ("m", pa.map_(pa.string(), kind))])) for kind in (old, new)
    )
    wanted = evolved(before, (), {item.name: item for item in after.fields})
    assert wanted == after
    rows = [{"a": 1, "b": [0.5, None]}, None]
    table = pa.table({"x": pa.array(rows, old), "m": pa.array([[("k", rows[0])], None], pa.map_(pa.string(), old))})
    found = read_columns(stored(table), schema.to_arrow(wanted), 2)
    assert found.column("x").to_pylist() == [{"a": 1, "b": [0.5, None], "c": None}, None]
    assert found.column("m").to_pylist() == [[("k", {"a": 1, "b": [0.5, None], "c": None})], None]


def test_new_columns_come_last_and_the_others_keep_their_places():
    result = evolved(OLD, [StructField("note", "string")], {"id": StructField("id", "long", nullable=False)})
    assert result == columns(StructField("id", "long", nullable=False), ("amount", "decimal(5,2)"), ("note", "string"))


def test_what_is_there_already_is_no_change():
    assert evolved(OLD, OLD.fields[1:], {"id": OLD.fields[0]}) == OLD
    assert evolved(OLD, [StructField("note", "string"), StructField("note", "string")]).fields[2:] == (
        StructField("note", "string"),
    )


def test_null_may_be_allowed_and_the_metadata_of_a_column_stays():
    old = columns(StructField("id", "integer", nullable=False, metadata={"unit": "pieces"}))
    assert evolved(old, (), {"id": StructField("id", "integer")}) == columns(
        StructField("id", "integer", nullable=True, metadata={"unit": "pieces"})
    )


NESTED = columns(("address", columns(("zip", "integer"), StructField("city", "string", nullable=False))))


@pytest.mark.parametrize(
    ("old", "added", "widened", "match"),
    [
        (OLD, [StructField("note", "string", nullable=False)], {}, r"new column 'note' must allow null"),
        (OLD, [StructField("amount", "double")], {}, r"'amount' is there as decimal\(5,2\)"),
        (
            OLD,
            [StructField("amount", "decimal(5,2)", nullable=False)],
            {},
            "may be null: it cannot be added as not null",
        ),
        (OLD, [StructField("id", "integer")], {}, "id: int32 not null is there: .* may be null"),
        (
            NESTED,
            [StructField("address", columns(("zip", "integer"), ("city", "string")))],
            {},
            "with another type: address.city: string not null instead of string",
        ),
        (OLD, [StructField("ID", "integer")], {}, "differ only in case"),
        (OLD, [StructField("_note", "string")], {}, "reserved"),
        (OLD, [StructField("a b", "string")], {}, "not allowed"),
        (OLD, [], {"amont": StructField("amont", "double")}, "no column 'amont'"),
        (OLD, [], {"id": StructField("id", "short", nullable=False)}, "'id' is integer, which does not widen to short"),
        (OLD, [], {"id": StructField("id", "float", nullable=False)}, "does not widen to float"),
        (OLD, [], {"id": StructField("id", "string", nullable=False)}, "does not widen to string"),
        (OLD, [], {"amount": StructField("amount", "decimal(5,4)")}, "does not widen"),
        (
            OLD,
            [],
            {"amount": StructField("amount", "decimal(5,2)", nullable=False)},
            "'amount' may be null, and must stay",
        ),
        (OLD, [], {"amount": StructField("amount", ArrayType("long"))}, "does not widen to list"),
        (NESTED, [], {"address": StructField("address", columns(("zip", "long")))}, r"'address.city' is left out"),
        (
            NESTED,
            [],
            {"address": StructField("address", columns(("zip", "byte"), ("city", "string")))},
            r"'address.zip' is integer, which does not widen to byte",
        ),
        (
            NESTED,
            [],
            {
                "address": StructField(
                    "address",
                    columns(("zip", "long"), ("city", "string"), StructField("land", "string", nullable=False)),
                )
            },
            r"new column 'address.land' must allow null",
        ),
        (
            columns(("tags", ArrayType("integer"))),
            [],
            {"tags": StructField("tags", ArrayType("long", containsNull=False))},
            "'tags.element' may be null",
        ),
        (
            columns(("prices", MapType("string", "float"))),
            [],
            {"prices": StructField("prices", MapType("binary", "double"))},
            "'prices.key' is string, which does not widen to binary",
        ),
        (
            columns(("prices", MapType("string", "float"))),
            [],
            {"prices": StructField("prices", MapType("string", "double", valueContainsNull=False))},
            "'prices.value' may be null",
        ),
    ],
)
def test_a_refusal_names_the_column_and_the_rule(old, added, widened, match):
    with pytest.raises(SchemaMismatch, match=match) as caught:
        evolved(old, added, widened)
    assert caught.value.advice


def test_the_key_keeps_its_type_and_may_be_null():
    with pytest.raises(SchemaMismatch, match="the key 'id' keeps its type"):
        evolved(OLD, (), {"id": StructField("id", "long", nullable=False)}, "id")
    assert evolved(OLD, (), {"id": StructField("id", "integer")}, "id").fields[0].nullable


def test_too_many_columns_are_refused():
    with pytest.raises(SchemaMismatch, match="2001 columns"):
        evolved(OLD, [StructField(f"c{number}", "long") for number in range(1_999)])


def test_dead_letters_follow_by_what_is_missing_or_too_narrow_only():
    letters = columns(("id", "long"), ("amount", "decimal(5,2)"), ("_dead_reason", "string"))
    source = columns(StructField("id", "integer", nullable=False), ("amount", "decimal(9,4)"), ("note", "string"))
    assert carried(letters, source) == columns(
        ("id", "long"), ("amount", "decimal(9,4)"), ("_dead_reason", "string"), ("note", "string")
    )
    with pytest.raises(SchemaMismatch, match="'amount' is decimal"):
        carried(letters, columns(("amount", "string")))


def test_rows_are_taken_by_a_column_as_if_it_were_widened_from_theirs():
    assert takes(StructField("x", "long"), StructField("x", "integer", nullable=False))
    assert not takes(StructField("x", "integer"), StructField("x", "long"))
    assert not takes(StructField("x", "integer", nullable=False), StructField("x", "integer"))


def random_type(chance: random.Random, depth: int = 0) -> DataType:
    """A type that may be nested."""
    kind = chance.randrange(8 if depth < 3 else 5)
    if kind == 5:
        return ArrayType(random_type(chance, depth + 1), chance.random() < 0.5)
    if kind == 6:
        return MapType(random_type(chance, depth + 1), random_type(chance, depth + 1), chance.random() < 0.5)
    if kind == 7:
        return columns(
            *(
                StructField(f"f{number}", random_type(chance, depth + 1), chance.random() < 0.5)
                for number in range(chance.randrange(1, 4))
            )
        )
    return chance.choice(SIMPLE)


def random_change(chance: random.Random, kind: DataType, *, only_more: bool = False) -> DataType:
    """A type to which one may be altered."""
    if isinstance(kind, ArrayType):
        return ArrayType(
            random_change(chance, kind.elementType, only_more=only_more),
            kind.containsNull or (not only_more and chance.random() < 0.3),
        )
    if isinstance(kind, MapType):
        return MapType(
            random_change(chance, kind.keyType, only_more=only_more),
            random_change(chance, kind.valueType, only_more=only_more),
            kind.valueContainsNull or (not only_more and chance.random() < 0.3),
        )
    if isinstance(kind, StructType):
        fields = [
            StructField(
                item.name,
                random_change(chance, item.type, only_more=only_more),
                item.nullable or (not only_more and chance.random() < 0.3),
            )
            for item in kind.fields
        ]
        added = [
            StructField(f"new{chance.randrange(10**9)}", random_type(chance, 3)) for _ in range(chance.randrange(2))
        ]
        return StructType((*fields, *added))
    if only_more:
        return kind
    return chance.choice([new for old, new in sorted(WIDER) if old == kind] or [kind])


def test_what_is_altered_is_accepted_and_a_step_back_is_refused_unless_nothing_changed():
    chance = random.Random(6)
    for _ in range(500):
        old = random_type(chance)
        new = random_change(chance, old)
        (field,) = evolved(columns(("x", old)), (), {"x": StructField("x", new)}).fields
        assert field.type == new
        if new != old:
            with pytest.raises(SchemaMismatch):
                evolved(columns(("x", new)), (), {"x": StructField("x", old)})


def test_a_newer_schema_is_read_by_an_older_one_while_it_has_only_more_columns():
    chance = random.Random(7)
    widened = 0
    for _ in range(500):
        old = random_type(chance)
        more = random_change(chance, old, only_more=True)
        assert is_read_by(columns(("x", more), ("y", "long")), columns(("x", old)))
        new = random_change(chance, old)
        if not is_read_by(columns(("x", new)), columns(("x", old))):
            widened += 1
    assert widened > 100
    for newer in ("long", "double"):
        assert not is_read_by(columns(("x", newer)), columns(("x", "integer")))
    assert not is_read_by(columns(("x", "integer")), columns(StructField("x", "integer", nullable=False)))
    assert not is_read_by(columns(("y", "integer")), columns(("x", "integer")))
