"""Lost races and stale knowledge: two clients on one log."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    Place,
    begun,
    committed,
    holding,
    raises,
    read,
    rows,
    run_threads,
    wait_for,
    waiting,
)
from txnlog.api.internals import acknowledge_ranges
from txnlog.api.namespace import Namespace
from txnlog.errors import (
    CorruptionError,
    Durable,
    OutcomeUnknown,
    TopicExists,
    UnsupportedFeature,
)
from txnlog.format.actions import Header, Protocol
from txnlog.format.codec import encode_action, encode_entry
from txnlog.format.keys import entry_key
from txnlog.testing import ManualClock


@pytest.mark.clause("P-116", "P-117")
def test_a_lost_race_is_decided_again_and_committed_behind_the_winner(pair: Any) -> None:
    ns, store, rival = pair
    store.script.append(lambda: rival.produce("orders", rows(7)))
    result = ns.produce("orders", rows(1))
    assert result.offsets == {("orders", 0): range(2, 3)}
    assert read(ns) == read(rival) == [0, 7, 1]


def test_many_lost_races_are_survived(pair: Any) -> None:
    ns, store, rival = pair
    for number in range(20):
        store.script.append(lambda number=number: rival.produce("orders", rows(100 + number)))
    for _ in range(20):
        store.script.append("ok")
    result = ns.produce("orders", rows(1))
    assert read(ns)[-1] == 1
    assert result.offsets == {("orders", 0): range(21, 22)}


def test_who_is_far_behind_reads_up_instead_of_losing_race_after_race(pair: Any) -> None:
    ns, store, rival = pair
    for number in range(60):
        rival.produce("orders", rows(number))
    store.calls.clear()
    ns.produce("orders", rows(1))
    assert [call for call, _ in store.calls].count("create") <= 4


@pytest.mark.clause("P-119")
def test_a_refusal_decided_on_stale_state_is_looked_at_again(pair: Any) -> None:
    ns, _, rival = pair
    consumer = rival.consumer("orders", "billing")
    txn = holding(rival, consumer.receive(timeout_ms=0), flush=True)
    ns.snapshot()  # knows of the pending acknowledgement
    txn.abort()
    mine = ns.begin()
    acknowledge_ranges(mine, _acknowledgement(rival))
    mine.commit()
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


def _acknowledgement(ns: Any) -> list[Any]:
    from txnlog.format.actions import Acknowledgement, PartitionRanges

    info = ns.subscription("orders", "billing")
    number = ns._connection.follower.state.subscription_names[ns.topic("orders").id, "billing"]
    return [Acknowledgement(number, info.epoch, (PartitionRanges(0, ((0, 1),)),))]


@pytest.mark.clause("P-119")
def test_a_refusal_after_a_lost_race_is_looked_at_again_too(pair: Any) -> None:
    """The winner of the race may be long ago: what it left behind is no reason to say no."""
    ns, store, rival = pair
    rival.create_topic("later", SCHEMA)
    rival.drop_topic("later")
    store.calls.clear()
    assert ns.create_topic("later", SCHEMA).name == "later"


@pytest.mark.clause("P-119")
def test_an_answer_without_an_entry_does_not_come_from_stale_state(pair: Any) -> None:
    ns, _, rival = pair
    committed(rival, 5, txn_app_id="nightly", txn_version=5)
    ns.forget_app("nightly")  # this client has not seen the app yet
    assert rival.last_txn_version("nightly") is None
    assert ns.create_topic("soon", SCHEMA).name == "soon"
    rival.drop_topic("soon")
    ns_topic = ns.create_topic("soon", SCHEMA, if_not_exists=True)
    assert ns_topic.id == rival.topic("soon").id


@pytest.mark.clause("P-69")
def test_a_stale_client_does_not_skip_what_was_forgotten(pair: Any) -> None:
    ns, _, rival = pair
    txn = committed(ns, 5, txn_app_id="nightly", txn_version=5)
    rival.forget_app("nightly")
    txn = begun(ns, 6, txn_app_id="nightly", txn_version=5)
    assert not txn.commit().skipped
    assert read(ns) == [0, 5, 6]


# --- rivals with another mind ---------------------------------------------------------------------------------------


@pytest.mark.clause("P-135")
def test_a_feature_enabled_meanwhile_stops_the_writer(pair: Any) -> None:
    ns, _, rival = pair
    _force(rival, Protocol(1, 1, (), ("teleport",)))
    with raises(UnsupportedFeature, match="teleport"):
        ns.produce("orders", rows(1))
    assert read(ns) == [0], "reading goes on"


@pytest.mark.clause("P-134")
def test_a_reader_feature_enabled_meanwhile_stops_everybody(pair: Any) -> None:
    ns, _, rival = pair
    _force(rival, Protocol(1, 1, ("teleport",), ("teleport",)))
    for call in (lambda: ns.produce("orders", rows(1)), ns.snapshot):
        with raises(UnsupportedFeature, match="teleport"):
            call()


def _force(ns: Namespace, *actions: Any) -> None:
    """Put an entry that this client would not write itself."""
    head = ns._connection.follower.state.head
    header = Header(head.version + 1, "f" * 32, head.timestamp_ms, head.digest)
    ns._connection.store.put(
        entry_key(header.version), encode_entry(header, [encode_action(action) for action in actions])
    )


@pytest.mark.clause("P-25")
def test_a_damaged_winner_stops_the_loser(pair: Any) -> None:
    ns, store, rival = pair
    key = entry_key(ns.snapshot().version + 1)
    store.script.append(lambda: rival._connection.store.put(key, b"no entry\n"))
    with raises(OutcomeUnknown, match=f"cannot be read.*entry {ns.snapshot().version + 1}", durable=Durable.MAYBE):
        ns.produce("orders", rows(1))
    with raises(CorruptionError):
        ns.snapshot()


def test_two_clients_make_one_topic(pair: Any) -> None:
    ns, store, rival = pair
    store.script.append(lambda: rival.create_topic("new", SCHEMA))
    with raises(TopicExists):
        ns.create_topic("new", SCHEMA)
    store.script.append(lambda: rival.create_topic("newer", SCHEMA))
    assert ns.create_topic("newer", SCHEMA, if_not_exists=True).id == rival.topic("newer").id


# --- riders ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-64")
def test_an_overdue_transaction_is_ended_by_whoever_appends_next(memory: Place, clock: ManualClock) -> None:
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    txn = begun(ns, 1, flush=True, timeout_ms=1_000)
    other.snapshot()
    clock.advance(5_999)
    other.produce("orders", rows(2))
    assert other.transaction(txn.id).state == "OPEN", "the grace is not over"
    clock.advance(1_001)
    other.produce("orders", rows(3))
    assert (other.transaction(txn.id).state, other.transaction(txn.id).reason) == ("ABORTED", "timeout")


@pytest.mark.clause("P-205")
def test_who_appends_all_the_time_ends_what_is_overdue_too(memory: Place, clock: ManualClock) -> None:
    """Not every entry looks for it; what counts is the time since the last look, not since the last entry."""
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    txn = begun(other, 1, flush=True, timeout_ms=1_000)
    for number in range(14):
        ns.produce("orders", rows(number))
        clock.advance(500)
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == ("ABORTED", "timeout")


@pytest.mark.clause("P-64")
def test_the_end_of_an_overdue_transaction_survives_a_lost_race(memory: Place, clock: ManualClock) -> None:
    ns, store = memory.faulty(clock=clock)
    rival = memory.open(clock=ManualClock(0))
    ns.create_topic("orders", SCHEMA)
    txn = begun(rival, 1, flush=True, timeout_ms=1_000)
    ns.snapshot()
    clock.advance(10_000)
    store.script.append(lambda: rival.produce("orders", rows(7)))
    ns.produce("orders", rows(2))
    assert ns.transaction(txn.id).state == "ABORTED"


def test_an_answer_that_rests_on_an_overdue_end_is_in_the_log(memory: Place, clock: ManualClock) -> None:
    """Asking for the end of an overdue transaction logs it; the version that is told exists."""
    ns = memory.orders(clock=clock)
    other = memory.open(clock=clock)
    txn = begun(ns, 1, flush=True, timeout_ms=1_000)
    clock.advance(10_000)
    info = other.abort(txn.id)
    assert info.version <= other.snapshot().version
    assert other.transaction(txn.id).state == memory.open().transaction(txn.id).state == "ABORTED"
    assert memory.open()._connection.follower.state.outcomes[txn.id.number].version == info.version


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_caller_that_has_its_answer_does_not_wait_for_the_next_entry(pair: Any) -> None:
    """The next entry may take long: whoever rode along with this one goes at once."""
    ns, store, _ = pair
    begun, riding, held, rider_done = [threading.Event() for _ in range(4)]

    def hold_first() -> None:
        begun.set()
        wait_for(lambda: waiting(ns) >= 1)

    def hold_second() -> None:
        riding.set()
        wait_for(lambda: waiting(ns) >= 1)

    def hold_third() -> None:
        held.set()
        assert rider_done.wait(20), "the rider waits for an entry that is not its own"

    store.script.extend([hold_first, "ok", hold_second, "ok", hold_third, "ok"])

    def first() -> None:
        ns.produce("orders", rows(1))

    def rider() -> None:
        begun.wait(20)
        ns.produce("orders", rows(2))
        rider_done.set()

    def late() -> None:
        riding.wait(20)
        ns.produce("orders", rows(3))

    assert run_threads(first, rider, late, seconds=40) == [None, None, None]
    assert held.is_set(), "the third entry waited for the rider"
    assert read(ns) == [0, 1, 2, 3]
