"""Key compaction comes on, however often maintenance is called."""

from __future__ import annotations

import pyarrow.compute as pc

from tests.client.support import SCHEMA, Place, rows
from txnlog.testing import ManualClock

START = 1_700_000_000_000
MINUTE = 60_000


def test_a_lag_stops_no_compaction_where_maintenance_comes_more_often(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("t", SCHEMA, key="id", cleanup_policy="compact", min_compaction_lag_ms="1h")
    for turn in range(60):
        ns.produce("t", [{"id": 1, "name": f"{turn}"}])
        clock.advance(10 * MINUTE)
        ns.maintain()
    left = ns.snapshot().read("t").num_rows
    assert left <= 20, f"{left} of 60 messages of one key, of 10 hours, with a lag of one hour"


def test_a_subscription_behind_by_one_stops_no_compaction(memory: Place) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("t", SCHEMA, key="id", cleanup_policy="compact", compact_unacknowledged=False)
    ns.create_subscription("t", "s")
    with ns.consumer("t", "s") as c:
        for turn in range(60):
            ns.produce("t", [{"id": 1, "name": f"{turn}"}])
            if turn:
                c.acknowledge(c.receive(1))
            ns.maintain()
    left = ns.snapshot().read("t").num_rows
    assert left <= 20, f"{left} of 60 messages of one key, of which one is not acknowledged"


def test_two_shared_consumers(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(*range(40)))
    one, two = memory.open(clock=clock), memory.open(clock=clock)
    a = one.consumer("orders", subscription="s", type="shared", name="a")
    ma = a.receive(10)
    ns.erase("orders", pc.field("id").isin([*range(5, 15), *range(20, 30)]))
    b = two.consumer("orders", subscription="s", type="shared", name="b")
    seen = []
    mb = b.receive(10, timeout_ms=0)
    seen += mb.table.column("id").to_pylist()
    b.acknowledge(mb)
    a.acknowledge(ma[[0, 1]])
    clock.advance(3_600_000)
    for _ in range(20):
        mb = b.receive(10, timeout_ms=0)
        if not len(mb):
            break
        seen += mb.table.column("id").to_pylist()
        b.acknowledge(mb)
    assert sorted(seen) == [i for i in range(2, 40) if i not in range(5, 15) and i not in range(20, 30)]
    (found,) = ns.subscription("orders", "s").cursors
    assert (found.cursor, found.acknowledged) == (40, ())
