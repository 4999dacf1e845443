"""Consumers of a topic from which messages were erased: nothing waits for what nobody will ever be delivered."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.api.namespace import Namespace
from txnlog.client.holes import Gaps, carried, holes_in, with_holes


@pytest.fixture
def ns(memory: Place) -> Namespace:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    return ns


def erase(ns: Namespace, *ids: int) -> None:
    ns.erase("orders", pc.field("id").isin(list(ids)))


def cursor(ns: Namespace) -> tuple[int, tuple[tuple[int, int], ...]]:
    (found,) = ns.subscription("orders", "audit").cursors
    return found.cursor, found.acknowledged


def ids(messages: Any) -> list[int]:
    return list(messages.table.column("id").to_pylist())


@pytest.mark.clause("P-251")
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_a_subscription_of_nothing_but_holes_comes_to_its_end(ns: Namespace, kind: str) -> None:
    ns.produce("orders", rows(*range(20)))
    erase(ns, *range(20))
    with ns.consumer("orders", subscription="audit", type=kind) as consumer:
        assert ids(consumer.receive(3, timeout_ms=0)) == []
        assert cursor(ns) == (20, ())
        ns.produce("orders", rows(50))
        messages = consumer.receive()
        assert ids(messages) == [50]
        consumer.acknowledge(messages)
    assert cursor(ns) == (21, ())


def test_a_cumulative_acknowledgement_passes_over_holes_that_nobody_carries(ns: Namespace) -> None:
    ns.produce("orders", rows(*range(8)))
    with ns.consumer("orders", subscription="audit") as consumer:
        first = consumer.receive()
        consumer.acknowledge(first[[0, 1, 4, 5]])
    erase(ns, 2, 3)
    with ns.consumer("orders", subscription="audit") as consumer:
        last = consumer.receive()
        assert ids(last) == [6, 7]
        consumer.acknowledge(last[1:2], cumulative=True)
    assert cursor(ns) == (8, ())


def test_messages_that_are_pending_elsewhere_keep_their_holes(ns: Namespace) -> None:
    ns.produce("orders", rows(*range(6)))
    erase(ns, 1, 4)
    with ns.consumer("orders", subscription="audit") as consumer:
        messages = consumer.receive()
        assert ids(messages) == [0, 2, 3, 5]
        txn = ns.begin()
        txn.acknowledge(messages[[0, 2]])  # 0 with the hole 1, and 3 with the hole 4
        txn.flush()
        consumer.acknowledge(messages[[1, 3]])
        assert cursor(ns) == (0, ((2, 3), (5, 6)))
        txn.abort()
        consumer.redeliver_unacknowledged()
        again = consumer.receive()
        assert ids(again) == [0, 3]
        with ns.begin() as other:
            other.acknowledge(again)
    assert cursor(ns) == (6, ())


def test_leases_of_holes_fill_no_limit(ns: Namespace) -> None:
    for first in range(0, 60, 20):
        ns.produce("orders", rows(*range(first, first + 20)))
    erase(ns, *range(59))
    with ns.consumer("orders", subscription="audit", type="shared") as consumer:
        messages = consumer.receive(2, timeout_ms=0)
        assert ids(messages) == [59]
        consumer.acknowledge(messages)
    assert cursor(ns) == (60, ())


def test_each_hole_goes_with_one_message() -> None:
    def table(*offsets: int) -> pa.Table:
        return pa.table(
            {"_partition": pa.array([0] * len(offsets), pa.int32()), "_offset": pa.array(offsets, pa.int64())}
        )

    wanted = {0: ((2, 9), (12, 14), (20, 25))}
    found = holes_in(wanted, table(4, 6, 7, 22))
    assert found == {0: ((2, 4), (5, 6), (8, 9), (12, 14), (20, 22), (23, 25))}
    delivered, holes = carried(wanted, found)
    assert delivered == {0: ((2, 9), (20, 25))}
    assert holes == {0: Gaps(((2, 4), (5, 6), (8, 9), (20, 22), (23, 25)), frozenset({2, 20}))}
    assert with_holes({0: ((4, 5),)}, holes) == {0: ((2, 6),)}
    assert with_holes({0: ((6, 8),)}, holes) == {0: ((6, 9),)}
    assert with_holes({0: ((22, 23),), 1: ((0, 1),)}, holes) == {0: ((20, 25),), 1: ((0, 1),)}
    assert carried({0: ((0, 3),)}, {}) == ({0: ((0, 3),)}, {})


def test_as_many_messages_as_wanted_come_in_spite_of_holes(ns: Namespace) -> None:
    """As many offsets are read as it takes, by what was read before; what is read beyond comes with the next call."""
    ns.produce("orders", rows(*range(100)))
    erase(ns, *(number for number in range(100) if number % 4))
    with ns.consumer("orders", subscription="audit") as consumer:
        found = [ids(consumer.receive(5, timeout_ms=0)) for _ in range(6)]
        assert [len(each) for each in found] == [2, 3, 5, 5, 5, 5]
        assert [number for each in found for number in each] == list(range(0, 100, 4))
        consumer.redeliver_unacknowledged()
        again = consumer.receive(50, timeout_ms=0)
        consumer.acknowledge(again[:10])
        consumer.acknowledge(again[10:])
    assert cursor(ns) == (100, ())


def test_partitions_that_are_read_together_are_cut_in_their_order(memory: Place) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA, partitions=3)
    for partition in range(3):
        ns.produce("orders", rows(*range(100 * partition, 100 * partition + 20)), partition=partition)
    ns.erase("orders", pc.bit_wise_and(pc.field("id"), 1) == 1)
    seen: list[int] = []
    with ns.consumer("orders", subscription="audit") as consumer:
        while messages := consumer.receive(7, timeout_ms=0):
            assert len(messages) <= 7
            seen += ids(messages)
            consumer.acknowledge(messages)
    assert sorted(seen) == [number for number in range(300) if number % 100 < 20 and number % 2 == 0]
    found = ns.subscription("orders", "audit").cursors
    assert [(each.cursor, each.acknowledged) for each in found] == [(20, ())] * 3
