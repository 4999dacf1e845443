"""A consumer reads small files once, some of them ahead, and what nobody received yet stops no call before its turn."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.client.lost_segments import consumer_of, every_kind
from tests.client.support import SCHEMA, Place, ids, raises, received, rows, take
from txnlog.data import segment_reader
from txnlog.errors import CorruptionError, StoreError
from txnlog.store import HookStore
from txnlog.store.wrappers import StoreCall


def spread(place: Place, files: int, each: int = 6, partitions: int = 3) -> Any:
    """A topic of so many small files, each with messages in all partitions. Opened anew, so that nothing is known."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA, partitions=partitions)
    for number in range(files):
        with ns.begin() as txn:
            for partition in range(partitions):
                numbers = range((number * partitions + partition) * each, (number * partitions + partition + 1) * each)
                txn.produce("orders", rows(*numbers), partition=partition)
    return place.open()


def fetched(ns: Any) -> int:
    """How many files of rows this handle has fetched."""
    count: int = ns.store_requests.get(("get", "segment"), 0)
    return count


def all_received(consumer: Any, most: int) -> list[int]:
    found: list[int] = []
    while part := received(consumer, most):
        found += part
    return found


@pytest.mark.parametrize("most", [1, 4, 50])
def test_files_that_lack_some_partitions_are_fetched_once_too(memory: Place, most: int) -> None:
    """What is in memory has holes for a partition, which another one did not want when it was read."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA, partitions=3)
    for number in range(24):
        with ns.begin() as txn:
            for partition in {number % 3, number // 2 % 3}:
                txn.produce("orders", rows(10 * number + partition), partition=partition)
    expected = sorted(ids(ns.snapshot().read("orders")))
    other = memory.open()
    assert sorted(all_received(other.consumer("orders", "billing"), most)) == expected
    assert fetched(other) == 24


@pytest.mark.parametrize("most", [1, 4, 50])
def test_every_file_is_fetched_once_for_all_partitions(memory: Place, most: int) -> None:
    ns = spread(memory, files=12)
    consumer = ns.consumer("orders", "billing")
    assert sorted(all_received(consumer, most)) == list(range(12 * 18))
    assert fetched(ns) == 12


def test_each_time_that_it_comes_to_the_end_it_reads_more_files(memory: Place) -> None:
    ns = spread(memory, files=40, each=2, partitions=1)
    consumer = ns.consumer("orders", "billing")
    steps = []
    for _ in range(40):
        before = fetched(ns)
        assert len(received(consumer, 2)) == 2
        steps.append(fetched(ns) - before)
    assert [step for step in steps if step] == [1, 2, 4, 8, 16, 9]


def test_no_more_is_read_ahead_than_may_be_kept(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = spread(memory, files=30, each=2, partitions=1)
    size_bytes = max(segment.size_bytes for segment in ns.snapshot().plan("orders").segments)
    monkeypatch.setattr(segment_reader, "_RUN_BYTES", 4 * size_bytes)
    consumer = ns.consumer("orders", "billing")
    for _ in range(30):
        before = fetched(ns)
        assert len(received(consumer, 2)) == 2
        assert fetched(ns) - before <= 4
    assert fetched(ns) == 30


def test_what_is_not_kept_any_more_is_read_again(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "_RUNS_BYTES", 1)
    ns = spread(memory, files=10)
    consumer = ns.consumer("orders", "billing")
    assert sorted(all_received(consumer, 4)) == list(range(180))
    assert len(ns._connection.reader.runs.values()) == 1


def test_messages_have_the_metadata_that_a_scan_gives_them(memory: Place) -> None:
    ns = spread(memory, files=5)
    consumer = ns.consumer("orders", "billing")
    parts = []
    while len(messages := take(consumer, 7)):
        parts.append(messages.table)
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    found = pa.concat_tables(parts).sort_by(order)
    assert found.equals(ns.snapshot().read("orders", include_metadata=True).sort_by(order))
    assert found.schema == parts[0].schema


@every_kind
def test_a_damaged_file_that_is_only_read_ahead_stops_nothing_yet(memory: Place, kind: dict[str, Any]) -> None:
    ns = spread(memory, files=12, each=2, partitions=1)
    consumer = consumer_of(ns, kind)
    lost = ns.snapshot().plan("orders").segments[7]
    ns._connection.store.delete(lost.key)
    found: list[int] = []
    with raises(CorruptionError, match="missing") as caught:
        while part := received(consumer, 2):
            found += part
    assert caught.value.segment == lost.number
    assert found == list(range(14)), "all that lies before it, and nothing behind it"


def test_a_store_that_fails_ahead_is_asked_again_for_what_is_wanted(memory: Place) -> None:
    spread(memory, files=6, each=2, partitions=1)
    unreachable: set[str] = set()

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key in unreachable:
            raise StoreError("timed out")

    ns = memory.open(wrap=lambda store: HookStore(store, before=before))
    consumer = ns.consumer("orders", "billing")
    assert received(consumer, 2) == [0, 1]
    unreachable.add(f"sales/{ns.snapshot().plan('orders').segments[2].key}")
    assert received(consumer, 2) == [2, 3]
    with raises(StoreError):
        take(consumer, 2)
    unreachable.clear()
    assert all_received(consumer, 2) == list(range(4, 12))


def test_a_column_that_came_later_is_in_messages_of_before(memory: Place) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(4):
        ns.produce("orders", rows(number))
    consumer = ns.consumer("orders", "billing")
    assert received(consumer, 1) == [0]
    assert received(consumer, 1) == [1], "the others are in memory now"
    ns.alter_topic("orders", add_columns=[pa.field("note", pa.string())])
    messages = take(consumer, 2)
    assert ids(messages.table) == [2, 3]
    assert messages.table.column("note").to_pylist() == [None, None]


def test_several_consumers_share_what_is_in_memory(memory: Place) -> None:
    ns = spread(memory, files=8)
    for name in ("billing", "audit", "search"):
        assert sorted(all_received(ns.consumer("orders", name), 50)) == list(range(144))
    assert fetched(ns) == 8
