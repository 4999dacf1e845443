"""The table "Types of columns and keys" of docs/python.md says what the code accepts, and what Spark makes of it."""

from __future__ import annotations

import json
import re

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from tests.pages import page, section
from txnlog.errors import InvalidInputError, SchemaMismatch
from txnlog.format import schema
from txnlog.format.delta_mode import check_delta_columns


def rows():
    """By row its Arrow types, as written, and its other cells."""
    table = section(page("docs/python.md"), "Types of columns and keys").split("\n\n")[0]
    lines = [re.split(r" ?\| ?", line.strip("|").strip()) for line in table.strip().splitlines()[2:]]
    return [([text for text in re.findall(r"`([^`]*)`", cells[0]) if "pa." in text], cells[1:]) for cells in lines]


ROWS = [(text, cells) for texts, cells in rows() for text in texts]


def accepted(check, *arguments):
    try:
        check(*arguments)
    except (SchemaMismatch, InvalidInputError):
        return False
    return True


@pytest.mark.parametrize(("text", "cells"), ROWS, ids=[text for text, _ in ROWS])
def test_a_row_says_what_the_code_does(text, cells):
    arrow = pa.schema([("c", eval(text, {"pa": pa}))])
    column, key, spark, delta = (*cells, "", "", "")[:4]
    assert column.startswith("yes") is accepted(schema.from_arrow, arrow)
    if not column.startswith("yes"):
        assert (column[:3], key) == ("no:", "no")
        return
    found = schema.from_arrow(arrow)
    shown = StructType.fromJson(json.loads(msgspec.json.encode(found)))["c"].dataType.simpleString()
    assert f"`{shown}`" in spark
    assert key.startswith(("yes", "as its values")) is accepted(schema.check_key, found, "c")
    assert delta.startswith(("yes", "as its")) is accepted(check_delta_columns, found, "manual")


def test_no_type_of_the_log_is_left_out():
    stored = [
        schema.from_arrow(pa.schema([("c", eval(text, {"pa": pa}))])) for text, cells in ROWS if cells[0] == "yes"
    ]
    kinds = [found.fields[0].type for found in stored]
    assert {kind for kind in kinds if isinstance(kind, str)} >= {*schema.PRIMITIVES, "decimal(10,2)"}
    assert {type(kind) for kind in kinds} == {str, schema.ArrayType, schema.MapType, schema.StructType}
    assert set(schema._NAMES) <= {eval(text, {"pa": pa}) for text, _ in ROWS}


def test_what_is_read_has_the_first_type_of_its_row():
    for texts, cells in rows():
        if cells[0] == "yes" and not cells[1].startswith("as") and "decimal" not in texts[0]:
            first = eval(texts[0], {"pa": pa})
            for text in texts:
                read = schema.to_arrow(schema.from_arrow(pa.schema([("c", eval(text, {"pa": pa}))])))
                assert read.field(0).type.equals(first, check_metadata=False) or pa.types.is_nested(first), text
