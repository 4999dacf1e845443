"""Failover: one consumer is active and the others wait; who shows no sign of life for a lease loses its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, raises, received, rows
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    OutcomeUnknown,
    StoreError,
    SubscriptionNotFound,
    TransactionAborted,
)
from txnlog.format import keys

LEASE_MS = 9_000


@pytest.fixture
def ns(memory: Place) -> Any:
    """Ten messages and a Failover subscription; waiting moves each handle's own elapsed time."""
    handle = memory.orders(*range(10))
    handle.create_subscription("orders", "billing", type="failover", lease_ms=LEASE_MS)
    return handle


@pytest.fixture
def other(ns: Any, memory: Place) -> Any:
    """Another client, whose time passes by itself."""
    return memory.open()


def hints(ns: Any) -> list[keys.ParsedKey | None]:
    """What lies in the folder of signs of life."""
    return [keys.parse_key(info.key) for info in ns._connection.store.list(keys.HEARTBEAT_FOLDER)]


def requests(ns: Any, call: str) -> int:
    return sum(count for (name, kind), count in ns.store_requests.items() if (name, kind) == (call, "hint"))


@pytest.mark.clause("P-177")
def test_one_consumer_is_active_and_the_others_receive_nothing(ns: Any, other: Any, memory: Place) -> None:
    active = ns.consumer("orders", "billing", name="one")
    with Unchanged(memory):
        waiting = other.consumer("orders", "billing", name="two")
        assert received(waiting) == []
    assert received(active, 4) == [0, 1, 2, 3]
    assert ns.subscription("orders", "billing").consumer == "one"
    with Unchanged(memory), raises(ConsumerBusy, match="active"):
        waiting.seek("earliest")


@pytest.mark.clause("P-73", "P-176", "P-177")
def test_when_the_active_one_closes_the_next_takes_over_at_once(ns: Any, other: Any) -> None:
    active, waiting = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    messages = active.receive(4, timeout_ms=0)
    active.acknowledge(messages[:2], cumulative=True)
    epoch = ns.subscription("orders", "billing").epoch
    active.close()
    assert received(waiting) == [2, 3, 4, 5, 6, 7, 8, 9]
    info = other.subscription("orders", "billing")
    assert (info.consumer, info.epoch > epoch) == ("two", True)


@pytest.mark.clause("P-175", "P-176")
def test_when_the_lease_of_the_active_one_ends_the_next_takes_over(ns: Any, other: Any, memory: Place) -> None:
    active, waiting = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    txn = ns.begin()
    messages = active.receive(4, timeout_ms=0)
    txn.acknowledge(messages)
    txn.flush()
    with Unchanged(memory):
        assert received(waiting, timeout_ms=LEASE_MS - 1) == []
    assert received(waiting, timeout_ms=LEASE_MS) == list(range(10))
    calls = (
        lambda: active.receive(timeout_ms=0),
        lambda: active.acknowledge(messages),
        lambda: active.negative_acknowledge(messages),
        active.redeliver_unacknowledged,
        lambda: active.seek("latest"),
        lambda: ns.begin().acknowledge(messages),
    )
    for call in calls:
        with raises(ConsumerFenced):
            call()
    with raises(TransactionAborted, match="fenced"):
        txn.commit()


@pytest.mark.clause("P-175", "P-176")
def test_a_consumer_that_shows_signs_of_life_keeps_its_place(ns: Any, other: Any, memory: Place) -> None:
    """Its own time decides when it shows one, the observer's how long it saw none: no clocks are compared."""
    active, waiting = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    received(active)
    with Unchanged(memory):
        for _ in range(10):
            assert received(active, timeout_ms=LEASE_MS // 3 + 1) == []
            assert received(waiting, timeout_ms=LEASE_MS - 1) == []


@pytest.mark.clause("P-175")
def test_signs_of_life_are_rare_and_waiting_looks_as_rarely(ns: Any, other: Any) -> None:
    active, waiting = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    before = requests(ns, "put")
    for _ in range(50):
        received(active)
    assert requests(ns, "put") == before, "no time has passed"
    received(active, timeout_ms=2 * LEASE_MS)
    assert 4 <= requests(ns, "put") - before <= 6
    before = requests(other, "get_range")
    received(waiting, timeout_ms=LEASE_MS - 1)
    assert 2 <= requests(other, "get_range") - before <= 3
    assert requests(ns, "get_range") == requests(other, "put") == 0


@pytest.mark.clause("P-175")
def test_signs_of_life_are_not_on_the_way_of_a_commit(ns: Any) -> None:
    active = ns.consumer("orders", "billing")
    messages = active.receive(timeout_ms=0)
    ns._connection.runtime.sleep_ms(LEASE_MS)
    before = requests(ns, "put")
    with ns.begin() as txn:
        txn.acknowledge(messages[:4])
    active.acknowledge(messages[4:])
    assert requests(ns, "put") == before
    assert ns.subscription("orders", "billing").cursors[0].cursor == 10


@pytest.mark.clause("P-176")
def test_who_saw_an_older_epoch_does_not_take_over_from_the_newer_one(ns: Any, memory: Place) -> None:
    """Two saw the same lease end: the slower one finds another epoch, and waits for that one's lease."""
    ns.consumer("orders", "billing", name="one")
    fast = memory.open()
    handle, store = memory.faulty()
    slow = handle.consumer("orders", "billing", name="slow")
    taken: list[Any] = []

    def take_first() -> None:
        taken.append(fast.consumer("orders", "billing", name="fast"))
        assert received(taken[0], timeout_ms=2 * LEASE_MS) == list(range(10))

    store.script.append(take_first)
    assert received(slow, timeout_ms=2 * LEASE_MS) == []
    assert taken
    assert ns.subscription("orders", "billing").consumer == "fast"


def test_the_consumer_creates_a_failover_subscription(ns: Any, other: Any) -> None:
    assert received(ns.consumer("orders", "shipping", type="failover")) == list(range(10))
    assert received(other.consumer("orders", "shipping")) == []
    assert ns.subscription("orders", "shipping").type == "failover"


def test_each_topic_of_a_consumer_has_its_active_one(ns: Any, other: Any) -> None:
    ns.create_topic("audit", SCHEMA)
    ns.produce("audit", rows(100))
    first = ns.consumer("audit", "billing", type="failover")
    both = other.consumer(["orders", "audit"], "billing", type="failover")
    assert received(both) == list(range(10))
    assert received(both) == []
    first.close()
    assert received(both) == [100]


@pytest.mark.clause("P-1")
def test_the_hint_of_an_older_epoch_is_cleared_away(ns: Any, other: Any) -> None:
    active, waiting = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    active.close()
    received(waiting)
    (info,) = list(ns._connection.store.list(keys.HEARTBEAT_FOLDER))
    record = ns.subscription("orders", "billing")
    assert keys.parse_key(info.key) == keys.HeartbeatKey(record.id, record.epoch)
    assert json.loads(ns._connection.store.get(info.key))["consumer"] == "two"


@pytest.mark.clause("P-138", "P-175")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\x00" * 10_000_000,
        b'{"consumer":"one","beat":1,"closed":"yes"}',
        b'{"x":' + b"[" * 4_000,
        b'{"consumer":"a","beat":1,"closed":' + b"[" * 4_000,
        b'{"consumer":"a","beat":1e999999999,"closed":true}',
        b'{"consumer":"\xff","beat":1,"closed":true}',
        b"\xff\xfe" * 2_000,
    ],
    ids=lambda content: repr(content[:34]),
)
def test_a_hint_that_is_damaged_is_one_that_does_not_change(ns: Any, other: Any, content: bytes) -> None:
    ns.consumer("orders", "billing", name="one")
    waiting = other.consumer("orders", "billing")
    record = ns.subscription("orders", "billing")
    ns._connection.store.put(keys.heartbeat_key(record.id, record.epoch), content)
    assert received(waiting, timeout_ms=LEASE_MS - 1) == []
    assert received(waiting, timeout_ms=LEASE_MS) == list(range(10))


@pytest.mark.clause("P-120", "P-175")
def test_a_store_that_fails_with_hints_fails_nobody(ns: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    active, waiting = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    for handle in (ns, other):
        for name in ("put", "get_range", "delete"):

            def fail(*_: Any, **__: Any) -> Any:
                raise StoreError("no permission")

            monkeypatch.setattr(handle._connection.heartbeats._store, name, fail)
    ns._connection.runtime.sleep_ms(LEASE_MS)
    assert received(active) == list(range(10))
    assert received(waiting, timeout_ms=3 * LEASE_MS) == [], "who cannot look cannot say that a lease is over"
    active.close()


def test_a_dropped_subscription_is_reported_to_who_waits(ns: Any, other: Any) -> None:
    active, waiting = ns.consumer("orders", "billing"), other.consumer("orders", "billing")
    ns.drop_subscription("orders", "billing")
    for consumer in (active, waiting):
        with raises(SubscriptionNotFound):
            consumer.receive(timeout_ms=0)
        consumer.close()


@pytest.mark.clause("P-77", "P-177")
def test_with_same_name_the_name_takes_over_at_once_and_no_other_ever(ns: Any, other: Any, memory: Place) -> None:
    ns.create_subscription("orders", "named", type="failover", takeover="same_name", lease_ms=LEASE_MS)
    old = ns.consumer("orders", "named", name="one")
    with Unchanged(memory), raises(ConsumerBusy, match="'one'"):
        other.consumer("orders", "named", name="two")
    new = other.consumer("orders", "named", name="one")
    assert received(new, 1) == [0]
    with raises(ConsumerFenced):
        old.receive(timeout_ms=0)


# --- takeovers in doubt -----------------------------------------------------------------------------------------------


def in_doubt(memory: Place, fate: str) -> tuple[Any, FaultyStore]:
    """A handle whose next entry is in doubt: it is there, or comes late, or never came."""
    handle, store = memory.faulty()
    handle._connection.appender.create_attempts = 1
    store.script.extend([lambda: store.reads.append("broken"), fate])
    return handle, store


@pytest.mark.clause("P-176")
@pytest.mark.parametrize("fate", ["lost", "late", "dropped"])
@pytest.mark.parametrize("kind", ["failover", "exclusive"])
def test_a_takeover_of_unknown_outcome_is_not_waited_for_by_who_made_it(
    ns: Any, memory: Place, fate: str, kind: str
) -> None:
    ns.create_subscription("orders", "mine", type=kind, takeover="after_lease", lease_ms=LEASE_MS)
    ns.consumer("orders", "mine", name="before").close()
    handle, store = in_doubt(memory, fate)
    with raises(OutcomeUnknown, match="same call again", durable=Durable.MAYBE):
        handle.consumer("orders", "mine")
    store.land()
    consumer = handle.consumer("orders", "mine", name="mine")
    assert received(consumer) == list(range(10))
    store.land()
    assert ns.subscription("orders", "mine").consumer == "mine"
    with Unchanged(memory):
        if kind == "exclusive":
            with raises(ConsumerBusy, match="'mine'"):
                memory.open().consumer("orders", "mine")
        else:
            assert received(memory.open().consumer("orders", "mine"), timeout_ms=LEASE_MS - 1) == []


@pytest.mark.clause("P-176")
@pytest.mark.parametrize("fate", ["lost", "late", "dropped"])
def test_who_waits_and_takes_over_with_an_unknown_outcome_is_active_at_its_next_call(
    ns: Any, memory: Place, fate: str
) -> None:
    active = ns.consumer("orders", "billing")
    handle, store = memory.faulty()
    waiting = handle.consumer("orders", "billing")
    active.close()
    handle._connection.appender.create_attempts = 1
    store.script.extend([lambda: store.reads.append("broken"), fate])
    store.reads.append("ok")  # the look at the log
    with raises(OutcomeUnknown, match="same call again", durable=Durable.MAYBE):
        waiting.receive(timeout_ms=0)
    store.land()
    assert received(waiting) == list(range(10))


@pytest.mark.clause("P-176")
@pytest.mark.parametrize("fate", ["lost", "late", "dropped"])
@pytest.mark.parametrize("kind", ["failover", "exclusive"])
def test_after_a_seek_of_unknown_outcome_nobody_waits_for_the_lease_of_the_old_consumer(
    ns: Any, memory: Place, fate: str, kind: str
) -> None:
    ns.create_subscription("orders", "mine", type=kind, takeover="after_lease", lease_ms=LEASE_MS)
    handle, store = memory.faulty()
    old = handle.consumer("orders", "mine")
    handle._connection.appender.create_attempts = 1
    store.script.extend([lambda: store.reads.append("broken"), fate])
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        old.seek({0: 7})
    store.land()
    assert received(handle.consumer("orders", "mine")) == [7, 8, 9]
    with raises(ConsumerFenced):
        old.receive(timeout_ms=0)


@pytest.mark.clause("P-176")
def test_an_entry_of_another_in_the_slot_of_a_takeover_of_unknown_outcome_is_that_ones_place(
    ns: Any, memory: Place
) -> None:
    handle, _ = in_doubt(memory, "dropped")
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        handle.consumer("orders", "billing", name="slow")
    fast = ns.consumer("orders", "billing", name="fast")
    assert received(fast) == list(range(10))
    slow = handle.consumer("orders", "billing", name="slow")
    with Unchanged(memory):
        assert received(slow, timeout_ms=LEASE_MS - 1) == []
    assert received(fast, timeout_ms=0) == []


# --- hints that are over, and closing ---------------------------------------------------------------------------------


@pytest.mark.clause("P-175")
def test_a_seek_and_a_drop_leave_no_hint(ns: Any) -> None:
    consumer = ns.consumer("orders", "billing")
    for _ in range(3):
        assert len(received(consumer)) == 10
        consumer.seek("earliest")
        assert hints(ns) == []
    received(consumer)
    record = ns.subscription("orders", "billing")
    assert hints(ns) == [keys.HeartbeatKey(record.id, record.epoch)]
    ns.drop_subscription("orders", "billing")
    assert hints(ns) == []


@pytest.mark.parametrize("kind", ["failover", "exclusive"])
def test_a_consumer_is_closed_quietly_after_its_namespace_and_so_are_all_its_topics(
    ns: Any, memory: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ns.create_topic("audit", SCHEMA)
    for topic in ("orders", "audit"):
        ns.create_subscription(topic, "mine", type=kind, takeover="after_lease")
    consumer = ns.consumer(["orders", "audit"], "mine")
    ns.close()
    consumer.close()
    consumer.close()
    assert not caplog.records


@pytest.mark.clause("P-79")
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", ["failover", "exclusive"])
def test_who_was_taken_over_hears_of_that_before_it_hears_of_what_it_released(
    memory: Place, kind: str, inside: bool
) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1, 2))
    ns.create_subscription("orders", "billing", type=kind)
    old = ns.consumer("orders", "billing")
    messages = old.receive(timeout_ms=0)
    old.negative_acknowledge(messages[0])
    new = other.consumer("orders", "billing")
    other._connection.runtime.sleep_ms(60_000)
    assert received(new) == [0, 1, 2]
    call = ns.begin().acknowledge if inside else old.acknowledge
    with Unchanged(memory), raises(ConsumerFenced):
        call(messages[2], cumulative=True)
