"""Conditions that go by the places of columns, where dead letters have them in another order."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tests.client.support import Place
from txnlog.client import dead_letters
from txnlog.errors import InvalidInputError
from txnlog.format import schema as schemas


def test_a_condition_by_the_place_of_a_column_erases_no_other_letter(memory: Place) -> None:
    """Loses a row, keeps an erased one, and lies: ``is_complete`` is about another column of the dead letters.

    A topic for dead letters may have its columns in any order; a condition such as ``field(0)`` is taken as it is.
    """
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", pa.schema([pa.field("customer", pa.string()), pa.field("friend", pa.string())]))
    columns = schemas.to_arrow(dead_letters.schema_of(ns._connection.topic_record("orders").schema))
    others = [field for field in columns if field.name not in {"customer", "friend"}]
    ns.create_topic("letters", pa.schema([columns.field("friend"), columns.field("customer"), *others]))
    ns.create_subscription("orders", "s", dead_letter_topic="letters")
    ns.produce(
        "letters",
        [
            {"customer": "C-17", "friend": "C-1", "_source_topic": "orders"},
            {"customer": "C-1", "friend": "C-17", "_source_topic": "orders"},
        ],
    )
    try:
        ns.erase("orders", pc.field(0) == "C-17")
    except InvalidInputError:
        return  # refused: good as well
    assert ns.snapshot().read("letters").column("customer").to_pylist() == ["C-1"]
