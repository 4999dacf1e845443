"""Optimize while others read, write, merge, drop or crash, and over a store that fails."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.by_hand import append
from tests.by_hand import compact as merge_by_hand
from tests.client.merging import actions, everything, filled, ns, sizes, whole
from tests.client.support import (
    Place,
    Unchanged,
    holding,
    ids,
    is_entry,
    kind_of,
    raises,
    received,
    rows,
    run_threads,
    take,
)
from tests.faults import Once
from txnlog.errors import CorruptionError, Durable, NamespaceNotFound, OutcomeUnknown, StoreError, TopicNotFound
from txnlog.format import keys
from txnlog.format.actions import Close, Replace, Segment
from txnlog.maintenance import merge_plan
from txnlog.store import HookStore, StoreCall
from txnlog.testing import ManualClock

__all__ = ["ns"]  # fixtures


# --- others, meanwhile ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-91")
@pytest.mark.parametrize("cold", [False, True])
def test_who_comes_second_plans_again_and_replaces_nothing_twice(memory: Place, cold: bool) -> None:
    """``cold``: its fold has let go of the removals by the time that it asks."""
    ns, store = memory.faulty()
    filled(ns)
    ns.checkpoint()
    other = memory.open()

    def meanwhile() -> None:
        other.produce("orders", rows(100))
        assert other.optimize("orders").entries == 1
        if cold:
            ns._connection.follower.refresh()
            ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 0, True)
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]
    assert len(actions(ns, Replace)) == 1
    assert [row["_offset"] for row in whole(memory.open(mode="r"))] == list(range(37))


@pytest.mark.clause("P-91")
def test_a_checkpoint_in_between_costs_a_look_and_not_the_work(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    ns.checkpoint()
    other = memory.open()

    def meanwhile() -> None:
        other.produce("orders", rows(100))
        ns._connection.follower.refresh()
        ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    puts = len([call for call in store.calls if call[0] == "put" and kind_of(call[1]) == "segment"])
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (0, 1, True)
    assert len([call for call in store.calls if call[0] == "put" and kind_of(call[1]) == "segment"]) == puts + 1
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]


@pytest.mark.clause("P-90", "P-91")
def test_a_look_for_one_merge_says_nothing_of_the_next_one(memory: Place) -> None:
    """What others merged of the second one is as far back in a checkpoint as what was looked at for the first."""
    ns, store = memory.faulty()
    filled(ns, partitions=2)
    ns.checkpoint()
    other = memory.open()
    of_others = [segment for segment in other.snapshot().plan("orders").segments if segment.slices[0].partition == 1]

    def meanwhile() -> None:
        merge_by_hand(other, "orders", [segment.number for segment in of_others], 1)
        ns._connection.follower.refresh()
        ns._connection.session.checkpointer.make()

    store.script.append(meanwhile)
    before = whole(ns)
    ns.optimize("orders")
    for client in (ns, memory.open(mode="r")):
        assert whole(client) == before


def test_a_part_that_is_left_is_merged_after_a_lost_race(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.optimize("orders", 4 * max(sizes(ns)), max_bytes=0))
    before = whole(ns)
    done = ns.optimize("orders")
    assert done.lost_races == 1
    assert done.entries >= 1
    assert whole(ns) == before


def test_optimizers_and_writers_at_once_lose_and_double_nothing(place: Place) -> None:
    ns = filled(place.open(), count=20, partitions=2)
    clients = [place.open() for _ in range(4)]
    before = everything(ns)

    def write(client: Any, first: int) -> None:
        for number in range(10):
            client.produce("orders", rows(first + number), partition=number % 2)

    def merge(client: Any) -> None:
        for _ in range(4):
            client.optimize("orders", 10_000)

    results = run_threads(
        lambda: write(clients[0], 1_000),
        lambda: write(clients[1], 2_000),
        lambda: merge(clients[2]),
        lambda: merge(clients[3]),
    )
    assert not [item for item in results if isinstance(item, BaseException)]
    found = whole(ns)
    assert sorted(row["id"] for row in found) == sorted([*range(60), *range(1_000, 1_010), *range(2_000, 2_010)])
    for partition in (0, 1):
        assert [row["_offset"] for row in found if row["_partition"] == partition] == list(range(40))
    assert {version: whole(ns, "orders", version) for version in before} == before
    ns.optimize("orders")
    left = ns.snapshot().plan("orders").segments
    shared = [segment for segment in left if len(segment.slices) > 1]  # of two writers whose rows one entry brought
    assert len(left) <= 2 + 3 * len(shared), "each lies between others of both partitions, and is worth no merge"


def test_a_consumer_in_the_midst_of_receiving_and_its_transaction_go_on(ns: Any, place: Place) -> None:
    other = place.open()
    consumer = other.consumer("orders", "billing")
    first = take(consumer, 4)
    txn = holding(other, first)
    ns.optimize("orders")
    found = [*ids(first.table), *received(consumer, 5)]
    txn.commit()
    ns.optimize("orders")
    messages = take(consumer)
    assert [*found, *ids(messages.table)] == list(range(36))
    assert messages.positions[0] == ("orders", 0, 9)
    consumer.acknowledge(messages, cumulative=True)
    assert ns.lag("orders", "billing")[0].cursor == 36


def test_an_old_snapshot_and_a_scan_under_way_read_on(ns: Any, place: Place) -> None:
    snapshot = place.open(mode="r").snapshot()
    scan = snapshot.scan("orders")
    first = next(iter(scan))
    ns.optimize("orders")
    assert ids(first) + [number for batch in scan for number in ids(batch)] == list(range(36))
    assert ids(snapshot.read("orders")) == list(range(36))


def test_how_far_behind_a_subscription_is_does_not_change(place: Place, clock: ManualClock) -> None:
    ns = filled(place.open(clock=clock), count=0)
    ns.create_subscription("orders", "billing")
    for number in range(6):
        ns.produce("orders", rows(number))
        clock.advance(1_000)
    before = ns.lag("orders", "billing")
    assert before[0].behind_ms == 6_000
    ns.optimize("orders")
    assert ns.lag("orders", "billing") == before


def test_a_topic_that_is_dropped_meanwhile_ends_it(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.drop_topic("orders"))
    with raises(TopicNotFound, "was dropped"):
        ns.optimize("orders")


def test_columns_that_are_altered_meanwhile_do_not_matter(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    store.script.append(lambda: other.alter_topic("orders", [("note", pa.string())]))
    before = whole(ns)
    assert ns.optimize("orders").finished
    assert whole(ns) == [{**dict(list(row.items())[:2]), "note": None, **dict(list(row.items())[2:])} for row in before]


# --- crashes, doubt, damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["segment", "entry"])
def test_a_crash_leaves_files_that_no_entry_names(memory: Place, clock: ManualClock, where: str) -> None:
    ns, store = memory.faulty(clock=clock)
    filled(ns)
    before = whole(ns)
    if where == "segment":
        store.puts.append("killed")
    else:
        store.script.append(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        ns.optimize("orders")
    other = memory.open(clock=clock)
    assert whole(other) == before
    assert other.optimize("orders").written_segments == 1
    clock.advance(30 * 24 * 3_600_000)
    found = other.vacuum()
    assert (found.unnamed_files, found.replaced_files) == (0 if where == "segment" else 1, 12)
    assert whole(memory.open(mode="r")) == before


def test_an_answer_that_was_lost_is_found_and_an_unknown_one_leaves_the_rows(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    before = whole(ns)
    store.script.append("lost")
    assert ns.optimize("orders").entries == 1
    ns.produce("orders", rows(100))
    store.forever = "broken-after"
    store.script.append(lambda: setattr(store, "reads_forever", "broken"))
    with raises(OutcomeUnknown, "the entry of this call", durable=Durable.MAYBE) as caught:
        ns.optimize("orders")
    assert "call ns.optimize(topic, ...) again, with the same arguments" in caught.value.advice
    store.heal()
    assert ns.optimize("orders").entries == 0, "it was done"
    assert [row["id"] for row in whole(ns)] == [*[row["id"] for row in before], 100]


def test_a_store_that_refuses_files_changes_nothing(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    before, version = whole(ns), ns.snapshot().version
    store.puts.append("refused")
    with raises(StoreError, "no space left"):
        ns.optimize("orders")
    assert ns.snapshot().version == version
    assert whole(ns) == before


@pytest.mark.clause("P-106")
@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_damage_is_never_merged(ns: Any, place: Place, harm: str) -> None:
    store = ns._connection.store
    segment = ns.snapshot().plan("orders").segments[5]
    number, key = segment.number, segment.key
    data = store.get(key)
    if harm == "gone":
        store.delete(key)
    else:
        store.put(key, data[:-1] if harm == "cut" else data[:100] + bytes([data[100] ^ 1]) + data[101:])
    what = rf"{'missing' if harm == 'gone' else 'damaged'}.*; it is the segment {number} of the topic 'orders'"
    with Unchanged(place), raises(CorruptionError, what) as caught:
        place.open().optimize("orders")
    assert caught.value.segment == number


def test_a_namespace_whose_folder_is_removed_meanwhile_is_not_damaged(local: Place) -> None:
    remove = Once(
        lambda call, key: call is StoreCall.GET and kind_of(key) == "segment",
        lambda: shutil.rmtree(Path(local.root) / "sales"),
    )
    ns = filled(local.open(wrap=lambda store: HookStore(store, before=remove)))
    with raises(NamespaceNotFound, "no longer the one that this handle has open"):
        ns.optimize("orders")


def test_a_file_that_was_merged_and_vacuumed_meanwhile_is_no_damage(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = filled(memory.open(clock=clock))
    other = memory.open(clock=clock)
    planned = merge_plan.merges
    late: list[Callable[[], object]] = [
        lambda: other.optimize("orders"),
        lambda: clock.advance(30 * 24 * 3_600_000),
        other.vacuum,
    ]

    def merges(*args: Any) -> Any:
        found = planned(*args)
        monkeypatch.setattr(merge_plan, "merges", planned)
        for call in late:
            call()
        return found

    before = whole(ns)
    monkeypatch.setattr(merge_plan, "merges", merges)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 0, True)
    assert whole(ns) == before


@pytest.mark.clause("P-41", "P-45")
def test_a_writer_whose_numbers_were_taken_meanwhile_takes_others(memory: Place) -> None:
    ns, store = memory.faulty()
    filled(ns)
    other = memory.open()
    before = whole(ns)

    def close_all() -> None:
        state = other._connection.follower
        state.refresh()
        append(other, *[Close(first) for first in list(state.state.blocks) if first not in own(other)])

    store.script.append(close_all)
    done = ns.optimize("orders")
    assert (done.lost_races, done.entries, done.finished) == (1, 1, True)
    assert whole(ns) == before


def own(ns: Any) -> list[int]:
    writer = ns._connection.appender.writer
    return [block.first for block in ns._connection.follower.state.blocks.values() if block.writer == writer]


@pytest.mark.clause("P-45")
def test_its_blocks_are_kept_open_while_it_works(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[int]] = []
    inner = ns._connection.keep_blocks_alive

    def noted(wanted: list[int]) -> Any:
        kept.append(list(wanted))
        return inner(wanted)

    monkeypatch.setattr(ns._connection, "keep_blocks_alive", noted)
    ns.optimize("orders")
    (merged,) = [action for action in actions(ns, Segment) if action.compacted]
    assert kept == [[merged.txn, merged.segment]]


@pytest.mark.clause("P-104")
def test_files_are_there_before_the_entry_and_nothing_else_is_written(memory: Place) -> None:
    ns, store = memory.counted()
    filled(ns)
    before = dict(store.counts())
    ns.optimize("orders")
    after = {key: count - before.get(key, 0) for key, count in store.counts().items() if count > before.get(key, 0)}
    assert after[("put", "segment")] == 1
    assert after[("create", "entry")] == 1
    assert after[("get", "segment")] == 12
    assert ("delete", "segment") not in after
    assert ("list", "segment") not in after


def test_names_of_files_are_as_all_others(ns: Any) -> None:
    ns.optimize("orders")
    (only,) = ns.snapshot().plan("orders").segments
    assert isinstance(keys.parse_key(only.key), keys.SegmentKey)
    assert kind_of(f"sales/{only.key}") == "segment"
    assert not is_entry(f"sales/{only.key}")
