"""Rows with maps of structs: null above a field that is never null, however Arrow wrote it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import txnlog

ATTRIBUTES = pa.map_(pa.string(), pa.struct([pa.field("amount", pa.int32(), nullable=False)]))
SCHEMA = pa.schema([pa.field("attributes", ATTRIBUTES)])
ROWS = pa.table({"attributes": pa.array([[("x", None), ("y", {"amount": 1})]], ATTRIBUTES)}, SCHEMA)


def test_rows_that_were_taken_are_committed_though_a_column_is_added_meanwhile(local):
    """LOSS, LIE: a transaction cannot be committed any more, for an error of Arrow's, since somebody added a column.

    ``produce`` took the rows: a map, one of whose values is null where the value's struct has a field that is never
    null. They are of the topic's older schema, and are conformed to the newest one as the segment is made; the rows
    that conforming makes it cannot take again.
    """
    with txnlog.open(local.root, "shop", mode="rw", create=True) as ns:
        ns.create_topic("carts", SCHEMA)
        txn = ns.begin()
        txn.produce("carts", ROWS)
        ns.alter_topic("carts", add_columns=[pa.field("note", pa.string())])
        txn.produce("carts", {"attributes": [], "note": "more"})
        txn.commit()
        assert ns.snapshot().read("carts").column("attributes").to_pylist() == [*ROWS.column(0).to_pylist(), []]


@pytest.mark.parametrize("first", [0, 1])
def test_what_a_pipeline_computed_is_taken(local, first):
    """LIE: ``produce`` raises an error of Arrow's for valid rows, which its docstring does not know.

    ``pyarrow`` puts null below null wherever it flattens a struct (``StructArray.flatten``, ``pc.struct_field``).
    """
    inner = pa.StructArray.from_buffers(
        ATTRIBUTES.item_type, 2, [pa.py_buffer(b"\x02")], children=[pa.array([None, 1], pa.int32())]
    )
    column = pa.MapArray.from_arrays([0, 2, 2], ["x", "y"], inner, ATTRIBUTES)
    table = pa.Table.from_arrays([column], schema=SCHEMA).slice(first)
    table.validate(full=True)
    with txnlog.open(local.root, "shop", mode="rw", create=True) as ns:
        ns.create_topic("carts", SCHEMA)
        with ns.begin() as txn:
            txn.produce("carts", table)
        assert ns.snapshot().read("carts").column("attributes").to_pylist() == table.column(0).to_pylist()
