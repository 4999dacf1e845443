"""What key compaction and erasure do to tombstones, subscriptions, bounds and columns that came later."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.maintenance import erasure
from txnlog.testing import ManualClock

DAY = 86_400_000
START = 1_700_000_000_000


def keys_of(ns, topic, name="id"):
    return sorted(ns.snapshot().read(topic).column(name).to_pylist())


def test_a_column_added_later_makes_no_message_of_a_set_a_tombstone(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("members", pa.schema([pa.field("id", pa.int64())]), key="id", cleanup_policy="compact")
    ns.produce("members", [{"id": n} for n in range(5)])
    clock.advance(2 * DAY)
    ns.compact("members")
    assert keys_of(ns, "members") == [0, 1, 2, 3, 4]
    ns.alter_topic("members", add_columns=pa.schema([pa.field("note", pa.string())]))
    ns.produce("members", [{"id": 7, "note": "x"}])
    ns.compact("members")
    assert keys_of(ns, "members") == [0, 1, 2, 3, 4, 7]


def test_what_a_subscription_needs_stays_in_full_also_below_what_was_compacted(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("t", SCHEMA, partitions=2, key="id", cleanup_policy="compact", compact_unacknowledged=False)
    ns.produce("t", [{"id": 1, "name": None}], partition=0)
    ns.produce("t", [{"id": 2, "name": "a"}], partition=1)
    ns.compact("t")
    ns.create_subscription("t", "late", start="earliest")
    with ns.consumer("t", subscription="late") as consumer:
        found = consumer.receive()
        part = [i for i, p in enumerate(found.table.column("_partition").to_pylist()) if p == 1]
        consumer.acknowledge(found[part])
        ns.produce("t", [{"id": 3, "name": "b"}], partition=1)
        found = consumer.receive()
        consumer.acknowledge(found)
        clock.advance(2 * DAY)
        ns.compact("t")
    table = ns.snapshot().read("t", include_metadata=True)
    columns = [table.column(name).to_pylist() for name in ("_partition", "id")]
    assert (0, 1) in zip(*columns, strict=True), "a message that the subscription has not acknowledged went"


def test_a_tombstone_goes_when_its_time_is_over(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("t", SCHEMA, key="id", cleanup_policy="compact", delete_retention_ms="1h")
    ns.produce("t", [{"id": 1, "name": "secret"}])
    ns.produce("t", [{"id": 1, "name": None}])
    assert ns.compact("t").removed_messages == 1
    clock.advance(30 * DAY)
    ns.maintain()
    ns.compact("t")
    assert keys_of(ns, "t") == []


KINDS = {
    "time": (pa.timestamp("us", "UTC"), dt.datetime(1980, 5, 17, 12, 30, tzinfo=dt.UTC)),
    "ntz": (pa.timestamp("us"), dt.datetime(1980, 5, 17, 12, 30)),  # noqa: DTZ001 - without a zone
    "day": (pa.date32(), dt.date(1980, 5, 17)),
    "amount": (pa.decimal128(20, 10), Decimal("0.0000000012")),
    "whole": (pa.float64(), 3.0),
    "zero": (pa.float64(), 0.0),
    "flag": (pa.bool_(), True),
    "real": (pa.float32(), 0.1),
}


@pytest.mark.parametrize("name", KINDS)
def test_bounds_name_each_column_whose_value_is_in_the_log(memory: Place, name: str) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("t", pa.schema([pa.field("id", pa.int64()), pa.field("v", KINDS[name][0])]), delta="off")
    ns.produce("t", [{"id": 1, "v": KINDS[name][1]}])
    assert ns.erase("t", pc.field("id") == 1).bounds == ("id", "v")


def test_columns_added_while_it_runs(memory: Place, monkeypatch) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    other = memory.open()
    real = erasure._Erasure._goes
    todo = [1]

    def goes(self, found):
        if todo:
            todo.clear()
            other.alter_topic("orders", add_columns=pa.schema([pa.field("more", pa.string())]))
            ns.topic("orders")
            ns.snapshot()
        return real(self, found)

    monkeypatch.setattr(erasure._Erasure, "_goes", goes)
    assert ns.erase("orders", pc.field("id") == 1).erased_messages == 1
    assert not todo, "the column came while it ran"
    assert keys_of(ns, "orders") == [2]
