"""What the tests of foreign engines share: topics of every kind, and what an engine must see of them and not do."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalog as txn_catalog
from catalog.publication import table_publisher, topic_versions
from tests.by_hand import append, compact
from tests.catalog.engines import WRITES, EngineError, Engines, assert_same
from tests.catalog.stories import SCHEMA, Story, mergeable
from tests.client.support import Place
from txnlog.format.actions import AlterTopic
from txnlog.format.schema import StructField, StructType


@pytest.fixture(autouse=True)
def short_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files a version and checkpoints often, so that short histories meet both; for the modules that import it."""
    monkeypatch.setattr(topic_versions, "MOST_FILES", 3)
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 4)


def shown(story: Story) -> dict[str, dict[int, int]]:
    """By folder what each Delta version shows, as the Delta log says."""
    found: dict[str, dict[int, int]] = {}
    for record in story.records():
        folder = Path(story.path(record)) / "_delta_log"
        for path in sorted(folder.glob("*.json")):
            says = json.loads(path.read_text().split("\n", 1)[0])["commitInfo"]["txnlog"]
            assert says["topic"] == record.id
            found.setdefault(record.folder, {})[int(path.stem)] = says["version"]
    return found


def check_changes(story: Story, engines: Engines, engine: str, versions: dict[str, dict[int, int]]) -> None:
    """Who follows the changes from the beginning is told of each row once, whatever was merged meanwhile."""
    for record in story.records():
        if record.folder in versions:
            wanted = story.wanted(record, max(versions[record.folder].values()))
            found = engines.read(engine, story.path(record), 0)
            ids = found.column("id").to_pylist()
            assert set(found.column("_change_type").to_pylist()) <= {"insert"}
            assert sorted(ids) == sorted(wanted.column("id").to_pylist())


UTC = datetime.UTC

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [-128, 127]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "real": (pa.float32(), [-1.5, 3.25]),
    "double": (pa.float64(), [-1e300, 0.1]),
    "day": (pa.date32(), [datetime.date(1582, 10, 4), datetime.date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime.datetime(2026, 11, 21, 0, 0, 0, 1, UTC)],
    ),
    "small": (pa.decimal128(4, 2), [Decimal("-12.34"), Decimal("99.99")]),
    "middle": (pa.decimal128(18, 6), [Decimal("-123456789012.345678"), Decimal("0.000001")]),
    "great": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0.0000000001")]),
    "text": (pa.string(), ["", "\U0001f986" * 40]),
    "data": (pa.binary(), [b"", b"\x00\xff"]),
    "list": (pa.list_(pa.list_(pa.int32())), [[], [[1, None], None, []]]),
    "map": (pa.map_(pa.string(), pa.list_(pa.float64())), [[], [("a", [1.5, None]), ("b", None)]]),
    "nested": (
        pa.struct([("p", pa.string()), ("q", pa.struct([("r", pa.binary()), ("s", pa.timestamp("us", "UTC"))]))]),
        [
            {"p": None, "q": {"r": None, "s": None}},
            {"p": "x", "q": {"r": b"\xff", "s": datetime.datetime(2026, 1, 1, tzinfo=UTC)}},
        ],
    ),
    "items": (pa.list_(pa.struct([("price", pa.decimal128(9, 3))])), [[None], [{"price": Decimal("1.500")}]]),
    "a.b": (pa.int64(), [1, 2]),
    "Straße-ö": (pa.string(), ["ß", "x"]),
}


def typed(story_place: Place) -> tuple[Any, str]:
    """A topic with every type a published topic may have: its namespace and the path of its table."""
    ns = story_place.open()
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in TYPES.items()])
    ns.create_topic("types", schema, partitions=2)
    for row in range(2):
        table = pa.Table.from_pylist([{name: values[row] for name, (_, values) in TYPES.items()}], schema)
        ns.produce("types", table, partition=row)
    ns.produce("types", pa.Table.from_pylist([dict.fromkeys(TYPES)], schema))
    with txn_catalog.open(story_place.root) as cat:
        assert cat.publish("sales", "types").delta_version >= 0
    return ns, f"{story_place.root}/sales/types"


CONDITIONS = [
    "id > 3",
    "id = 7",
    "id < 0",
    "name = 'n3'",
    "name > 'n2'",
    "name IS NULL",
    "name IS NOT NULL",
    "price >= 1.25",
    "id >= 2 AND id < 9",
]

EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int64(), [1, 2, 3]),
    "flag": (pa.bool_(), [True, None, False]),
    "great": (pa.decimal128(38, 0), [Decimal(123456789012345678), None, Decimal(7)]),
    "small": (pa.decimal128(15, 10), [Decimal(0), None, Decimal(7)]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime.max.replace(tzinfo=UTC), None, datetime.datetime(2026, 1, 1, tzinfo=UTC)],
    ),
    "name": (pa.string(), ["x" * 5_000, None, "y"]),
    "nested": (pa.struct([("b", pa.int64())]), [{"b": 1}, None, None]),
    "more": (pa.int64(), [None, None, 7]),
}
"""What Delta's statistics do not say, or not as it is: the first two rows share a file that lacks the last column."""

EDGE_CONDITIONS = {
    "flag = true": [1],
    "flag = false": [3],
    "great = 123456789012345678": [1],
    "great = 7": [3],
    "small = 0": [1],
    "small > 1": [3],
    "moment IS NOT NULL": [1, 3],
    "name > 'x'": [1, 3],
    "nested IS NOT NULL": [1],
    "more IS NULL": [1, 2],
    "more = 7": [3],
    "id = 1": [1],
}


def edges(place: Place) -> str:
    """A topic whose statistics are hard to tell; its path."""
    ns = place.open()
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in EDGES.items()])
    rows = pa.table([pa.array(values, kind) for kind, values in EDGES.values()], schema)
    older = schema.remove(len(schema) - 1)
    ns.create_topic("edges", older)
    ns.produce("edges", rows.select(older.names).slice(0, 2))
    ns.alter_topic("edges", add_columns=pa.schema([schema.field("more")]))
    ns.produce("edges", rows.slice(2))
    with txn_catalog.open(place.root) as cat:
        cat.publish("sales", "edges")
    return f"{place.root}/sales/edges"


def check_edges(path: str, engines: Engines, engine: str, more: dict[str, list[int]] | None = None) -> None:
    for where, wanted in (EDGE_CONDITIONS | (more or {})).items():
        found = engines.read(engine, path, where=where).column("id").to_pylist()
        assert sorted(found) == wanted, where


NOT_A_NUMBER = pa.schema([("id", pa.int64()), ("small", pa.float32()), ("great", pa.float64())])

NOT_NUMBERS: list[list[float | None]] = [[1.0, float("nan")], [10.0, float("nan"), None], [0.5, 1.5]]
"""The numbers of a file each. To all engines a NaN is above every number."""

NAN_CONDITIONS = {"{x} > 5": [1, 2, 3], "{x} <> 1.0": [1, 2, 3, 5, 6], "{x} < 1": [5], "NOT ({x} <= 5)": [1, 2, 3]}


def not_numbers(place: Place) -> str:
    """A topic with NaNs, in files of one call and in a merged one; its path."""
    ns = place.open()
    number = 0
    for topic in ("orders", "merged"):
        ns.create_topic(topic, NOT_A_NUMBER, partitions=3)
    for partition, values in enumerate(NOT_NUMBERS):
        for value in values:
            ns.produce("merged", [{"id": number, "small": value, "great": value}], partition=partition)
            number += 1
        first = number - len(values)
        rows = [{"id": first + at, "small": value, "great": value} for at, value in enumerate(values)]
        ns.produce("orders", rows, partition=partition)
    assert ns.optimize("merged").written_segments == 3
    with txn_catalog.open(place.root) as cat:
        cat.publish("sales")
    return f"{place.root}/sales"


def check_not_numbers(path: str, engines: Engines, engine: str) -> None:
    for topic in ("orders", "merged"):
        for where, wanted in NAN_CONDITIONS.items():
            for column in ("small", "great"):
                found = engines.read(engine, f"{path}/{topic}", where=where.format(x=column)).column("id").to_pylist()
                assert sorted(found) == wanted, f"{topic}: {where.format(x=column)}"


def written(place: Place) -> tuple[Any, str, dict[str, bytes]]:
    """A published topic with removed segments and an open transaction, and all its files."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    story_rows = [{"id": number, "name": f"n{number}", "price": 0.5} for number in range(8)]
    for number in range(4):
        ns.produce("orders", story_rows[2 * number : 2 * number + 2])
    with txn_catalog.open(place.root) as cat:
        cat.publish("sales", "orders")
        ((partition, run),) = mergeable(ns, "orders")
        compact(ns, "orders", run[:2], partition)
        cat.publish("sales", "orders")
    txn = ns.begin()
    txn.produce("orders", story_rows[:1])
    txn.flush()
    return ns, f"{place.root}/sales/orders", files_of(f"{place.root}/sales/orders")


def files_of(path: str) -> dict[str, bytes]:
    return {str(item.relative_to(path)): item.read_bytes() for item in sorted(Path(path).rglob("*")) if item.is_file()}


FAST_WRITES = sorted(name for name in WRITES if name.startswith("deltalake"))

SPARK_WRITES = sorted(name for name in WRITES if name.startswith("spark"))

HARMLESS = {"spark optimize"}
"""Finds nothing to do, since each file is a partition of its own, and writes nothing."""


def refused(place: Place, engines: Engines, what: str) -> None:
    ns, path, before = written(place)
    if what in HARMLESS:
        engines.ask(call="write", path=path, what=what)
    else:
        with pytest.raises(EngineError, match=r"(?i)unsupported|append.?only|not supported"):
            engines.ask(call="write", path=path, what=what)
    after = files_of(path)
    strangers = {name for name in after.keys() - before.keys() if not name.endswith(".crc")}
    assert {name: after.get(name) for name in before} == before, "nothing was changed or deleted"
    assert not [name for name in strangers if name.startswith("_delta_log/") and name.endswith(".json")]
    with txn_catalog.open(place.root) as cat:
        ns.produce("orders", [{"id": 100}])
        assert cat.publish("sales", "orders").repaired == ()
    assert_same(engines.read("deltalake", path), ns.snapshot().read("orders"))


WIDENED: dict[str, tuple[pa.DataType, str, Any, Any]] = {
    "byte to short": (pa.int8(), "short", 1, 300),
    "byte to long": (pa.int8(), "long", 1, 2**40),
    "short to integer": (pa.int16(), "integer", 1, 70_000),
    "integer to long": (pa.int32(), "long", 1, 2**40),
    "decimal of more digits": (pa.decimal128(5, 2), "decimal(20,2)", Decimal("1.25"), Decimal("123456789.25")),
}
"""What all engines read right, though their files hold the narrower type."""


def widened(place: Place, kind: str) -> tuple[Any, str]:
    old, new, small, great = WIDENED[kind]
    ns = place.open()
    ns.create_topic("orders", pa.schema([("id", pa.int64()), ("x", old)]))
    ns.produce("orders", [{"id": 1, "x": small}, {"id": 2, "x": None}])
    with txn_catalog.open(place.root) as cat:
        cat.publish("sales", "orders")
        record = ns._connection.topic_record("orders")
        append(ns, AlterTopic(record.id, StructType((record.schema.fields[0], StructField("x", new)))))
        ns.produce("orders", [{"id": 3, "x": great}])
        cat.publish("sales", "orders")
    return ns, f"{place.root}/sales/orders"
