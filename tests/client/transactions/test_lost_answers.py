"""A call that ends without an answer: what the transaction may do next, and what must not come of it.

Each test is one way in which an answer is lost at one moment: what the processes of tests/crash meet by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, begun, cursor, holding, raises, read, rows
from txnlog import Transaction
from txnlog.errors import (
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    TransactionAborted,
    TransactionConflict,
    TransactionTimedOut,
)
from txnlog.format.keys import kind_of
from txnlog.testing import ManualClock


@pytest.fixture
def faulty(memory: Place, clock: ManualClock) -> tuple[Any, FaultyStore]:
    """A client with one message in ``orders``, that gives up after two attempts, and its store."""
    ns, store = memory.faulty(clock=clock)
    ns._connection.appender.create_attempts = 2
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(0))
    return ns, store


@pytest.fixture
def ns(faulty: tuple[Any, FaultyStore]) -> Any:
    return faulty[0]


@pytest.fixture
def store(faulty: tuple[Any, FaultyStore]) -> FaultyStore:
    return faulty[1]


def lose(store: FaultyStore, fate: str) -> None:
    """From now on nobody is told what became of an entry, nor can look."""
    store.forever, store.reads_forever = fate, "broken"


losing = pytest.mark.parametrize("fate", ["broken-after", "broken"], ids=["applied", "dropped"])


@losing
def test_an_abort_of_a_commit_of_unknown_outcome_reports_its_true_outcome(
    ns: Any, store: FaultyStore, fate: str
) -> None:
    txn = begun(ns, 1)
    lose(store, fate)
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    # The entry that was sent goes to its slot again before anything else does: with the commit in it.
    with pytest.raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert txn.state == ns.transaction(txn.id).state == ns.abort(txn.id).state == "COMMITTED"
    assert read(ns) == [0, 1]


@pytest.mark.parametrize("call", ["commit", "abort"])
def test_a_commit_that_only_a_checkpoint_remembers_is_answered(ns: Any, store: FaultyStore, call: str) -> None:
    txn = begun(ns, 1)
    lose(store, "broken-after")
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    if call == "abort":
        with pytest.raises(InvalidTransactionState, match="was committed"):
            txn.abort()
    result = txn.commit()
    assert (txn.state, result.offsets, result.txn_id) == ("COMMITTED", {("orders", 0): range(1, 2)}, txn.id)
    assert read(ns) == [0, 1, 2]


@losing
@pytest.mark.parametrize("then", ["commit", "flush", "flush more"])
@pytest.mark.parametrize("cumulative", [False, True])
def test_a_commit_after_a_flush_of_unknown_outcome_brings_every_row_once(
    ns: Any, store: FaultyStore, fate: str, then: str, cumulative: bool
) -> None:
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, consumer.receive(), cumulative=cumulative)
    txn.produce("audit", rows(1))
    lose(store, fate)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    if then == "flush more":
        txn.produce("audit", rows(2))
    if then != "commit":
        txn.flush()
    txn.commit()
    assert read(ns, "audit") == ([1, 2] if then == "flush more" else [1])
    assert cursor(ns).cursor == 1


@losing
def test_an_acknowledgement_on_a_shared_subscription_of_unknown_outcome_may_be_repeated(
    ns: Any, store: FaultyStore, fate: str
) -> None:
    ns.create_subscription("orders", "pool", type="shared")
    messages = ns.consumer("orders", "pool").receive()
    txn = ns.begin()
    lose(store, fate)
    with pytest.raises(OutcomeUnknown):
        txn.acknowledge(messages)
    store.heal()
    txn.acknowledge(messages)
    with pytest.raises(TransactionConflict):
        txn.acknowledge(messages)
    txn.abort()
    with ns.begin() as other:
        other.acknowledge(ns.consumer("orders", "pool").receive())
    assert ns.subscription("orders", "pool").cursors[0].cursor == 1


@losing
def test_an_abort_after_a_flush_of_unknown_outcome_is_in_the_log(ns: Any, store: FaultyStore, fate: str) -> None:
    consumer = ns.consumer("orders", "billing")
    txn = holding(ns, consumer.receive())
    lose(store, fate)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    txn.abort()
    assert ns.transaction(txn.id).state == "ABORTED"
    assert len(consumer.receive()) == 1


@pytest.mark.parametrize("fate", ["broken", "dropped"])
def test_a_checkpoint_that_does_not_arrive_is_made_again(ns: Any, store: FaultyStore, fate: str) -> None:
    store.manifests.extend([fate] * 20)
    with raises(OutcomeUnknown, match="checkpoints/", durable=Durable.MAYBE):
        ns.checkpoint()
    store.heal()
    assert ns.checkpoint() == ns.snapshot().version


@pytest.mark.parametrize("again", [Transaction.flush, Transaction.commit], ids=["flush", "commit"])
def test_rows_whose_files_were_written_half_way_are_not_written_twice(
    ns: Any, store: FaultyStore, again: Callable[[Transaction], object]
) -> None:
    txn = begun(ns, 1)
    txn.produce("audit", rows(2))
    store.puts.extend(["ok", "broken"])
    with pytest.raises(StoreError):
        txn.flush()
    store.heal()
    again(txn)
    txn.commit()
    assert read(ns) == [0, 1]
    assert read(ns, "audit") == [2]


@pytest.mark.parametrize("what", ["work", "abort", "commit"])
def test_after_a_flush_of_unknown_outcome_and_a_night_in_which_its_block_was_closed_it_is_too_late(
    ns: Any, store: FaultyStore, memory: Place, clock: ManualClock, what: str
) -> None:
    txn = begun(ns, 1)
    lose(store, "broken")
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    clock.advance(2 * 3_600_000)
    assert memory.open(clock=clock).vacuum(grace_ms=3_600_000).closed_blocks == 1
    if what == "abort":
        txn.abort()
    else:
        for _ in range(2):
            with pytest.raises(TransactionTimedOut):
                txn.commit() if what == "commit" else txn.produce("orders", rows(2))
    assert txn.state == "ABORTED"
    assert read(ns) == [0]


# --- ends that only a checkpoint remembers ----------------------------------------------------------------------------


def forget_all(ns: Any) -> None:
    """A checkpoint takes what has ended out of memory."""
    ns._connection.follower.refresh()
    ns.checkpoint()


@pytest.mark.clause("P-28", "P-55")
@pytest.mark.parametrize("call", ["flush", "prepare"])
def test_an_end_that_only_a_checkpoint_remembers_is_reported_by_every_call(
    ns: Any, memory: Place, clock: ManualClock, call: str
) -> None:
    txn = begun(ns, 1, flush=True)
    memory.open(clock=clock).abort(txn.id, by="ada", why="hanging")
    forget_all(ns)
    txn.produce("orders", rows(2))
    with pytest.raises(TransactionAborted, match="was aborted at version"):
        getattr(txn, call)()
    assert txn.state == "ABORTED"


@pytest.mark.clause("P-28")
def test_transact_runs_a_function_again_whose_end_only_a_checkpoint_remembers(
    ns: Any, memory: Place, clock: ManualClock
) -> None:
    attempts: list[Transaction] = []

    def work(txn: Transaction) -> None:
        attempts.append(txn)
        txn.produce("audit", rows(len(attempts)))
        txn.flush()
        if len(attempts) == 1:
            memory.open(clock=clock).abort(txn.id, by="ada", why="hanging")
            forget_all(ns)
        txn.produce("audit", rows(10 + len(attempts)))
        txn.flush()

    ns.transact(work)
    assert read(ns, "audit") == [2, 12]


def test_the_state_of_a_prepared_one_does_not_go_back_when_its_end_is_a_checkpoints(
    ns: Any, memory: Place, clock: ManualClock
) -> None:
    txn = begun(ns, 1, topic="audit")
    memory.open(clock=clock).complete(txn.prepare(), commit=True)
    ns._connection.follower.refresh()
    assert txn.state == "COMMITTED"
    forget_all(ns)
    assert txn.state == "COMMITTED"
    assert txn.commit().offsets == {("audit", 0): range(1)}


@pytest.mark.parametrize("call", ["commit", "commit_async", "prepare"])
@pytest.mark.parametrize("fails", ["the store", "the handle"])
def test_a_call_of_unknown_outcome_that_is_repeated_and_not_sent_does_not_say_that_nothing_was_written(
    ns: Any, store: FaultyStore, memory: Place, clock: ManualClock, call: str, fails: str
) -> None:
    """Of the second call nothing was sent, of the first it was."""
    txn = begun(ns, 1)

    def run() -> None:
        txn.commit_async().result(30) if call == "commit_async" else getattr(txn, call)()

    lose(store, "broken")
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        run()
    store.heal()
    if fails == "the store":
        memory.open(clock=clock).produce("orders", rows(9))  # in its slot: it is decided anew, and refused
        store.script.extend(["ok", "refused"])
        store.puts.append("refused")
    else:
        ns.close()
    for again in (run, run, txn.abort) if fails == "the handle" else (run,):
        with raises(StoreError if fails == "the store" else InvalidTransactionState, durable=Durable.MAYBE):
            again()
    if fails == "the store":
        store.heal()
        run()
        assert ns.transaction(txn.id).state == txn.state == ("PREPARED" if call == "prepare" else "COMMITTED")


@pytest.mark.parametrize("background", [False, True])
def test_what_is_said_of_a_commit_of_unknown_outcome_is_not_said_to_others_of_the_same_error(
    ns: Any, store: FaultyStore, background: bool
) -> None:
    """Everybody behind a close is told one error."""
    first, other = ns.begin(), ns.begin()
    for number, txn in enumerate((first, other)):
        txn.produce("orders", rows(number))
    lose(store, "broken")
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        first.commit()
    store.heal()
    ns._connection.appender.close(InvalidTransactionState("closed meanwhile"))
    for txn, durable in ((first, Durable.MAYBE), (other, Durable.NOTHING)):
        with raises(InvalidTransactionState, match="closed meanwhile", durable=durable):
            txn.commit_async().result(30) if background else txn.commit()


def test_a_commit_of_unknown_outcome_that_is_repeated_names_what_was_dropped(
    faulty: tuple[Any, FaultyStore], memory: Place, caplog: pytest.LogCaptureFixture
) -> None:
    ns, store = faulty
    txn = begun(ns, 1, topic="audit")
    txn.produce("orders", rows(3))
    memory.open().drop_topic("audit")
    ns._connection.follower.refresh()
    store.script.append("broken-after")
    store.forever = store.reads_forever = "broken"
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    with caplog.at_level("WARNING", "txnlog.transaction"):
        result = txn.commit()
    assert (result.offsets, result.dropped) == ({("orders", 0): range(1, 2)}, ("audit",))
    assert "for what was dropped meanwhile were left out: audit." in caplog.text


@pytest.mark.clause("P-62", "P-89", "P-216")
@pytest.mark.parametrize("flushed", ["never", "before", "afterwards", "before, and a checkpoint has its end"])
def test_a_commit_of_unknown_outcome_that_is_repeated_names_what_was_dropped_before_it(
    ns: Any, store: FaultyStore, memory: Place, clock: ManualClock, flushed: str
) -> None:
    """And not what is dropped between the two calls."""
    other = memory.open(clock=clock)
    txn = ns.begin()
    for name in ("billing", "shipping"):
        txn.acknowledge(ns.consumer("orders", name).receive(timeout_ms=0))
    txn.produce("audit", rows(1))
    txn.produce("orders", rows(2))
    if flushed.startswith("before"):
        txn.flush()
    other.drop_subscription("orders", "billing")
    other.drop_topic("audit")
    if flushed == "afterwards":
        txn.flush()
    ns._connection.follower.refresh()
    lose(store, "broken-after")
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    assert other.transaction(txn.id).state == "COMMITTED"
    if "checkpoint" in flushed:
        forget_all(ns)
        assert txn.id.number not in ns._connection.follower.state.outcomes
    other.drop_subscription("orders", "shipping")
    other.create_topic("audit", SCHEMA)
    assert txn.commit().dropped == ("audit", "orders/billing")
    assert txn.commit().dropped == txn.result.dropped


def in_doubt_but_there(ns: Any, store: FaultyStore) -> Any:
    """A transaction whose commit is in the log, and nobody here knows."""
    txn = begun(ns, 1, timeout_ms=None)
    store.script.extend(["broken-after", "broken"])
    store.reads.extend(["broken", "broken"])
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    return txn


@pytest.mark.clause("P-62", "P-118")
def test_a_commit_that_the_log_shows_is_reported_whatever_fails(
    ns: Any, store: FaultyStore, clock: ManualClock
) -> None:
    """Another call settled it. Were its owner told that nothing was written, it would do it again."""
    txn = in_doubt_but_there(ns, store)
    ns.produce("orders", rows(2))
    clock.advance(600_000)
    store.reads_forever = "broken"  # after a pause the log is looked at before anything is sent
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    store.heal()
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-62", "P-118")
def test_a_commit_that_the_log_shows_is_reported_next_to_a_call_of_unknown_outcome(ns: Any, store: FaultyStore) -> None:
    txn = in_doubt_but_there(ns, store)
    store.script.extend(["ok", "broken", "broken", "broken", "broken"])
    store.reads.extend(["ok", "broken", "broken", "broken", "broken"])
    with pytest.raises(OutcomeUnknown):
        ns.produce("orders", rows(2))  # this settles it, and is in doubt itself
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    store.heal()


def test_transact_reports_what_it_committed_where_the_store_fails_at_the_second_try(
    ns: Any, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its two commits another thread's call settles the entry."""
    commit = Transaction.commit

    def broken() -> None:
        raise StoreError("connection dropped", durable=Durable.MAYBE)

    def committing(txn: Transaction) -> Any:
        monkeypatch.setattr(Transaction, "commit", commit)
        store.script.extend(["broken-after", "broken"])
        store.reads.extend(["broken", "broken"])
        try:
            return commit(txn)
        finally:
            ns.produce("orders", rows(2))
            monkeypatch.setattr(ns._connection.appender, "_before_append", broken)

    monkeypatch.setattr(Transaction, "commit", committing)
    ns.transact(lambda txn: txn.produce("orders", rows(1)))
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-118")
def test_a_batch_of_unknown_outcome_whose_end_cannot_be_read_stays_so(
    memory: Place, ns: Any, store: FaultyStore
) -> None:
    """It is skipped as one that was committed before; only the checkpoint knows that this was itself."""
    txn = begun(ns, 1, txn_app_id="nightly", txn_version=1)
    lose(store, "broken-after")
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    ns.produce("audit", rows(2))
    other = memory.open(clock=ns._connection.runtime.clock)
    other.checkpoint()
    other.produce("audit", rows(3))
    ns.produce("audit", rows(4))
    ns._connection.follower.adopt_checkpoint()
    get = store.get

    def without_parts(key: str) -> bytes:
        if kind_of(key) == "checkpoint":
            raise StoreError("read timed out")
        return get(key)

    store.get = without_parts  # type: ignore[method-assign]
    with pytest.raises(StoreError) as failure:
        txn.commit()
    assert failure.value.durable is Durable.MAYBE
    store.get = get  # type: ignore[method-assign]
    assert not txn.commit().skipped
    assert read(ns) == [0, 1]
