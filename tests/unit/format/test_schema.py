from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnlog.errors import SchemaMismatch
from txnlog.format import schema as schemas
from txnlog.format.schema import ArrayType, MapType, StructField, StructType

PRIMITIVES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(1,0)": pa.decimal128(1, 0),
    "decimal(38,38)": pa.decimal128(38, 38),
}

arrow_types = st.recursive(
    st.sampled_from(list(PRIMITIVES.values())),
    lambda inner: st.one_of(
        st.builds(lambda kind, nullable: pa.list_(pa.field("element", kind, nullable)), inner, st.booleans()),
        st.builds(
            lambda key, value, nullable: pa.map_(key, pa.field("value", value, nullable)), inner, inner, st.booleans()
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([pa.field(f"f{index}", kind) for index, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=6,
)


def columns(*fields: pa.Field) -> StructType:
    return schemas.from_arrow(pa.schema(fields))


def nested(depth: int) -> StructType:
    kind: schemas.DataType = "long"
    for _ in range(depth - 1):
        kind = ArrayType(kind)
    return StructType((StructField("x", kind),))


@pytest.mark.clause("P-37")
@pytest.mark.parametrize(("name", "arrow"), PRIMITIVES.items(), ids=PRIMITIVES.keys())
def test_every_type_of_the_protocol_has_its_arrow_type_and_comes_back(name, arrow):
    assert schemas.type_to_arrow(name) == arrow
    assert columns(pa.field("x", arrow)).fields[0].type == name


@given(st.lists(arrow_types, min_size=1, max_size=4), st.booleans())
def test_an_arrow_schema_comes_back_from_the_log(kinds, nullable):
    arrow = pa.schema([pa.field(f"c{index}", kind, nullable) for index, kind in enumerate(kinds)])
    schema = schemas.from_arrow(arrow)
    stored = msgspec.json.decode(msgspec.json.encode(schema), type=StructType)
    assert stored == schema
    assert schemas.to_arrow(stored) == arrow


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp"),
        (pa.decimal256(20, 3), "decimal(20,3)"),
    ],
)
def test_a_near_relative_is_taken_as_the_type_of_the_log(arrow, name):
    assert columns(pa.field("x", arrow)).fields[0].type == name


@pytest.mark.parametrize("arrow", [pa.large_list(pa.int64()), pa.list_(pa.int64(), 3)])
def test_every_kind_of_list_is_a_list(arrow):
    assert columns(pa.field("x", arrow)).fields[0].type == ArrayType("long")


@pytest.mark.clause("P-37")
@pytest.mark.parametrize(
    "arrow",
    [
        pa.uint8(),
        pa.uint64(),
        pa.null(),
        pa.float16(),
        pa.time64("us"),
        pa.duration("us"),
        pa.binary(16),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.list_(pa.uint32()),
        pa.struct([pa.field("y", pa.time32("s"))]),
    ],
    ids=str,
)
def test_a_type_without_counterpart_is_refused_and_the_column_named(arrow):
    with pytest.raises(SchemaMismatch, match="'x"):
        columns(pa.field("x", arrow))


@pytest.mark.clause("P-37")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "int",
        "decimal",
        "decimal(0,0)",
        "decimal(39,0)",
        "decimal(5,6)",
        "decimal(5, 2)",
        "decimal(05,2)",
        "void",
        "Long",
    ],
)
def test_a_type_that_the_protocol_does_not_know_is_refused(name):
    with pytest.raises(SchemaMismatch):
        schemas.check(StructType((StructField("x", name),)))


def test_what_is_no_schema_is_refused():
    with pytest.raises(SchemaMismatch, match=r"pyarrow\.Schema"):
        schemas.from_arrow({"x": "long"})


@pytest.mark.clause("P-37")
def test_a_schema_has_at_least_one_column_and_at_most_two_thousand():
    with pytest.raises(SchemaMismatch, match="no column"):
        schemas.check(StructType(()))
    many = tuple(StructField(f"c{index}", "long") for index in range(2_001))
    schemas.check(StructType(many[:2_000]))
    with pytest.raises(SchemaMismatch, match="2001 columns"):
        schemas.check(StructType(many))


@pytest.mark.clause("P-37")
def test_a_schema_has_at_most_32_levels():
    schemas.check(nested(32))
    with pytest.raises(SchemaMismatch, match="deeper"):
        schemas.check(nested(33))


def test_an_arrow_schema_that_is_too_deep_is_refused_before_it_is_built():
    kind = pa.int64()
    for _ in range(200):
        kind = pa.list_(kind)
    with pytest.raises(SchemaMismatch, match="deeper"):
        columns(pa.field("x", kind))


@pytest.mark.clause("P-37")
def test_a_struct_without_fields_is_refused():
    with pytest.raises(SchemaMismatch, match="without fields"):
        schemas.check(StructType((StructField("x", ArrayType(StructType(()))),)))


@pytest.mark.clause("P-38")
@pytest.mark.parametrize(
    "name", ["", "a b", "a,b", "a;b", "{a}", "(a)", "a=b", "a\n", "a\0", "a\tb", "a\x7f", "x" * 256]
)
def test_a_column_name_that_an_engine_would_choke_on_is_refused(name):
    for schema in (
        StructType((StructField(name, "long"),)),
        StructType((StructField("x", StructType((StructField(name, "long"),))),)),
        StructType((StructField("x", MapType("string", StructType((StructField(name, "long"),)))),)),
    ):
        with pytest.raises(SchemaMismatch):
            schemas.check(schema)


@pytest.mark.clause("P-38")
@pytest.mark.parametrize("name", ["größe", "a.b", "a-b", "日本", "x" * 255, "$x", "a`b", "a/b", "'"])
def test_any_other_column_name_is_fine(name):
    schemas.check(StructType((StructField(name, "long"),)))


@pytest.mark.clause("P-38")
@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("a", "a"), ("straße", "STRASSE"), ("É", "é")])
def test_columns_that_differ_only_in_case_are_refused(one, other):
    pair = StructType((StructField(one, "long"), StructField(other, "long")))
    with pytest.raises(SchemaMismatch, match="twice" if one == other else "case"):
        schemas.check(pair)
    with pytest.raises(SchemaMismatch, match="twice" if one == other else "case"):
        schemas.check(StructType((StructField("x", pair),)))


@pytest.mark.clause("P-39")
def test_names_with_a_leading_underscore_are_reserved_at_the_top():
    with pytest.raises(SchemaMismatch, match="reserved"):
        schemas.check(StructType((StructField("_offset", "long"),)))
    schemas.check(StructType((StructField("x", StructType((StructField("_y", "long"),))),)))


@pytest.mark.clause("P-32")
@pytest.mark.parametrize("kind", ["string", "binary", "byte", "short", "integer", "long"])
def test_a_key_may_have_a_type_whose_hash_is_the_same_everywhere(kind):
    schemas.check_key(StructType((StructField("k", kind),)), "k")


@pytest.mark.clause("P-32")
@pytest.mark.parametrize(
    "kind",
    [
        *("boolean", "float", "double", "date", "timestamp", "decimal(5,2)"),
        *(ArrayType("long"), MapType("string", "long"), StructType((StructField("a", "long"),))),
    ],
)
def test_a_key_of_another_type_is_refused(kind):
    with pytest.raises(SchemaMismatch, match="cannot be the key"):
        schemas.check_key(StructType((StructField("k", kind),)), "k")


@pytest.mark.clause("P-32")
def test_a_key_that_is_no_column_is_refused_and_the_nearest_offered():
    with pytest.raises(SchemaMismatch, match="customer_id"):
        schemas.check_key(StructType((StructField("customer_id", "long"),)), "custmer_id")


def test_a_topic_made_without_schema_is_like_kafkas():
    schemas.check(schemas.DEFAULT_SCHEMA)
    assert schemas.to_arrow(schemas.DEFAULT_SCHEMA) == pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.map_(pa.string(), pa.field("value", pa.binary()))),
        ]
    )
