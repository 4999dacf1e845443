"""One damaged segment stops only what is in it: consumers hand out what lies before it, and scans can leave it out."""

from __future__ import annotations

import contextlib
import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest

from tests.client.lost_segments import consumer_of, damaged, every_kind
from tests.client.support import SCHEMA, Place, begun, holding, ids, raises, rows
from tests.faults import failing
from tests.pages import blocks, page
from txnlog.errors import CorruptionError, Durable, InvalidInputError, StoreError
from txnlog.fold import leases
from txnlog.format import schema
from txnlog.format.actions import AlterTopic, DeleteRecords
from txnlog.format.keys import kind_of
from txnlog.log.commands import effect
from txnlog.store import StoreCall
from txnlog.testing import ManualClock


@every_kind
def test_a_consumer_delivers_what_lies_before_a_damaged_segment_and_goes_on_behind_it(
    memory: Place, kind: dict[str, Any]
) -> None:
    ns, _, lost = damaged(memory)
    consumer = consumer_of(ns, kind)
    first = consumer.receive(timeout_ms=0)
    assert ids(first.table) == [0, 1, 2, 3, 4]
    with raises(CorruptionError, match="missing") as caught:
        consumer.receive(timeout_ms=0)
    error = caught.value
    assert error.segment == lost.number
    for words in ("the topic 'orders'", "the offsets 5 to 9 of partition 0", lost.key):
        assert words in error.message
    assert "consumer.seek({0: 10}, 'orders')" in error.advice
    with raises(CorruptionError, match="missing"):  # it does not go on by itself
        consumer.receive(timeout_ms=0)
    assert (error.topic, error.behind) == ("orders", {0: 10})
    consumer.acknowledge(first)
    consumer.seek(error.behind, error.topic)
    rest = consumer.receive(timeout_ms=0)
    assert ids(rest.table) == [20, 21, 22, 23, 24]
    consumer.acknowledge(rest)
    assert len(consumer.receive(timeout_ms=0)) == 0
    assert [item.behind_messages for item in ns.lag("orders", "billing")] == [0]


@every_kind
def test_a_batch_that_would_end_inside_a_damaged_segment_names_all_of_its_offsets(
    memory: Place, kind: dict[str, Any]
) -> None:
    ns, _, _ = damaged(memory)
    consumer = consumer_of(ns, kind)
    assert ids(consumer.receive(3, timeout_ms=0).table) == [0, 1, 2]
    assert ids(consumer.receive(3, timeout_ms=0).table) == [3, 4]
    with raises(CorruptionError, match="the offsets 5 to 9 of partition 0"):
        consumer.receive(3, timeout_ms=0)


@every_kind
@pytest.mark.parametrize("how", ["negative acknowledgement", "abort"])
@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("errors", [0, 1])
def test_what_is_redelivered_comes_before_the_error_that_says_where_to_seek(
    memory: Place, kind: dict[str, Any], how: str, most: int, errors: int
) -> None:
    """Whoever seeks past the segment, as the error says, loses nothing that lies before it."""
    ns, _, _ = damaged(memory)
    consumer = consumer_of(ns, kind)
    first, second = consumer.receive(4, timeout_ms=0), consumer.receive(4, timeout_ms=0)
    assert (ids(first.table), ids(second.table)) == ([0, 1, 2, 3], [4])
    for _ in range(errors):
        with raises(CorruptionError):
            consumer.receive(most, timeout_ms=0)
    consumer.acknowledge(second)
    if how == "abort":
        txn = holding(ns, first)
        txn.abort()
    else:
        consumer.negative_acknowledge(first)
    again: list[int] = []
    while len(again) < 4:
        messages = consumer.receive(most, timeout_ms=0)
        again += ids(messages.table)
        consumer.acknowledge(messages)
    assert again == [0, 1, 2, 3]
    with raises(CorruptionError) as caught:
        consumer.receive(most, timeout_ms=0)
    consumer.seek(caught.value.behind, caught.value.topic)
    assert ids(consumer.receive(timeout_ms=0).table) == [20, 21, 22, 23, 24]


@every_kind
def test_the_other_partitions_go_on_while_one_waits_before_its_damaged_segment(
    memory: Place, kind: dict[str, Any]
) -> None:
    ns, _, _ = damaged(memory, partitions=3, of=1)
    consumer = consumer_of(ns, kind)
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    errors = 0
    for _ in range(40):
        try:
            found = consumer.receive(4, timeout_ms=0)
        except CorruptionError:
            errors += 1
            continue
        for row in found.table.to_pylist():
            seen[row["_partition"]].append(row["_offset"])
    assert seen == {0: list(range(15)), 1: list(range(5)), 2: list(range(15))}
    assert errors > 2, "and nobody can miss that it waits"


@every_kind
def test_the_error_comes_at_the_partition_s_turn_while_others_have_messages_and_writes_nothing(
    memory: Place, kind: dict[str, Any]
) -> None:
    ns, _, _ = damaged(memory, partitions=3)
    consumer = consumer_of(ns, kind)
    assert [len(consumer.receive(most, timeout_ms=0)) for most in (5, 1, 1)] == [5, 1, 1]
    for most in (12, 1, 8):  # of a Shared subscription the first one leases messages of other partitions as well
        with raises(CorruptionError, match="partition 0"):
            consumer.receive(most, timeout_ms=0)
        assert [len(consumer.receive(1, timeout_ms=0)) for _ in range(2)] == [1, 1]
    with raises(CorruptionError, match="partition 0"):
        consumer.receive(8, timeout_ms=0)
    ns.produce("orders", rows(*range(100, 130)), partition=1)
    assert len(consumer.receive(8, timeout_ms=0)) == 8
    assert len(consumer.receive(1, timeout_ms=0)) == 1
    version = ns.snapshot().version
    with raises(CorruptionError, match="partition 0"):
        consumer.receive(8, timeout_ms=0)
    assert ns.snapshot().version == version, "an error leases nothing"


@every_kind
def test_a_restored_segment_is_delivered(memory: Place, kind: dict[str, Any]) -> None:
    ns = memory.orders()
    for number in range(2):
        ns.produce("orders", rows(number))
    key = f"sales/{ns.snapshot().plan('orders').segments[0].key}"
    store = memory.store()
    data = store.get(key)
    store.delete(key)
    consumer = consumer_of(memory.open(), kind)
    with raises(CorruptionError):
        consumer.receive(timeout_ms=0)
    store.put(key, data)
    assert ids(consumer.receive(timeout_ms=0).table) == [0, 1]


def test_of_several_topics_the_others_go_on(memory: Place) -> None:
    ns, _, _ = damaged(memory)
    ns.create_topic("payments", SCHEMA)
    ns.produce("payments", rows(7))
    for topic in ("orders", "payments"):
        ns.create_subscription(topic, "billing", start="earliest")
    consumer = ns.consumer(["orders", "payments"], "billing")
    assert ids(consumer.receive(timeout_ms=0).table) == [0, 1, 2, 3, 4]
    assert ids(consumer.receive(timeout_ms=0).table) == [7]
    with raises(CorruptionError, match="'orders'"):
        consumer.receive(timeout_ms=0)
    ns.produce("payments", rows(8))
    assert ids(consumer.receive(timeout_ms=0).table) == [8]


def test_a_segment_of_several_partitions_is_passed_in_each_of_them(memory: Place) -> None:
    ns = memory.orders(partitions=2)
    for number in range(3):
        txn = begun(ns, number, partition=0)
        txn.produce("orders", rows(number), partition=1)
        txn.commit()
    memory.store().delete(f"sales/{ns.snapshot().plan('orders').segments[1].key}")
    consumer = consumer_of(memory.open(), {})
    consumer.acknowledge(consumer.receive(timeout_ms=0))
    blocked = set()
    for _ in range(2):
        with raises(CorruptionError) as caught:
            consumer.receive(timeout_ms=0)
        blocked.add(caught.value.advice.partition("seek(")[2].partition(",")[0])
    assert blocked == {"{0: 2}", "{1: 2}"}
    consumer.seek({0: 2}, "orders")
    with raises(CorruptionError, match="partition 1"):
        consumer.receive(timeout_ms=0)
    assert ids(consumer.receive(timeout_ms=0).table) == [2]


def test_dead_letters_that_cannot_be_read_wait_and_the_others_are_moved(memory: Place) -> None:
    ns = memory.orders()
    ns.create_subscription(
        "orders", "billing", start="earliest", type="shared", max_redeliveries=1, dead_letter_topic="dead"
    )
    for number in range(3):
        ns.produce("orders", rows(number))
    consumer = ns.consumer("orders", "billing")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(timeout_ms=0))
    memory.store().delete(f"sales/{ns.snapshot().plan('orders').segments[1].key}")
    fresh = memory.open()
    fresh.produce("orders", rows(9))
    again = fresh.consumer("orders", "billing")
    found = again.receive(timeout_ms=0)
    assert ids(found.table) == [9]
    assert ids(fresh.snapshot().read("dead")) == [0, 2]
    with raises(CorruptionError, match="the offset 1 of partition 0"):
        again.receive(timeout_ms=0)


def test_each_reason_for_which_dead_letters_wait_is_logged_once(
    memory: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """LOST: after the line about a damaged segment there was none about the column for which all others wait since."""
    ns = memory.orders()
    ns.create_subscription(
        "orders", "billing", start="earliest", type="shared", max_redeliveries=1, dead_letter_topic="dead"
    )
    ns.produce("orders", rows(0))
    consumer = ns.consumer("orders", "billing")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(timeout_ms=0))
    memory.store().delete(f"sales/{ns.snapshot().plan('orders').segments[0].key}")
    fresh = memory.open()
    again = fresh.consumer("orders", "billing")
    for _ in range(2):
        with raises(CorruptionError, match="the offset 0 of partition 0"):
            again.receive(timeout_ms=0)
    info = fresh.topic("orders")
    wider = schema.from_arrow(pa.schema([*info.schema, pa.field("note", pa.string())]))
    fresh._connection.appender.call(effect(lambda _draft, _at: [AlterTopic(info.id, wider)]))
    for _ in range(2):
        assert len(again.receive(timeout_ms=0)) == 0
    told = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    assert all(text.startswith("dead letters of the subscription 'billing' of 'orders' wait") for text in told)
    assert ["'note' is missing" in text for text in told] == [False, True]
    assert "the offset 0 of partition 0" in told[0]


def test_messages_behind_a_damaged_segment_are_not_counted_as_delivered(memory: Place) -> None:
    clock = ManualClock(1_000_000)
    ns = memory.orders(clock=clock)
    kind = {"type": "shared", "lease_ms": 30_000, "max_redeliveries": 1, "dead_letter_topic": "dead"}
    ns.create_subscription("orders", "billing", start="earliest", **kind)
    for number in range(3):
        ns.produce("orders", rows(number))
    store, key = memory.store(), f"sales/{ns.snapshot().plan('orders').segments[1].key}"
    data = store.get(key)
    store.delete(key)
    workers = [memory.open(clock=clock).consumer("orders", "billing", name=f"w{n}") for n in range(2)]
    first = workers[0].receive(timeout_ms=0)
    workers[0].acknowledge(first)
    assert ids(first.table) == [0]
    for step in range(1, 8):  # more slowly than the leases: each of them would count
        with raises(CorruptionError, match="partition 0"):
            workers[step % 2].receive(timeout_ms=0)
        clock.advance(31_000)
    store.put(key, data)
    assert ids(workers[0].receive(timeout_ms=0).table) == [1, 2]
    assert not len(ns.snapshot().read("dead"))


def test_what_is_free_below_a_damaged_segment_comes_before_the_error_at_the_limit_of_leases(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_LEASED_MESSAGES", 10)
    ns, _, _ = damaged(memory)
    other = consumer_of(memory.open(), {"type": "shared"})
    found = other.receive(5, timeout_ms=0)
    consumer = consumer_of(ns, {"type": "shared"})
    with raises(CorruptionError, match="partition 0"):
        consumer.receive(10, timeout_ms=0)
    other.negative_acknowledge(found)
    assert ids(consumer.receive(10, timeout_ms=0).table) == [0, 1, 2, 3, 4]


LEASE_MS = 30_000
COUNTING: dict[str, Any] = {"type": "shared", "lease_ms": LEASE_MS, "max_redeliveries": 1, "dead_letter_topic": "dead"}


def first_partition_lost(memory: Place, clock: ManualClock) -> Any:
    """The only segment of partition 0 is gone; partition 1 has five healthy messages, which nobody ever received."""
    ns = memory.orders(partitions=2, clock=clock)
    ns.create_subscription("orders", "billing", start="earliest", **COUNTING)
    ns.produce("orders", rows(100), partition=0)
    ns.produce("orders", rows(0, 1, 2, 3, 4), partition=1)
    (lost,) = [s for s in ns.snapshot().plan("orders").segments if s.slices[0].partition == 0]
    memory.store().delete(f"sales/{lost.key}")
    return memory.open(clock=clock)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_that_pause_after_the_error_move_no_healthy_message_to_the_dead_letters(
    memory: Place, workers: int
) -> None:
    """Live workers that wait longer than a lease after a CorruptionError, as an alert and a pause do."""
    clock = ManualClock(1_000_000)
    ns = first_partition_lost(memory, clock)
    consumers = [memory.open(clock=clock).consumer("orders", "billing", name=f"w{n}") for n in range(workers)]
    first = consumers[0].receive(timeout_ms=0)
    assert ids(first.table) == [0, 1, 2, 3, 4], "a first call gives what is healthy"
    consumers[0].acknowledge(first)
    for _ in range(3):
        for consumer in consumers:
            with raises(CorruptionError, match="partition 0"):
                consumer.receive(timeout_ms=0)
            clock.advance(LEASE_MS + 1_000)
    ns.produce("orders", rows(5, 6), partition=1)
    with contextlib.suppress(CorruptionError):
        consumers[1].receive(timeout_ms=0)
    clock.advance(LEASE_MS + 1_000)
    fresh = memory.open(clock=clock).consumer("orders", "billing", name="fresh")
    assert set(ids(fresh.receive(timeout_ms=0).table)) == {5, 6}
    assert ids(ns.snapshot().read("dead")) == []


def test_a_worker_that_ends_by_the_error_and_is_started_again_moves_no_healthy_message_to_the_dead_letters(
    memory: Place,
) -> None:
    clock = ManualClock(1_000_000)
    ns = first_partition_lost(memory, clock)
    for step in range(3):  # the process ends by the error, without a close, and its supervisor starts it again
        worker = memory.open(clock=clock).consumer("orders", "billing", name=f"w{step}")
        if step == 0:
            worker.acknowledge(worker.receive(timeout_ms=0))
            ns.produce("orders", rows(200), partition=0)
        with raises(CorruptionError, match="partition 0"):
            worker.receive(timeout_ms=0)
        clock.advance(LEASE_MS + 1_000)
    assert ids(ns.snapshot().read("dead")) == [], "nobody ever received these"


def test_a_message_that_others_acknowledged_out_of_a_damaged_segment_stops_nobody(memory: Place) -> None:
    """Once nothing of the segment is left to deliver, what lies behind it is."""
    clock = ManualClock(1_000_000)
    ns = memory.orders(clock=clock)
    ns.create_subscription("orders", "billing", start="earliest", type="shared", lease_ms=LEASE_MS)
    for number in range(3):
        ns.produce("orders", rows(number * 10, number * 10 + 1))
    one, two = (memory.open(clock=clock).consumer("orders", "billing", name=f"w{n}") for n in range(2))
    first, second = one.receive(2, timeout_ms=0), one.receive(2, timeout_ms=0)
    assert (ids(first.table), ids(second.table)) == ([0, 1], [10, 11])
    memory.store().delete(f"sales/{ns.snapshot().plan('orders').segments[1].key}")
    one.negative_acknowledge(second)
    with raises(CorruptionError):
        two.receive(timeout_ms=0)
    one.acknowledge(second)  # it has them, after all, and keeps at work on the first
    fresh = memory.open(clock=clock).consumer("orders", "billing", name="w9")
    got = fresh.receive(1, timeout_ms=0)
    assert ids(got.table) == [20], "a consumer that never met the damage goes on"
    assert ids(two.receive(timeout_ms=0).table) == [21], "one that met it must too: nothing unreadable is left"


def test_records_that_were_deleted_stop_no_consumer_that_met_their_damage(memory: Place) -> None:
    """``delete_records`` of another client of the protocol: no call of this library writes it, its fold obeys it."""
    ns = memory.orders()
    ns.create_subscription("orders", "billing", start="earliest", type="shared")
    for number in range(2):
        ns.produce("orders", rows(number))
    memory.store().delete(f"sales/{ns.snapshot().plan('orders').segments[0].key}")
    fresh = memory.open()
    consumer = fresh.consumer("orders", "billing")
    with raises(CorruptionError):
        consumer.receive(timeout_ms=0)
    topic = fresh._connection.topic_handle("orders").record.id
    fresh._connection.appender.call(effect(lambda _draft, _at: [DeleteRecords(topic, ((0, 1),))]))
    assert ids(consumer.receive(timeout_ms=0).table) == [1], "as a new consumer receives it"


def test_messages_that_could_not_be_read_for_a_while_are_not_counted_as_delivered(memory: Place) -> None:
    """Each worker reports the StoreError and pauses for longer than a lease; then the store answers again."""
    clock = ManualClock(1_000_000)
    ns = memory.orders(clock=clock)
    ns.create_subscription("orders", "billing", start="earliest", **COUNTING)
    ns.produce("orders", rows(0, 1, 2))
    throttled: list[bool] = []
    wrap = failing(
        lambda: StoreError("read timed out"),
        StoreCall.GET,
        where=lambda key: bool(throttled) and kind_of(key) == "segment",
    )
    workers = [memory.open(wrap=wrap, clock=clock).consumer("orders", "billing", name=f"w{n}") for n in range(3)]
    throttled.append(True)
    for worker in workers:
        with pytest.raises(StoreError, match="timed out"):
            worker.receive(timeout_ms=0)
        clock.advance(LEASE_MS + 1_000)
    throttled.clear()
    found = workers[0].receive(timeout_ms=0)
    assert ids(ns.snapshot().read("dead")) == [], "nobody ever received these"
    assert (ids(found.table), found.redelivery_counts) == ([0, 1, 2], [0, 0, 0])


def test_a_grant_that_rides_past_a_damaged_segment_is_released(memory: Place) -> None:
    """Live and polling, never idle: what was granted ahead lies behind the damage, and its lease ends unreleased."""
    clock = ManualClock(1_000_000)
    ns = memory.orders(clock=clock)
    ns.create_topic("audit", SCHEMA)
    ns.create_subscription("orders", "billing", start="earliest", **COUNTING | {"max_redeliveries": 0})
    ns.produce("orders", rows(*range(300)))
    ns.produce("orders", rows(*range(300, 400)))
    ns.produce("orders", rows(*range(400, 1_000)))
    store, key = memory.store(), f"sales/{ns.snapshot().plan('orders').segments[1].key}"
    data = store.get(key)
    store.delete(key)
    worker = memory.open(clock=clock)
    one = worker.consumer("orders", "billing", name="one")
    batches = [one.receive(100, timeout_ms=0) for _ in range(3)]
    assert [len(batch) for batch in batches] == [100] * 3
    with raises(CorruptionError):
        one.receive(100, timeout_ms=0)
    for batch in batches:
        one.acknowledge(batch)
    for _ in range(7):
        with raises(CorruptionError):
            one.receive(100, timeout_ms=0)
        clock.advance(LEASE_MS // 6)
    store.put(key, data)
    found = memory.open(clock=clock).consumer("orders", "billing", name="two").receive(1_000, timeout_ms=0)
    assert ns.snapshot().read("dead").num_rows == 0, "nobody ever received these"
    assert ids(found.table) == list(range(300, 1_000))


@every_kind
def test_a_worker_that_is_started_again_after_the_error_comes_to_the_healthy_partitions(
    memory: Place, kind: dict[str, Any]
) -> None:
    """The error ends the process, as an exception does; its supervisor starts it again: the page says others go on."""
    ns, _, _ = damaged(memory, partitions=3)
    consumer = consumer_of(ns, kind)
    consumer.acknowledge(consumer.receive(5, timeout_ms=0))  # what lies before the damage in partition 0
    consumer.close()
    got: list[int] = []
    for _ in range(10):
        with contextlib.suppress(CorruptionError), memory.open().consumer("orders", "billing") as again:
            found = again.receive(5, timeout_ms=0)
            got += ids(found.table)
            again.acknowledge(found)
    assert got, "the partitions 1 and 2 have 30 healthy messages"


def test_an_error_behind_dead_letters_that_were_moved_does_not_say_that_nothing_was_written(memory: Place) -> None:
    ns = memory.orders(partitions=2)
    ns.create_subscription("orders", "billing", start="earliest", **COUNTING)
    ns.produce("orders", rows(1), partition=1)
    consumer = ns.consumer("orders", "billing")
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(timeout_ms=0))
    ns.produce("orders", rows(0), partition=0)
    (lost,) = [s for s in ns.snapshot().plan("orders").segments if s.slices[0].partition == 0]
    memory.store().delete(f"sales/{lost.key}")
    before = ns.snapshot().version
    with pytest.raises(CorruptionError) as caught:
        memory.open().consumer("orders", "billing").receive(timeout_ms=0)
    assert ids(ns.snapshot().read("dead")) == [1]
    assert ns.snapshot().version > before + 1, "the consumer, the dead letter, a lease and its release"
    assert caught.value.durable is not Durable.NOTHING, str(caught.value)


def test_what_the_page_says_of_scans_and_consumers_runs(memory: Place) -> None:
    ns, _, _ = damaged(memory)
    reading, receiving = blocks(page("docs/operations/damage.md"))
    given: dict[str, Any] = {"ns": ns, "consumer": consumer_of(ns, {}), "log": logging.getLogger()}
    exec(reading, given)
    assert ids(given["rows"]) == [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]
    handled: list[list[int]] = []
    for _ in range(3):
        given.pop("messages", None)
        exec(receiving, given)
        found = given.get("messages")
        handled.append([] if found is None else ids(found.table))
        if found is not None:
            given["consumer"].acknowledge(found)
    assert handled == [[0, 1, 2, 3, 4], [], [20, 21, 22, 23, 24]]


def test_the_error_is_the_same_on_the_way_to_another_process(memory: Place) -> None:
    ns, _, lost = damaged(memory)
    consumer = consumer_of(ns, {})
    consumer.receive(timeout_ms=0)
    with raises(CorruptionError) as caught:
        consumer.receive(timeout_ms=0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.segment, again.topic, again.behind) == (lost.number, "orders", {0: 10})
    assert str(again) == str(caught.value)


# --- scans ------------------------------------------------------------------------------------------------------------


def test_a_scan_leaves_out_exactly_the_segment_that_its_error_names(
    memory: Place, caplog: pytest.LogCaptureFixture
) -> None:
    ns, _, lost = damaged(memory, partitions=2)
    snapshot = ns.snapshot()
    with raises(CorruptionError, match="'orders', with the offsets 5 to 9 of partition 0") as caught:
        snapshot.read("orders")
    assert f"exclude_segments=[{lost.number}]" in caught.value.advice
    assert caught.value.segment == lost.number
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "txnlog"):
        found = snapshot.read("orders", exclude_segments=[lost.number], include_metadata=True)
    places = sorted(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
    assert places == [(0, n) for n in (*range(5), *range(10, 15))] + [(1, n) for n in range(15)]
    (record,) = caplog.records
    for words in (
        f"version {snapshot.version}",
        "5 rows",
        f"segment {lost.number}",
        "the offsets 5 to 9 of partition 0",
    ):
        assert words in record.getMessage()


def test_nothing_is_said_where_nothing_is_left_out(memory: Place, caplog: pytest.LogCaptureFixture) -> None:
    ns, _, lost = damaged(memory)
    with caplog.at_level(logging.WARNING, "txnlog"):
        found = ns.snapshot().read("orders", offsets={0: (0, 5)}, exclude_segments=[lost.number])
    assert ids(found) == [0, 1, 2, 3, 4]
    assert not caplog.records


def test_an_unknown_segment_is_refused(memory: Place) -> None:
    ns, _, lost = damaged(memory)
    ns.create_topic("payments", SCHEMA)
    ns.produce("payments", rows(1))
    other = ns.snapshot().plan("payments").segments[0].number
    for number in (lost.number + 1000, -1, other):
        with raises(InvalidInputError, match=f"segment {number}, which the topic 'orders' does not have"):
            ns.snapshot().read("orders", exclude_segments=[number])
    for wrong in ("3", 3, [3.0], [True], None, ["3"]):
        with raises(InvalidInputError, match="exclude_segments is a list of the numbers of segments"):
            ns.snapshot().read("orders", exclude_segments=wrong)


def test_of_rows_that_are_not_visible_the_error_says_so(memory: Place) -> None:
    ns = memory.orders()
    _txn = begun(ns, 1, 2, flush=True)
    (planned,) = ns.snapshot().plan("orders", isolation_level="read_uncommitted").segments
    memory.store().delete(f"sales/{planned.key}")
    fresh = memory.open().snapshot()
    with raises(CorruptionError, match="2 rows that are not visible of partition 0"):
        fresh.read("orders", isolation_level="read_uncommitted")
    left = fresh.read("orders", isolation_level="read_uncommitted", exclude_segments=[planned.number])
    assert left.num_rows == 0
