"""Messages that were delivered too often go to the dead-letter topic, and off the subscription, in one entry."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import (
    SCHEMA,
    Place,
    Unchanged,
    counts,
    holding,
    ids,
    kind_of,
    raises,
    read,
    rows,
    take,
    wait_for,
    waiting,
)
from txnlog.errors import (
    InvalidInputError,
    OffsetOutOfRange,
    SchemaMismatch,
    StoreError,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicNotFound,
)
from txnlog.fold import acknowledgements, leases
from txnlog.format import schema
from txnlog.format.actions import AlterTopic, Commit, DropTopic
from txnlog.log.commands import Simple
from txnlog.testing import ManualClock

LEASE_MS = 10_000
BILLING: dict[str, Any] = {
    "type": "shared",
    "lease_ms": LEASE_MS,
    "max_redeliveries": 2,
    "dead_letter_topic": "orders-dead",
}
COLUMNS = ["_dead_reason", "_source_topic", "_source_partition", "_source_offset", "_redeliveries"]


@pytest.fixture
def ns(memory: Place, clock: ManualClock) -> Any:
    """Two partitions of three messages, and a Shared subscription that redelivers twice."""
    handle = memory.orders(partitions=2, clock=clock)
    for number in range(6):
        handle.produce("orders", rows(number), partition=number % 2)
    handle.create_subscription("orders", "billing", **BILLING)
    return handle


def letters(ns: Any) -> list[dict[str, Any]]:
    return ns.snapshot().read("orders-dead").to_pylist()


def return_all(consumer: Any, times: int) -> None:
    for _ in range(times):
        consumer.negative_acknowledge(take(consumer))


@pytest.mark.clause("P-173")
def test_a_message_above_the_maximum_goes_to_the_dead_letter_topic(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    first = take(consumer)
    consumer.acknowledge(first[ids(first.table).index(0)])
    consumer.acknowledge(first[ids(first.table).index(5)])
    consumer.redeliver_unacknowledged()
    again = take(consumer)
    assert counts(again) == {1: 1, 2: 1, 3: 1, 4: 1}
    consumer.negative_acknowledge(again)
    last = take(consumer)
    assert counts(last) == {1: 2, 2: 2, 3: 2, 4: 2}, "the maximum itself is still delivered"
    saved = [number for number in range(4) if ids(last.table)[number] == 3]
    consumer.acknowledge(last[saved])
    consumer.redeliver_unacknowledged()
    assert letters(ns) == []
    assert len(take(consumer)) == 0
    found = sorted(letters(ns), key=lambda row: row["id"])
    assert [list(row) for row in found] == [["id", "name", *COLUMNS]] * 3
    assert [
        (row["id"], row["name"], row["_source_topic"], row["_source_partition"], row["_source_offset"]) for row in found
    ] == [(1, "n1", "orders", 1, 0), (2, "n2", "orders", 0, 1), (4, "n4", "orders", 0, 2)]
    assert {row["_redeliveries"] for row in found} == {3}
    assert all("2" in row["_dead_reason"] and "billing" in row["_dead_reason"] for row in found)
    assert [item.cursor for item in ns.subscription("orders", "billing").cursors] == [3, 3]


@pytest.mark.clause("P-173")
def test_the_letters_and_the_acknowledgement_are_one_transaction(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    return_all(consumer, 3)
    before = ns.snapshot().version
    assert len(take(consumer)) == 0
    commits = [
        action
        for version in range(before + 1, ns.snapshot().version + 1)
        for action in ns._connection.follower.log.entry(version).actions
        if isinstance(action, Commit)
    ]
    assert [(sum(share.rows for share in item.shares), len(item.acknowledgements)) for item in commits] == [(6, 1)]


@pytest.mark.clause("P-78", "P-173")
def test_a_lease_that_ends_counts_too(ns: Any, clock: ManualClock) -> None:
    consumer = ns.consumer("orders", "billing")
    for expected in (0, 1, 2):
        assert set(take(consumer).redelivery_counts) == {expected}
        clock.advance(LEASE_MS)
    assert len(take(consumer)) == 0
    assert [row["_redeliveries"] for row in letters(ns)] == [3] * 6


@pytest.mark.clause("P-86", "P-173")
def test_one_failed_delivery_is_no_dead_letter_where_one_redelivery_is_allowed(
    ns: Any, memory: Place, clock: ManualClock
) -> None:
    ns.create_subscription("orders", "strict", type="shared", max_redeliveries=1, dead_letter_topic="orders-dead")
    other = memory.open(clock=clock)
    consumer = ns.consumer("orders", "strict", name="one")
    txn = holding(ns, take(consumer))
    other.abort(txn.id)
    again = take(consumer)
    assert set(again.redelivery_counts) == {1}
    txn.abort()
    assert len(take(other.consumer("orders", "strict", name="two"))) == 0
    assert letters(other) == [], "they are being worked on, for the second time"
    consumer.acknowledge(again)


def test_what_is_acknowledged_first_is_no_dead_letter(ns: Any, memory: Place, clock: ManualClock) -> None:
    consumer = ns.consumer("orders", "billing")
    return_all(consumer, 2)
    messages = take(consumer)
    txn = holding(ns, messages[:2], timeout_ms=10 * LEASE_MS)
    consumer.redeliver_unacknowledged()
    other = memory.open(clock=clock)
    assert len(take(other.consumer("orders", "billing"))) == 0
    assert len(letters(ns)) == 4
    txn.commit()
    assert len(take(consumer)) == 0
    assert len(letters(ns)) == 4
    assert [item.cursor for item in ns.subscription("orders", "billing").cursors] == [3, 3]


def test_who_acknowledges_while_the_letters_are_written_wins(ns: Any, memory: Place, clock: ManualClock) -> None:
    """The letters are decided again after a lost race, and then there is nothing to bring away."""
    mine = ns.consumer("orders", "billing")
    return_all(mine, 2)
    late = take(mine)
    clock.advance(LEASE_MS)
    handle, store = memory.faulty(clock=clock)
    consumer = handle.consumer("orders", "billing")
    store.script.extend([lambda: mine.acknowledge(late[0]), "ok"])
    assert len(take(consumer)) == 0
    assert len(letters(ns)) == 5
    assert [item.cursor for item in ns.subscription("orders", "billing").cursors] == [3, 3]


@pytest.mark.clause("P-173")
def test_a_message_that_is_delivered_while_the_letters_are_written_is_none(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is granted and could not be read is its consumer's stock: it is handed out later, for the first time."""
    mine, store = memory.faulty(clock=clock)
    other, other_store = memory.faulty(clock=clock)
    mine.create_topic("orders", SCHEMA)
    mine.produce("orders", rows(1))
    mine.create_subscription("orders", "billing", **{**BILLING, "max_redeliveries": 0})
    consumer, finds_it = mine.consumer("orders", "billing"), other.consumer("orders", "billing")
    with monkeypatch.context() as patch:
        patch.setattr(store, "get", without_segments(store.get))
        with pytest.raises(StoreError):
            take(consumer)
    clock.advance(LEASE_MS)
    received: list[Any] = []
    other_store.script.append(lambda: received.append(take(consumer)))
    assert len(take(finds_it)) == 0
    assert counts(received[0]) == {1: 0}
    assert letters(mine) == []
    consumer.acknowledge(received[0])
    assert mine.subscription("orders", "billing").cursors[0].cursor == 1


def without_segments(get: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def found(key: str) -> bytes:
        if kind_of(key) == "segment":
            raise StoreError("read timed out")
        return get(key)

    return found


@pytest.mark.clause("P-172", "P-173")
@pytest.mark.parametrize("most", [2, 3])
def test_at_the_limit_of_ranges_dead_letters_wait_until_holes_fill_and_stop_nobody(
    memory: Place, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(leases, "MAX_ACKNOWLEDGED_RANGES", most)
    monkeypatch.setattr(acknowledgements, "MAX_ACKNOWLEDGED_RANGES", most)
    ns = memory.orders(*range(10), clock=clock)
    ns.create_subscription("orders", "billing", type="shared", max_redeliveries=0, dead_letter_topic="orders-dead")
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[1, 3]])
    consumer.negative_acknowledge(messages[[5, 7]])
    assert len(take(consumer)) == 0
    assert read(ns, "orders-dead") == [], "each would be one range too many, with those that are leased"
    consumer.acknowledge(messages[[0, 2, 4]])
    assert len(take(consumer)) == 0
    assert read(ns, "orders-dead") == [5, 7][: most - 1], "what touches the cursor, and what there is room for"
    consumer.acknowledge(messages[[6]])
    assert len(take(consumer)) == 0
    assert read(ns, "orders-dead") == [5, 7]
    assert ns.subscription("orders", "billing").cursors[0].cursor == 8


@pytest.mark.clause("P-89", "P-173")
def test_letters_of_a_subscription_that_is_dropped_meanwhile_are_not_written(
    ns: Any, memory: Place, clock: ManualClock
) -> None:
    return_all(ns.consumer("orders", "billing"), 3)
    handle, store = memory.faulty(clock=clock)
    consumer = handle.consumer("orders", "billing")
    store.script.extend([lambda: ns.drop_subscription("orders", "billing"), "ok"])
    with raises(SubscriptionNotFound):
        take(consumer)
    assert letters(ns) == [], "what cannot be taken off is not brought away"


def test_many_letters_go_in_several_entries(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MOST_DEAD_LETTERS", 4)
    consumer = ns.consumer("orders", "billing")
    return_all(consumer, 3)
    ns.produce("orders", rows(7), partition=0)
    assert ids(take(consumer).table) == [7]
    assert sorted(read(ns, "orders-dead")) == [0, 1, 2, 3, 4, 5]


def test_without_a_maximum_messages_come_for_ever(memory: Place) -> None:
    ns = memory.orders(1)
    consumer = ns.consumer("orders", "billing", type="shared")
    return_all(consumer, 20)
    assert counts(take(consumer)) == {1: 20}


def widen(ns: Any, topic: str) -> None:
    """Give a topic another column, as a writer of a later version may."""
    info = ns.topic(topic)
    wider = schema.from_arrow(pa.schema([*info.schema, pa.field("note", pa.string())]))
    ns._connection.appender.call(Simple(lambda _draft, _at: [AlterTopic(info.id, wider)], lambda _draft, _at: None))


@pytest.mark.clause("P-173")
def test_a_column_that_the_topic_got_while_its_consumer_was_open_is_in_the_letter(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    widen(ns, "orders")
    widen(ns, "orders-dead")
    ns.produce("orders", [{"id": 6, "name": "n6", "note": "kept"}], partition=0)
    return_all(consumer, 3)
    assert len(take(consumer)) == 0
    assert {row["id"]: row["note"] for row in letters(ns)} == {**dict.fromkeys(range(6)), 6: "kept"}


def test_a_letter_has_null_in_a_struct_of_the_dead_letter_topic_that_requires_a_field(ns: Any) -> None:
    review = pa.struct([pa.field("by", pa.string(), False)])
    ns.alter_topic("orders-dead", add_columns=[("review", review)])
    consumer = ns.consumer("orders", "billing")
    return_all(consumer, 3)
    assert len(take(consumer)) == 0
    assert [row["review"] for row in letters(ns)] == [None] * 6


@pytest.mark.clause("P-173")
def test_letters_for_a_topic_that_lacks_a_column_wait_for_it_and_stop_nobody(
    ns: Any, memory: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = ns.consumer("orders", "billing")
    widen(ns, "orders")
    return_all(consumer, 3)
    ns.produce("orders", rows(6), partition=1)
    other = memory.open(clock=clock).consumer("orders", "billing")
    for one in (consumer, other):
        assert ids(take(one).table) == [6]
        one.redeliver_unacknowledged()
    assert len(take(consumer)) == 1
    assert letters(ns) == []
    assert [item.cursor for item in ns.subscription("orders", "billing").cursors] == [0, 0]
    told = [record.getMessage() for record in caplog.records if "wait where they are" in record.getMessage()]
    assert len(told) == 2, "each says it once"
    assert "'note' is missing" in told[0]
    widen(ns, "orders-dead")
    assert len(take(consumer)) == 0
    assert sorted(row["id"] for row in letters(ns)) == list(range(6))


# --- the topic --------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-39", "P-174")
def test_the_topic_is_created_with_the_subscription(ns: Any) -> None:
    info = ns.topic("orders-dead")
    assert info.schema == pa.schema(
        [
            *SCHEMA,
            pa.field("_dead_reason", pa.string()),
            pa.field("_source_topic", pa.string()),
            pa.field("_source_partition", pa.int32()),
            pa.field("_source_offset", pa.int64()),
            pa.field("_redeliveries", pa.int32()),
        ]
    )
    assert (info.partitions, info.key) == (2, None)


@pytest.mark.clause("P-174")
def test_a_topic_that_is_there_must_fit(ns: Any, memory: Place) -> None:
    ns.create_subscription("orders", "again", type="shared", max_redeliveries=2, dead_letter_topic="orders-dead")
    ns.create_topic("narrow", SCHEMA)
    fields = list(ns.topic("orders-dead").schema)
    ns.create_topic("wide", pa.schema([*fields, pa.field("note", pa.string())]))
    ns.create_topic("strict", pa.schema([*fields, pa.field("note", pa.string(), nullable=False)]))
    ns.create_topic("other", pa.schema([pa.field("id", pa.string()), *fields[1:]]))
    ns.create_topic("nulls", pa.schema([pa.field("id", pa.int64(), nullable=False), *fields[1:]]))
    ns.create_subscription("orders", "into-wide", type="shared", max_redeliveries=0, dead_letter_topic="wide")
    for name, column in (("narrow", "_dead_reason"), ("strict", "note"), ("other", "id"), ("nulls", "id")):
        with Unchanged(memory), raises(SchemaMismatch, match=column):
            ns.create_subscription("orders", "no", type="shared", max_redeliveries=2, dead_letter_topic=name)
    consumer = ns.consumer("orders", "into-wide")
    consumer.negative_acknowledge(take(consumer))
    assert len(take(consumer)) == 0
    assert sorted(read(ns, "wide")) == [0, 1, 2, 3, 4, 5]


@pytest.mark.clause("P-39")
def test_other_names_with_an_underscore_stay_the_protocols(ns: Any, memory: Place) -> None:
    for field in (pa.field("_dead", pa.string()), pa.field("_source_offset", pa.string())):
        with Unchanged(memory), raises(SchemaMismatch, match="underscore"):
            ns.create_topic("mine", pa.schema([field]))


@pytest.mark.clause("P-174")
def test_both_settings_or_none(ns: Any, memory: Place) -> None:
    for options in ({"max_redeliveries": 2}, {"dead_letter_topic": "dead"}):
        with Unchanged(memory), raises(InvalidInputError, match="together"):
            ns.create_subscription("orders", "no", type="shared", **options)
    with Unchanged(memory), raises(InvalidInputError, match="its own"):
        ns.create_subscription("orders", "no", type="shared", max_redeliveries=1, dead_letter_topic="orders")


@pytest.mark.clause("P-174")
def test_an_exclusive_one_may_have_the_topic_alone_and_a_failover_one_may_not(ns: Any, memory: Place) -> None:
    info = ns.create_subscription("orders", "own", dead_letter_topic="own-dead")
    assert (info.type, info.dead_letter_topic, info.max_redeliveries) == ("exclusive", "own-dead", None)
    assert ns.topic("own-dead").schema.names[-5:] == COLUMNS
    consumer = ns.consumer("orders", "own")
    for _ in range(3):
        consumer.redeliver_unacknowledged()
        assert len(take(consumer)) == 6, "nothing counts how often they come"
    for options in ({"max_redeliveries": 2, "dead_letter_topic": "dead"}, {"max_redeliveries": 2}):
        with Unchanged(memory), raises(InvalidInputError, match="max_redeliveries belongs to shared"):
            ns.create_subscription("orders", "no", **options)
    with Unchanged(memory), raises(InvalidInputError, match="would be failover"):
        ns.create_subscription("orders", "no", type="failover", dead_letter_topic="dead")


@pytest.mark.clause("P-174")
def test_a_subscription_that_is_refused_creates_no_topic(ns: Any, memory: Place) -> None:
    options = {**BILLING, "dead_letter_topic": "dead"}
    with Unchanged(memory), raises(OffsetOutOfRange):
        ns.create_subscription("orders", "no", start={0: 99}, **options)
    with Unchanged(memory), raises(SubscriptionExists):
        ns.create_subscription("orders", "billing", **options)


@pytest.mark.clause("P-174")
@pytest.mark.parametrize(
    ("setting", "value"),
    [("max_redeliveries", 3), ("dead_letter_topic", "dead"), ("lease_ms", 1_000)],
)
def test_a_subscription_that_is_there_with_other_settings_is_refused(
    ns: Any, memory: Place, setting: str, value: Any
) -> None:
    with Unchanged(memory), raises(SubscriptionExists, match=setting):
        ns.create_subscription("orders", "billing", **{**BILLING, setting: value}, if_not_exists=True)
    with Unchanged(memory):
        ns.create_subscription("orders", "billing", start="latest", **BILLING, if_not_exists=True)


@pytest.mark.clause("P-174")
def test_the_topic_and_the_subscription_are_one_entry(ns: Any) -> None:
    before = ns.snapshot().version
    ns.create_subscription("orders", "more", **{**BILLING, "dead_letter_topic": "more-dead"})
    assert ns.snapshot().version == before + 1
    assert ns.topic("more-dead").id == ns.subscription("orders", "more").id


def test_topics_and_subscriptions_that_one_client_creates_at_once_have_entries_of_their_own(memory: Place) -> None:
    ns, store = memory.faulty_orders()
    with ThreadPoolExecutor() as pool:
        made: list[Future[Any]] = []

        def gather() -> None:
            """While an entry is under way, calls queue up that would share the next one."""
            made.append(pool.submit(ns.create_subscription, "orders", "billing", **BILLING))
            made.append(pool.submit(ns.create_topic, "audit", SCHEMA))
            wait_for(lambda: waiting(ns) == len(made))

        store.script.append(gather)
        ns.produce("orders", rows(1))
        assert len({future.result(30).id for future in made}) == 2
    assert ns.topics() == ("audit", "orders", "orders-dead")


def test_dead_letters_have_dead_letters(ns: Any) -> None:
    ns.create_subscription("orders-dead", "retry", type="shared", max_redeliveries=0, dead_letter_topic="twice-dead")
    return_all(ns.consumer("orders", "billing"), 3)
    assert len(take(ns.consumer("orders", "billing"))) == 0
    consumer = ns.consumer("orders-dead", "retry")
    return_all(consumer, 1)
    assert len(take(consumer)) == 0
    found = ns.snapshot().read("twice-dead").to_pylist()
    assert sorted(row["id"] for row in found) == [0, 1, 2, 3, 4, 5]
    assert {row["_source_topic"] for row in found} == {"orders-dead"}


def test_a_topic_that_takes_dead_letters_is_not_dropped(ns: Any, memory: Place) -> None:
    with Unchanged(memory), raises(InvalidInputError, match="'billing' of 'orders'"):
        ns.drop_topic("orders-dead")
    ns.drop_subscription("orders", "billing")
    ns.drop_topic("orders-dead")
    assert ns.topics() == ("orders",)


def test_a_dead_letter_topic_that_was_dropped_is_asked_for(ns: Any, memory: Place) -> None:
    consumer = ns.consumer("orders", "billing")
    return_all(consumer, 3)
    fields = ns.topic("orders-dead").schema
    gone = DropTopic(ns.topic("orders-dead").id)  # by somebody who does not know the rule
    ns._connection.appender.call(Simple(lambda _draft, _at: [gone], lambda _draft, _at: None))
    with Unchanged(memory), raises(TopicNotFound, match="if_not_exists=True makes it again"):
        take(consumer)
    ns.create_subscription("orders", "billing", **BILLING, if_not_exists=True)
    assert ns.topic("orders-dead").schema == fields
    assert len(take(consumer)) == 0
    assert len(letters(ns)) == 6
