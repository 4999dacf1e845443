"""Golden roots about topics: produces, shared segments, schemas, retention, merged segments, topics made again."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any, Final

import pyarrow as pa

from txnlog.api.namespace import Namespace
from txnlog.common.ids import TxnId
from txnlog.format.actions import Abort, Begin, Commit, DeleteRecords, Replace, Vacuum
from txnlog.testing.conformance.workshop import SCHEMA, Workshop

HOUR_MS: Final = 3_600_000


def produces(shop: Workshop) -> str:
    """Plain produces into partitions, and a shared segment that three transactions claim."""
    with shop.open() as ns:
        empty = ns.create_topic("orders", SCHEMA, partitions=3).id
        keyed = ns.create_topic("keyed", SCHEMA, partitions=4, key="id").id
        first = shop.produce(ns, "orders", 3, 0, 2)
        ns.produce("keyed", shop.rows(9))
        second = shop.produce(ns, "orders", 0, 4, 1)
        numbers = iter(ns._connection.reserve_block(16))
        segment, a, b, c = (next(numbers) for _ in range(4))
        pieces = [(a, 0, 2), (b, 0, 1), (c, 0, 3), (a, 1, 1), (c, 1, 2), (b, 2, 2), (a, 2, 1)]
        shared = shop.append(ns, *_flat(shop.shared(ns, "orders", segment, pieces)))
        # Two segments in one entry, which the same commits claim in another order than their rows lie.
        one, two, d, e = (next(numbers) for _ in range(4))
        left, first_commits = shop.shared(ns, "orders", one, [(d, 0, 1), (e, 0, 2)])
        right, second_commits = shop.shared(ns, "keyed", two, [(d, 1, 2), (e, 1, 1)])
        merged = [
            Commit(left_commit.txn, shares=left_commit.shares + right_commit.shares)
            for left_commit, right_commit in zip(first_commits, second_commits, strict=True)
        ]
        last = shop.append(ns, left, right, *merged)
    shop.ask("orders", "keyed", versions=(empty, keyed, first, second, shared, last, "latest"))
    shop.ask("orders", versions=(last + 1, 10**15))
    shop.ask("orders", versions=(empty - 1, 0), levels=("read_committed",))
    shop.ask("none", "Orders", levels=("read_committed",))
    return produces.__doc__ or ""


def _flat(found: tuple) -> list:  # type: ignore[type-arg]  # a segment and its commits
    segment, commits = found
    return [segment, *commits]


FLAT: Final = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("flag", pa.bool_()),
        pa.field("byte", pa.int8()),
        pa.field("short", pa.int16()),
        pa.field("integer", pa.int32()),
        pa.field("long", pa.int64(), nullable=False),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("date", pa.date32()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("money", pa.decimal128(38, 10)),
        pa.field("whole", pa.decimal128(5, 0)),
        pa.field("list", pa.list_(pa.field("element", pa.int32()))),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.decimal128(6, 2)))),
        pa.field(
            "nested",
            pa.struct(
                [
                    pa.field("x", pa.list_(pa.struct([pa.field("day", pa.date32()), pa.field("raw", pa.binary())]))),
                    pa.field("y", pa.map_(pa.date32(), pa.list_(pa.timestamp("us", "UTC")))),
                ]
            ),
        ),
    ]
)


def types(shop: Workshop) -> str:
    """A column of every type, nested ones too, at both ends of what each can hold, and null."""
    day, time = datetime.date(1970, 1, 2), datetime.datetime(2026, 1, 31, 23, 59, 59, 999_999, datetime.UTC)
    full = {
        "text": 'a "quoted"\n\u2028 \U0001f600',
        "bytes": b"\x00\xff~",
        "flag": True,
        "byte": -128,
        "short": 32_767,
        "integer": -(2**31),
        "long": 2**63 - 1,
        "float": 0.1,
        "double": 0.1,
        "date": datetime.date(1, 1, 1),
        "time": time,
        "local": datetime.datetime.fromisoformat("0001-01-01T00:00:00"),
        "money": decimal.Decimal("-1234567890123456789012345678.0123456789"),
        "whole": decimal.Decimal(0),
        "list": [1, None, -1],
        "map": [("b", decimal.Decimal("1.10")), ("a", None)],
        "nested": {"x": [{"day": day, "raw": b""}, None], "y": [(day, [time, None])]},
    }
    reals = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308]
    rows: list[dict[str, Any]] = [
        full,
        {"long": -(2**63)},
        {"long": 0, "list": [], "map": [], "nested": {"x": [], "y": None}},
    ]
    rows += [
        {"long": place, "double": value, "float": value if place < 5 else None} for place, value in enumerate(reals)
    ]
    with shop.open() as ns:
        ns.create_topic("all", FLAT, delta="off")
        ns.produce("all", pa.Table.from_pylist([{**dict.fromkeys(FLAT.names), **row} for row in rows], FLAT))
        ns.create_topic("kafka")
        ns.produce("kafka", [{"key": b"k", "value": b"v", "headers": [("h", b"1"), ("i", None)]}, {"key": None}])
    shop.ask("all", "kafka")
    return types.__doc__ or ""


OLD: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int8()),
        pa.field("s", pa.int16()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.decimal128(4, 1)),
        pa.field("o", pa.struct([pa.field("x", pa.int32())])),
        pa.field("l", pa.list_(pa.field("element", pa.int8()))),
    ]
)
NEW: Final = {
    "n": pa.field("n", pa.int64()),
    "s": pa.field("s", pa.float64()),
    "f": pa.field("f", pa.float64()),
    "d": pa.field("d", pa.decimal128(10, 3)),
    "o": pa.field("o", pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())])),
    "l": pa.field("l", pa.list_(pa.field("element", pa.int32()))),
}


def schemas(shop: Workshop) -> str:
    """A schema that gets columns and wider types: older files by newer schemas, and older versions by theirs."""

    def row(number: int) -> dict[str, object]:
        values = {"n": number % 100, "s": -number, "f": number / 8, "d": decimal.Decimal(number) / 10}
        return {"id": number, **values, "o": {"x": number}, "l": [1, None]}

    with shop.open() as ns:
        ns.create_topic("orders", OLD, delta="off")
        first = ns.produce("orders", [row(1), row(-2)]).version
        txn = ns.begin()
        txn.produce("orders", [row(3)])
        txn.flush()
        shop.tick()
        ns.alter_topic("orders", widen=NEW)
        widened = ns.snapshot().version
        second = ns.produce("orders", [row(4) | {"n": 2**40, "o": {"x": 2**40, "y": "new"}}]).version
        shop.tick()
        ns.alter_topic("orders", add_columns=[pa.field("note", pa.string())])
        added = ns.snapshot().version
        third = ns.produce("orders", [row(5) | {"note": "here"}]).version
        committed = txn.commit().version
        ns.optimize("orders")
        merged = ns.snapshot().version
    shop.ask("orders", versions=(first, widened, second, added, third, committed, merged))
    return schemas.__doc__ or ""


def retention(shop: Workshop) -> str:
    """Deleted records, also inside of segments and across merged ones, and versions that a vacuum made unreadable."""
    with shop.open() as ns:
        topic = ns.create_topic("orders", SCHEMA, partitions=2).id
        old = shop.produce(ns, "orders", 3, 2)
        aborted = ns.begin()
        aborted.produce("orders", shop.rows(2), 0)
        aborted.flush()
        flushed = ns.snapshot().version
        aborted.abort()
        ended = ns.snapshot().version
        middle = shop.produce(ns, "orders", 2, 2)
        open_txn = ns.begin()
        open_txn.produce("orders", shop.rows(2), 1)
        open_txn.flush()
        deleted = shop.append(ns, DeleteRecords(topic, ((0, 4), (1, 1))))
        again = shop.append(ns, DeleteRecords(topic, ((0, 4), (1, 2))))
        late = ns.begin()
        late.produce("orders", shop.rows(1), 0)
        late.flush()
        late.abort()
        vacuumed = shop.append(ns, Vacuum(ended))
        newest = shop.produce(ns, "orders", 1, 0)
        ns.create_topic("other", SCHEMA)
        whole = ns.produce("other", shop.rows(3)).version
        gone = shop.append(ns, DeleteRecords(ns._connection.topic_record("other").id, ((0, 3),)))
        open_txn._discard()
    versions = (old, flushed, ended, middle, deleted, again, vacuumed, newest, gone)
    shop.ask("orders", versions=(*versions, "latest"))
    shop.ask("other", versions=(whole, gone))
    return retention.__doc__ or ""


def merged(shop: Workshop) -> str:
    """Segments that merged ones replaced, once and again, also without rows that retention passed."""
    with shop.open() as ns:
        topic = ns.create_topic("orders", SCHEMA, partitions=2).id
        versions = [shop.produce(ns, "orders", 2, 1), shop.produce(ns, "orders", 1, 2)]
        txn = ns.begin()
        txn.produce("orders", shop.rows(2), 1)
        txn.flush()
        versions.append(shop.produce(ns, "orders", 1, 0))
        shop.tick()
        ns.optimize("orders")
        versions.append(ns.snapshot().version)
        versions.append(txn.commit().version)
        versions.append(shop.produce(ns, "orders", 2, 2))
        versions.append(shop.append(ns, DeleteRecords(topic, ((0, 3), (1, 3)))))
        shop.tick()
        ns.optimize("orders")
        versions.append(ns.snapshot().version)
        versions.append(shop.produce(ns, "orders", 1, 1))
        versions += _merged_by_hand(shop, ns, topic)
    shop.ask("orders", versions=versions)
    return merged.__doc__ or ""


def _merged_by_hand(shop: Workshop, ns: Namespace, topic: int) -> list[int]:
    """Merged segments whose transaction is open or aborted, then one that is used, of the newest two segments."""
    for _ in range(2):
        shop.produce(ns, "orders", 1, 0)
    snapshot = ns.snapshot()
    spans = [(item.number, item.slices[0].offset or 0) for item in snapshot.plan("orders").segments]
    (one, first), (two, _) = sorted(spans, key=lambda item: item[0])[-2:]
    rows = snapshot.read("orders", offsets={0: (first, first + 2)}, include_metadata=True)
    txns = [TxnId.from_bytes(value).number for value in rows.column("_txn_id").to_pylist()]
    table = (
        rows.select(SCHEMA.names)
        .append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array(txns, pa.int64()))
        .append_column(pa.field("_version", pa.int64(), nullable=False), rows.column("_version"))
        .append_column(pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False), rows.column("_timestamp"))
    )
    numbers = ns._connection.reserve_block(4)
    versions = []
    for place in (0, 2):
        txn, number = numbers[place], numbers[place + 1]
        segment = shop.lay(ns, "orders", number, table, {0: 2}, txn, compacted=True)
        versions.append(shop.append(ns, Begin(txn), segment))
        end = Abort(txn) if place == 0 else Replace(topic, txn, (one, two), (first,))
        versions.append(shop.append(ns, end))
    return versions


def topics(shop: Workshop) -> str:
    """Topics that were dropped and made again under their name, and rows that were pending when their topic went."""
    with shop.open() as ns:
        old = ns.create_topic("orders", SCHEMA).id
        ns.create_topic("kept", SCHEMA)
        first = shop.produce(ns, "orders", 2)
        txn = ns.begin()
        txn.produce("orders", shop.rows(2))
        txn.produce("kept", shop.rows(1))
        txn.flush()
        shop.tick()
        ns.drop_topic("orders")
        dropped = ns.snapshot().version
        committed = txn.commit().version
        shop.tick()
        new = ns.create_topic("orders", SCHEMA, partitions=2).id
        second = shop.produce(ns, "orders", 1, 2)
        ns.alter_topic("kept", properties={"user.owner": "billing"})
        ns.drop_topic("kept")
        other = ns.create_topic("Kept", SCHEMA).id
        third = shop.produce(ns, "Kept", 1)
    shop.ask("orders", "kept", versions=(old, first, dropped, committed, new, second))
    shop.ask("Kept", "kept", "orders", versions=(other, third, "latest"))
    return topics.__doc__ or ""


__all__ = ["merged", "produces", "retention", "schemas", "topics", "types"]
