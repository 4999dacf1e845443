"""Consumers of every type meet holes, small and huge."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.testing import ManualClock

START = 1_700_000_000_000


def ids(messages):
    return messages.table.column("id").to_pylist()


def opened(memory, **kw):
    ns = memory.open(**kw)
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    return ns


def erase(ns, *numbers):
    ns.erase("orders", pc.field("id").isin(list(numbers)))


def cursor(ns):
    (found,) = ns.subscription("orders", "s").cursors
    return found.cursor, found.acknowledged


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_huge_holes_and_one_message_at_a_time(memory: Place, kind: str) -> None:
    ns = opened(memory)
    n = 100_000
    ns.produce("orders", pa.table({"id": list(range(n)), "name": ["x"] * n}, schema=SCHEMA))
    ns.erase("orders", (pc.field("id") > 0) & (pc.field("id") < n - 1))
    with ns.consumer("orders", subscription="s", type=kind) as c:
        began = time.monotonic()
        for want in (0, n - 1):
            m = c.receive(1, timeout_ms=0)
            assert ids(m) == [want]
            c.acknowledge(m)
        assert time.monotonic() - began < 5
    assert cursor(ns) == (n, ())


def test_all_worn_out_are_holes(memory: Place) -> None:
    clock = ManualClock(START)
    ns = opened(memory, clock=clock)
    ns.create_subscription("orders", "s", type="shared", max_redeliveries=0, dead_letter_topic="dead")
    ns.produce("orders", rows(*range(6)))
    with ns.consumer("orders", subscription="s", type="shared") as c:
        m = c.receive()
        erase(ns, *range(6))
        c.negative_acknowledge(m)
        assert ids(c.receive(timeout_ms=0)) == []
        ns.produce("orders", rows(9))
        assert ids(c.receive(timeout_ms=0)) == [9]
    assert cursor(ns)[0] == 6


def test_transact_with_holes(memory: Place) -> None:
    ns = opened(memory)
    ns.produce("orders", rows(*range(10)))
    erase(ns, 0, 1, 5, 9)
    with ns.consumer("orders", subscription="s") as c:
        seen = []
        tries = []

        def work(txn):
            m = c.receive(2, timeout_ms=0)
            tries.append(ids(m))
            if len(tries) == 2:
                from txnlog.errors import TransactionConflict

                raise TransactionConflict("x")
            txn.acknowledge(m)
            return ids(m)

        while found := ns.transact(work):
            seen += found
        assert seen == [2, 3, 4, 6, 7, 8], tries
    assert cursor(ns) == (10, ())
