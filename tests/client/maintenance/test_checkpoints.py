"""Checkpoints: the same state whichever way it was reached, made aside, raced, cut short."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.by_hand import compact
from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    begun,
    busy,
    from_zero,
    ids,
    raises,
    read,
    rows,
    run_threads,
)
from tests.faults import failing
from txnlog.client import checkpointer
from txnlog.common.limits import MAX_CHECKPOINT_RUNS
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    TransactionNotFound,
)
from txnlog.fold.state import TABLES, Batch, SegmentRecord, State
from txnlog.log import checkpoint_codec
from txnlog.store import Created, ForwardingStore, StoreCall
from txnlog.testing import ManualClock


def tables(state: State) -> dict[str, dict[Any, Any]]:
    return {name: dict(table) for name, table in state.as_tables().items()}


def hot(state: State) -> dict[str, dict[Any, Any]]:
    """What every client must hold alike; cold rows may lie in a checkpoint."""
    found = {name: table for name, table in tables(state).items() if name not in checkpoint_codec.COLD_KINDS}
    found["segments"] = {n: record for n, record in state.segments.items() if record.state == "pending"}
    return found


def cold(ns: Any) -> dict[str, Any]:
    """All that a client can look up, whether it is in memory or in runs."""
    follower = ns._connection.follower
    segments: dict[int, SegmentRecord] = {}
    removals: dict[int, int] = {}
    for topic in follower.state.topics:
        records, removed = follower.segments(topic)
        segments |= {record.number: record for record in records}
        removals |= removed
    return {"segments": segments, "removals": removals}


def check(ns: Any, place: Place, **options: Any) -> None:
    """Fold from zero, fold from the checkpoint and fold as it came are one state."""
    zero = from_zero(ns)
    fresh = place.open(**options)
    assert hot(zero) == hot(ns._connection.follower.state) == hot(fresh._connection.follower.state)
    for client in (ns, fresh):
        found = cold(client)
        assert found["segments"] == zero.segments
        assert found["removals"] == zero.removals
        for number, outcome in zero.outcomes.items():
            assert client._connection.follower.outcome(number) == outcome
        for batch in zero.batches.values():
            assert _batches(client, batch) == [batch]


def _batches(client: Any, batch: Batch) -> list[Batch]:
    last = batch.sequence + batch.rows - 1
    return client._connection.follower.batches(batch.producer, batch.topic, batch.partition, batch.sequence, last)


@pytest.mark.clause("P-27", "P-125", "P-128")
def test_every_way_to_a_state_gives_the_same(place: Place) -> None:
    ns = place.open()
    for seed in range(3):
        busy(ns, seed, steps=6)
        ns.checkpoint()
        check(ns, place)
    busy(ns, 3, steps=4)
    fresh = place.open()
    assert fresh._connection.follower.base is not None
    check(ns, place)
    check(fresh, place)


@pytest.mark.clause("P-125", "P-128")
def test_many_checkpoints_are_merged_and_nothing_is_lost(memory: Place) -> None:
    ns = memory.open()
    results = []
    for seed in range(MAX_CHECKPOINT_RUNS + 4):
        busy(ns, seed, steps=3)
        results.append(ns.produce("audit", rows(seed)))
        ns.checkpoint()
        assert (
            max(len(ns._connection.follower.base.runs(kind)) for kind in checkpoint_codec.COLD_KINDS)
            <= MAX_CHECKPOINT_RUNS
        )
    ns.produce("audit", rows(99))
    check(ns, memory)
    fresh = memory.open()
    for result in results:
        info = fresh.transaction(result.txn_id)
        assert (info.state, info.version) == ("COMMITTED", result.version)


@pytest.mark.clause("P-66", "P-125")
def test_outcomes_are_forgotten_after_their_retention_only(memory: Place, clock: ManualClock) -> None:
    ns = memory.orders(clock=clock)
    old = ns.produce("orders", rows(0))
    open_one = ns.begin(timeout_ms=900_000)
    for number in range(MAX_CHECKPOINT_RUNS + 2):
        clock.advance(24 * 3_600_000)
        ns.produce("orders", rows(number))
        ns.checkpoint()
        age_days = number + 1
        if age_days <= 7:
            assert ns.transaction(old.txn_id).state == "COMMITTED"
    assert ns.transaction(old.txn_id).state == "UNKNOWN"
    with raises(TransactionNotFound, match="remembered"):
        ns.abort(old.txn_id)
    assert len(read(ns)) == MAX_CHECKPOINT_RUNS + 3, "only the outcome is forgotten"
    open_one.produce("orders", rows(7))
    open_one.commit()


@pytest.mark.clause("P-55", "P-62")
def test_ends_and_offsets_are_found_again_after_a_checkpoint(ns: Any, place: Place) -> None:
    ns.create_topic("audit", SCHEMA)
    with ns.begin() as shared:
        shared.produce("orders", rows(1, 2), partition=1)
        shared.produce("audit", rows(1))
    owned = begun(ns, 3, partition=1, flush=True)
    owned.produce("orders", rows(4), partition=0)
    owned.commit()
    aborted = begun(ns, 5, flush=True)
    aborted.abort()
    ns.checkpoint()
    ns.produce("orders", rows(6))
    for client in (ns, place.open()):
        for txn in (shared, owned):
            outcome = client._connection.follower.outcome(txn.id.number)
            assert client._connection.committed(outcome) == txn.result
            assert outcome.digest
        info = client.transaction(aborted.id)
        assert (info.state, info.reason) == ("ABORTED", "user")
        assert client.abort(aborted.id) == info
        assert client.abort(shared.id).state == "COMMITTED"
    with raises(InvalidTransactionState):
        shared.abort()


@pytest.mark.clause("P-55", "P-125")
def test_the_end_of_a_replacement_is_the_same_after_a_checkpoint(ns: Any) -> None:
    old = [ns.produce("orders", rows(number), partition=0) for number in range(2)]
    compact(ns, "orders", [item.number for item in ns.snapshot().plan("orders").segments], 0)
    number, known = max(ns._connection.follower.state.outcomes.items())
    assert number not in {item.txn_id.number for item in old}
    ns.checkpoint()
    assert number not in ns._connection.follower.state.outcomes
    assert ns._connection.outcome(number) == known


@pytest.mark.clause("P-115", "P-126")
def test_a_fresh_process_reads_the_checkpoint_and_the_tail(memory: Place) -> None:
    ns = memory.orders()
    for number in range(300):
        ns.produce("orders", rows(number))
    ns.checkpoint()
    for number in range(5):
        ns.produce("orders", rows(1_000 + number))
    fresh, counting = memory.counted(mode="r")
    assert read(fresh) == [*range(300), *range(1_000, 1_005)]
    counts = counting.counts()
    # Finding the tail by doubling and bisection, then five entries; not three hundred.
    assert counts["get", "entry"] <= 4 + 2 * 9 + 5
    assert counts["get", "checkpoint"] <= 1 + 1 + 2
    assert ("list", "entry") not in counts


@pytest.mark.clause("P-129")
def test_checkpoints_are_made_by_themselves_next_to_the_commits(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "CHECKPOINT_ENTRIES", 20)
    monkeypatch.setattr(checkpointer, "_SPREAD_ENTRIES", 0)
    ns = memory.orders()
    for number in range(100):
        ns.produce("orders", rows(number))
        ns._connection.session.checkpointer.close()
    assert ns._connection.follower.base is not None
    assert len(ns._connection.follower.state.outcomes) < 60, "what a checkpoint holds is let go of"
    assert {info.key for info in memory.store().list("sales/_log/checkpoints/0")}
    check(ns, memory)


@pytest.mark.clause("P-129")
def test_a_long_tail_in_bytes_is_checkpointed_too(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "CHECKPOINT_TAIL_BYTES", 4_000)
    ns = memory.orders()
    while not ns._connection.session.checkpointer.due():
        ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    ns.close()
    assert set(read(memory.open(mode="r"))) == {1, 2}
    assert list(memory.store().list("sales/_log/checkpoints/0"))


@pytest.mark.clause("P-129")
def test_a_tail_is_due_once_folding_it_costs_what_the_checkpoint_below_it_does(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer, "_LEAST_TAIL_BYTES", 2_000)
    monkeypatch.setattr(checkpointer, "_SPREAD", 0)
    monkeypatch.setattr(checkpointer.Checkpointer, "after_append", lambda _self: None)
    ns = memory.orders()

    def bytes_until_due() -> int:
        before = ns._connection.follower.applied_bytes
        while not ns._connection.session.checkpointer.due():
            ns.produce("orders", rows(1))
        return int(ns._connection.follower.applied_bytes - before)

    assert bytes_until_due() < 3_000
    for number in range(200):
        ns.producer(f"loader-{number}")
    ns.checkpoint()
    assert bytes_until_due() > 200 * checkpointer._TAIL_BYTES_PER_ROW, "a big checkpoint is not made as often"
    monkeypatch.setattr(checkpointer, "CHECKPOINT_TAIL_BYTES", 1_000)
    ns.checkpoint()
    assert bytes_until_due() < 2_000, "however big it is"


@pytest.mark.clause("P-129")
def test_a_checkpoint_of_another_client_is_as_good_as_ones_own(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "CHECKPOINT_TAIL_BYTES", 4_000)
    monkeypatch.setattr(checkpointer.Checkpointer, "after_append", lambda _self: None)
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    assert not ns._connection.session.checkpointer.due()
    while not ns._connection.session.checkpointer.due():
        ns.produce("orders", rows(1))
    other.checkpoint()
    other.produce("orders", rows(2))
    assert ns._connection.session.checkpointer.due(), "nothing told this client of it yet"
    ns.snapshot()
    assert not ns._connection.session.checkpointer.due()
    while not ns._connection.session.checkpointer.due():
        ns.produce("orders", rows(3))


@pytest.mark.clause("P-125", "P-128")
def test_a_long_run_is_not_written_again_for_a_few_new_rows(memory: Place) -> None:
    ns = memory.orders()
    results = [ns.produce("orders", rows(number)) for number in range(100)]
    ns.checkpoint()
    (long,) = ns._connection.follower.base.runs("outcomes")
    written = 0
    for number in range(60):
        results.append(ns.produce("orders", rows(100 + number)))
        ns.checkpoint()
        runs = ns._connection.follower.base.runs("outcomes")
        assert runs[0] == long
        assert len(runs) <= MAX_CHECKPOINT_RUNS
        written += runs[-1].rows
    assert written < 60 * 6, "each row a few times, not once a checkpoint"
    while ns._connection.follower.base.runs("outcomes")[0] == long:
        assert len(results) < 500, "until there are as many"
        results.append(ns.produce("orders", rows(len(results))))
        ns.checkpoint()
    fresh = memory.open(mode="r")
    assert [fresh.transaction(item.txn_id).version for item in results] == [item.version for item in results]
    assert read(fresh) == list(range(len(results)))


@pytest.mark.clause("P-120", "P-129")
@pytest.mark.parametrize("error", [StoreError("disk full"), ZeroDivisionError("a bug"), CorruptionError("bytes")])
def test_a_checkpoint_that_fails_fails_no_caller(
    memory: Place, monkeypatch: pytest.MonkeyPatch, caplog: Any, error: Exception
) -> None:
    monkeypatch.setattr(checkpointer, "CHECKPOINT_ENTRIES", 3)
    monkeypatch.setattr(checkpointer, "_SPREAD_ENTRIES", 0)
    ns = memory.orders(wrap=failing(lambda: error, StoreCall.PUT, where=lambda key: "checkpoints" in key))
    for number in range(12):
        ns.produce("orders", rows(number))
    ns.close()
    assert "checkpoint" in caplog.text
    assert read(memory.open()) == list(range(12))


@pytest.mark.clause("P-126", "P-127")
def test_a_crash_before_the_manifest_leaves_the_log_as_it_was(memory: Place) -> None:
    ns = memory.open()
    busy(ns, 1)
    other = memory.open(wrap=failing(KeyboardInterrupt, StoreCall.CREATE, where=lambda key: "checkpoints" in key))
    with pytest.raises(KeyboardInterrupt):
        other.checkpoint()
    assert list(memory.store().list("sales/_log/checkpoints/parts/")), "parts are there"
    check(ns, memory)
    ns.produce("orders", rows(1))
    assert ns._connection.follower.log.entry(ns.snapshot().version).header.checkpoint is None
    ns.checkpoint()
    ns.produce("orders", rows(2))
    check(ns, memory)


@pytest.mark.clause("P-126")
@pytest.mark.parametrize("fate", ["lost", "gone"])
def test_a_manifest_whose_answer_was_lost(memory: Place, fate: str) -> None:
    ns = memory.open()
    busy(ns, 1)

    class Lossy(ForwardingStore):
        def create(self, key: str, data: bytes) -> Created:
            if "checkpoints" not in key:
                return super().create(key, data)
            if fate == "lost":
                super().create(key, data)
            return Created.UNKNOWN

    other = memory.open(wrap=Lossy)
    if fate == "lost":
        assert other.checkpoint() == other.snapshot().version
    else:
        with raises(OutcomeUnknown, match="checkpoints/", durable=Durable.MAYBE) as caught:
            other.checkpoint()
        assert "no commit depends on it" in caught.value.advice
        assert other._connection.follower.base is None
    other.produce("orders", rows(1))
    check(ns, memory)


def test_two_who_make_a_checkpoint_at_once_agree(memory: Place) -> None:
    one, two = memory.open(), memory.open()
    busy(one, 1)
    two.snapshot()
    versions = run_threads(one.checkpoint, two.checkpoint, one.checkpoint, two.checkpoint)
    assert len(set(versions)) == 1
    assert one._connection.follower.base == two._connection.follower.base is not None
    busy(two, 2, steps=3)
    one.snapshot()
    check(one, memory)
    check(two, memory)


def test_a_client_takes_over_the_checkpoint_of_another(memory: Place) -> None:
    one, two = memory.open(), memory.open()
    busy(one, 1)
    one.checkpoint()
    one.produce("orders", rows(1))
    two.snapshot()
    assert two._connection.follower.base is None
    busy(two, 2, steps=2)
    two.checkpoint()
    base: Any = two._connection.follower.base
    assert len(base.runs("outcomes")) == 2, "it added a run to the other's"
    one.snapshot()
    check(one, memory)
    check(two, memory)


def test_a_checkpoint_without_news_is_the_same_one(ns: Any) -> None:
    version = ns.checkpoint()
    assert ns.checkpoint() == version
    assert len(list(ns._connection.store.list("_log/checkpoints/0"))) == 1


def test_commits_and_checkpoints_at_once(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns = memory.orders()
    stop = threading.Event()

    def commit() -> None:
        try:
            for number in range(60):
                txn = begun(ns, number, flush=number % 2 == 1)
                txn.commit()
                assert txn.commit().txn_id == txn.id
        finally:
            stop.set()

    def make() -> None:
        while not stop.is_set():
            ns.checkpoint()

    assert run_threads(commit, make) == [None, None]
    assert read(ns) == list(range(60))
    check(ns, memory)


def test_time_travel_works_behind_a_checkpoint(memory: Place) -> None:
    ns = memory.orders()
    versions = [ns.produce("orders", rows(number)).version for number in range(6)]
    ns.checkpoint()
    ns.produce("orders", rows(6))
    fresh = memory.open()
    for count, version in enumerate(versions, start=1):
        assert ids(fresh.snapshot(version=version).read("orders")) == list(range(count))
        assert fresh.snapshot(version=version).end_offsets("orders") == {0: count}
    assert set(TABLES) == set(tables(State()))


def test_a_faulty_read_while_a_checkpoint_is_made_harms_nothing(memory: Place) -> None:
    ns, store = memory.faulty()
    assert isinstance(store, FaultyStore)
    busy(ns, 1)
    store.reads.append("broken")
    with pytest.raises(StoreError):
        ns.checkpoint()
    ns.checkpoint()
    check(ns, memory)
