"""Retention by the settings of topics: what is due, what subscriptions keep, and what has expired on them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.by_hand import append
from tests.client.support import SCHEMA, Place, Unchanged, raises, read, rows
from txnlog.errors import InvalidInputError, TopicExists, TransactionConflict
from txnlog.format.actions import AlterTopic
from txnlog.testing import ManualClock

HOUR_MS = 3_600_000


def left(ns: Any, topic: str = "orders") -> list[int]:
    return sorted(read(ns, topic))


def hourly(ns: Any, clock: ManualClock, count: int, topic: str = "orders") -> None:
    """One message an hour; the last one an hour ago."""
    for number in range(count):
        ns.produce(topic, rows(number))
        clock.advance(HOUR_MS)


def test_messages_of_that_age_are_deleted_by_maintenance_and_no_younger_ones(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", retention_ms="3h")
    hourly(lake, clock, 5)
    (shown,) = lake.retention()
    assert (shown.retention_ms, shown.messages, shown.due_messages, shown.kept_messages) == (3 * HOUR_MS, 5, 3, 0)
    (done,) = lake.maintain().retained
    assert (done.topic, done.messages, dict(done.start_offsets)) == ("orders", 3, {0: 3})
    assert left(lake) == [3, 4]
    assert lake.maintain().retained == ()
    (shown,) = lake.retention("orders")
    assert (shown.messages, shown.due_messages) == (2, 0)


def test_merged_messages_keep_the_age_of_their_entries(lake: Any, clock: ManualClock) -> None:
    hourly(lake, clock, 5)
    assert lake.optimize("orders").merged_segments == 5
    lake.alter_topic("orders", retention_ms="3h")
    (done,) = lake.maintain().retained
    assert (done.messages, left(lake)) == (3, [3, 4])


def test_the_oldest_segments_beyond_a_size_are_deleted_and_the_newest_stays(lake: Any, clock: ManualClock) -> None:
    hourly(lake, clock, 5)
    size = lake.retention("orders")[0].size_bytes // 5
    lake.alter_topic("orders", retention_bytes=size * 5 // 2)  # the third crosses it, and stays
    (done,) = lake.maintain().retained
    assert (done.messages, left(lake)) == (2, [2, 3, 4])
    lake.alter_topic("orders", retention_bytes=1)
    assert lake.maintain().retained == (), "they were merged: it is one file, the newest"
    lake.produce("orders", rows(5))
    assert lake.maintain().retained[0].messages == 3
    assert left(lake) == [5]


def test_of_several_partitions_each_loses_what_is_old(ns: Any, place: Place) -> None:
    for number in range(6):
        ns.produce("orders", rows(number), partition=number % 2)
    size = ns.retention("orders")[0].size_bytes // 6
    ns.alter_topic("orders", retention_bytes=size * 5 // 2)
    (done,) = ns.maintain().retained
    assert (done.messages, dict(done.start_offsets), left(ns)) == (3, {0: 2, 1: 1}, [3, 4, 5])


def test_what_a_subscription_has_not_acknowledged_is_kept_and_listed(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", retention_ms="1h")
    begun_ms = clock.now_ms()
    hourly(lake, clock, 5)
    consumer = lake.consumer("orders", subscription="billing")
    consumer.acknowledge(consumer.receive(2), cumulative=True)
    lake.create_subscription("orders", "search", start={0: 4})
    (shown,) = lake.retention()
    assert (shown.due_messages, shown.kept_messages) == (2, 3)
    found = {item.subscription: (item.messages, item.since_ms) for item in shown.kept_for}
    assert found == {"billing": (3, begun_ms + 3 * HOUR_MS), "search": (1, begun_ms + 5 * HOUR_MS)}
    assert lake.maintain().retained[0].messages == 2
    assert left(lake) == [2, 3, 4]
    consumer.acknowledge(consumer.receive(10), cumulative=True)
    lake.drop_subscription("orders", "search")
    assert lake.maintain().retained[0].messages == 3


def test_a_message_that_was_acknowledged_and_not_committed_is_kept(lake: Any, clock: ManualClock) -> None:
    hourly(lake, clock, 3)
    lake.alter_topic("orders", retention_ms="1h")
    consumer = lake.consumer("orders", subscription="billing", type="shared")
    txn = lake.begin(timeout_ms="15m")
    txn.acknowledge(consumer.receive(3))
    assert lake.maintain().retained == ()
    txn.commit()
    assert lake.maintain().retained[0].messages == 3


def test_a_topic_may_delete_what_nobody_has_acknowledged(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", retention_ms="1h", retain_unacknowledged=False)
    lake.create_subscription("orders", "billing")
    hourly(lake, clock, 3)
    assert lake.retention()[0].kept_for == ()
    assert lake.maintain().retained[0].messages == 3
    hourly(lake, clock, 1)
    received = lake.consumer("orders", subscription="billing").receive(10)
    assert list(received.positions) == [("orders", 0, 3)]


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_after_its_time_to_live_a_message_counts_as_acknowledged(lake: Any, clock: ManualClock, kind: str) -> None:
    lake.alter_topic("orders", retention_ms="1h", message_ttl_ms="3h")
    lake.create_subscription("orders", "billing", type=kind)
    hourly(lake, clock, 5)
    (done,) = lake.maintain().retained
    assert (done.expired_messages, done.messages) == (3, 3)
    assert [item.cursor for item in lake.lag("orders", "billing")] == [3]
    assert left(lake) == [3, 4]
    assert lake.consumer("orders", subscription="billing").receive(10).table["id"].to_pylist() == [3, 4]


def test_messages_that_a_shared_consumer_has_leased_do_not_expire(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    lake.create_subscription("orders", "billing", type="shared", lease_ms="12h")
    hourly(lake, clock, 4)
    consumer = lake.consumer("orders", subscription="billing")
    working = consumer.receive(2)
    (done,) = lake.maintain().retained
    assert (done.expired_messages, done.messages, left(lake)) == (2, 0, [0, 1, 2, 3])
    consumer.acknowledge(working)
    assert [item.behind_messages for item in lake.lag("orders", "billing")] == [0]
    txn = lake.begin(timeout_ms="15m")
    with raises(TransactionConflict, "acknowledged before"):
        txn.acknowledge(working)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
@pytest.mark.parametrize("cumulative", [False, True])
def test_what_a_consumer_has_only_received_expires_and_no_transaction_takes_it_any_more(
    lake: Any, memory: Place, clock: ManualClock, kind: str, cumulative: bool
) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    hourly(lake, clock, 3)
    lake.produce("orders", rows(3))
    other = memory.open(clock=clock)
    consumer = lake.consumer("orders", subscription="billing", type=kind)
    received = consumer.receive(3)
    early = lake.begin(timeout_ms="15m")
    early.produce("orders", rows(7))
    early.acknowledge(received, cumulative=cumulative)  # no entry shows it
    assert other.maintain().retained[0].expired_messages == 3
    late = lake.begin(timeout_ms="15m")
    late.produce("orders", rows(8))
    for txn in (early, late):
        with raises(TransactionConflict, "acknowledged before"):
            if txn is late:
                txn.acknowledge(received, cumulative=cumulative)
            txn.commit()
        txn.abort()
    consumer.acknowledge(received, cumulative=cumulative)
    assert left(lake) == [0, 1, 2, 3], "nothing of the transactions is visible"
    assert consumer.receive(10).table["id"].to_pylist() == [3], "what has not expired is delivered, once"
    assert [item.cursor for item in lake.lag("orders", "billing")] == [3]


@pytest.mark.parametrize("cumulative", [False, True])
def test_what_expired_in_part_is_refused_as_a_whole_but_for_a_cumulative_acknowledgement(
    lake: Any, memory: Place, clock: ManualClock, cumulative: bool
) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    hourly(lake, clock, 3)
    lake.produce("orders", rows(3))
    consumer = lake.consumer("orders", subscription="billing")
    txn = lake.begin(timeout_ms="15m")
    txn.acknowledge(consumer.receive(10), cumulative=cumulative)
    txn.produce("orders", rows(4))
    assert memory.open(clock=clock).maintain().retained[0].expired_messages == 3
    if cumulative:
        txn.commit()
    else:
        with raises(TransactionConflict, "acknowledged before"):
            txn.commit()
        txn.abort()
    assert consumer.receive(10).table["id"].to_pylist() == ([4] if cumulative else [3])


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_where_a_transaction_has_one_of_them_that_one_stays(lake: Any, clock: ManualClock, kind: str) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    hourly(lake, clock, 3)
    consumer = lake.consumer("orders", subscription="billing", type=kind)
    txn = lake.begin(timeout_ms="15m")
    consumer.receive(1)
    txn.acknowledge(consumer.receive(1))
    txn.flush()
    assert lake.maintain().retained[0].expired_messages == 2
    assert [item.cursor for item in lake.lag("orders", "billing")] == [1]
    assert lake.maintain().retained == ()
    txn.abort()
    assert lake.maintain().retained[0].expired_messages == 1
    assert [item.cursor for item in lake.lag("orders", "billing")] == [3]


def test_of_a_shared_subscription_the_messages_without_a_transaction_expire(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    hourly(lake, clock, 3)
    lake.create_subscription("orders", "billing", type="shared", lease_ms="1m")
    consumer = lake.consumer("orders", subscription="billing")
    txn = lake.begin(timeout_ms="15m")
    received = consumer.receive(1)
    txn.acknowledge(received)
    txn.flush()
    clock.advance(120_000)  # its lease is over
    assert lake.maintain().retained[0].expired_messages == 2
    txn.commit()
    assert [item.cursor for item in lake.lag("orders", "billing")] == [3]


def test_a_pending_cumulative_acknowledgement_is_not_overtaken(lake: Any, clock: ManualClock) -> None:
    lake.alter_topic("orders", message_ttl_ms="1h")
    hourly(lake, clock, 3)
    consumer = lake.consumer("orders", subscription="billing")
    txn = lake.begin(timeout_ms="15m")
    txn.acknowledge(consumer.receive(2), cumulative=True)
    txn.flush()
    assert lake.maintain().retained[0].expired_messages == 1
    txn.commit()
    assert lake.maintain().retained == ()
    assert [item.cursor for item in lake.lag("orders", "billing")] == [3]


def test_settings_are_taken_away_and_are_part_of_what_a_topic_is(lake: Any, memory: Place) -> None:
    lake.create_topic("logs", SCHEMA, retention_ms="7d", retention_bytes="10GiB", message_ttl_ms="30d")
    properties = dict(lake.topic("logs").properties)
    assert properties == {
        "txnlog.retention_ms": "604800000",
        "txnlog.retention_bytes": str(10 << 30),
        "txnlog.message_ttl_ms": "2592000000",
    }
    with Unchanged(memory):
        lake.create_topic("logs", SCHEMA, if_not_exists=True, retention_ms=604_800_000)
        with raises(TopicExists, "retention_ms: 604800000 instead of 1000"):
            lake.create_topic("logs", SCHEMA, if_not_exists=True, retention_ms=1_000)
    lake.alter_topic("logs", retention_bytes=-1, message_ttl_ms=-1)
    assert dict(lake.topic("logs").properties) == {"txnlog.retention_ms": "604800000"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"retention_ms": 0}, "retention_ms"),
        ({"retention_ms": -2}, "retention_ms"),
        ({"retention_ms": "a week"}, "retention_ms"),
        ({"retention_ms": True}, "retention_ms"),
        ({"retention_bytes": "10 elephants"}, "retention_bytes"),
        ({"retention_bytes": 1.5}, "retention_bytes"),
        ({"retain_unacknowledged": "no"}, "retain_unacknowledged"),
        ({"retention_ms": "7d", "message_ttl_ms": "1d"}, "shorter than retention_ms"),
        ({"retain_unacknowledged": False, "message_ttl_ms": "1d"}, "nothing keeps them"),
    ],
)
def test_settings_that_make_no_sense_are_refused(lake: Any, memory: Place, given: Any, text: str) -> None:
    with Unchanged(memory):
        with raises(InvalidInputError, text):
            lake.alter_topic("orders", **given)
        with raises(InvalidInputError, text):
            lake.create_topic("others", SCHEMA, **given)


@pytest.mark.parametrize("name", ["retention.ms", "retention_bytes", "message_ttl"])
def test_whoever_sets_a_property_is_shown_the_argument(lake: Any, name: str) -> None:
    with raises(InvalidInputError, "use retention_" if "retention" in name else "use message_ttl_ms"):
        lake.alter_topic("orders", properties={name: "1"})


def test_what_a_newer_txnlog_may_have_set_deletes_nothing(lake: Any, memory: Place, clock: ManualClock) -> None:
    topic = lake.topic("orders").id
    hourly(lake, clock, 2)
    append(lake, AlterTopic(topic, None, {"txnlog.retention_ms": "P7D", "txnlog.retain_unacknowledged": "maybe"}))
    (shown,) = memory.open(mode="r").retention()
    assert (shown.retention_ms, shown.retain_unacknowledged) == (None, True)
    assert lake.maintain().retained == ()


def test_many_topics_are_one_entry(lake: Any, clock: ManualClock) -> None:
    for number in range(20):
        lake.create_topic(f"t{number}", SCHEMA, retention_ms="1h")
        lake.produce(f"t{number}", rows(number))
    clock.advance(2 * HOUR_MS)
    done = lake.maintain()
    assert len({item.version for item in done.retained}) == 1
    assert len(done.retained) == 20
