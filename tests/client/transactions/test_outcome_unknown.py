"""Entries whose answer was lost: one definite end, nothing doubled, and no false answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    Unchanged,
    begun,
    committed,
    holding,
    is_entry,
    raises,
    read,
    rows,
    run_threads,
)
from txnlog.errors import (
    OR_ABORT,
    ConsumerFenced,
    CorruptionError,
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TopicExists,
    TransactionAborted,
    TransactionConflict,
)
from txnlog.log import slots


@pytest.fixture
def faulty(memory: Place) -> tuple[Any, FaultyStore]:
    """A namespace with topics and numbers at hand, on a store that misbehaves when told."""
    ns, store = memory.faulty_orders(0, audit=True)
    store.calls.clear()
    return ns, store


ONE_FAULT = ["lost", "dropped", "late", "twice", "broken", "broken-after"]


@pytest.mark.clause("P-24", "P-117")
@pytest.mark.parametrize("fault", ONE_FAULT)
def test_a_commit_survives_one_bad_answer(faulty: Any, fault: str) -> None:
    ns, store = faulty
    store.script.extend([fault])
    txn = begun(ns, 1, 2)
    txn.produce("audit", rows(3))
    result = txn.commit()
    store.land()
    assert result.offsets == {("orders", 0): range(1, 3), ("audit", 0): range(1)}
    assert (read(ns), read(ns, "audit")) == ([0, 1, 2], [3])
    assert ns.snapshot().version == result.version


@pytest.mark.clause("P-24")
def test_the_same_bytes_are_sent_again(faulty: Any) -> None:
    ns, store = faulty
    sent: list[bytes] = []
    inner = store.inner.create

    def create(key: str, data: bytes) -> Any:
        sent.append(data)
        return inner(key, data)

    store.inner.create = create
    store.script.extend(["twice"])
    store.forever = None
    store.script.appendleft("late")
    ns.produce("orders", rows(1))
    store.land()
    assert len(sent) == 3, "the second attempt, and both late ones"
    assert len(set(sent)) == 1


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("fate", ["dropped", "late", "broken-after"])
def test_twelve_failed_puts_are_reported_as_unknown_with_the_transactions(faulty: Any, fate: str) -> None:
    ns, store = faulty
    store.forever = fate if fate != "broken-after" else "broken"
    if fate == "broken-after":
        store.script.append("broken-after")
        store.reads.extend(["broken"] * 12)
    txn = begun(ns, 1)
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.commit()
    assert caught.value.txn_ids == (str(txn.id),)
    assert [call for call, _ in store.calls].count("create") == 12
    assert sum(ns._connection.runtime.slept_ms) < 70_000
    assert txn.state == "OPEN"
    with raises(InvalidTransactionState, match="outcome of the commit of .* is unknown"):
        txn.produce("orders", rows(2))
    store.forever = None
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    store.land()
    assert read(ns) == [0, 1]


@pytest.mark.clause("P-62")
@pytest.mark.parametrize("call", ["commit", "a sequence", "no sequence", "acknowledgement"])
def test_a_call_of_unknown_outcome_names_its_transaction_and_says_what_to_do_with_such_a_call(
    faulty: Any, call: str
) -> None:
    ns, store = faulty
    consumer, producer, txn = ns.consumer("orders", "billing"), ns.producer("loader"), ns.begin()
    messages = consumer.receive(timeout_ms=0)
    txn.produce("orders", rows(1))
    calls = {
        "commit": (txn.commit, "call commit() again, or ns.abort"),
        "a sequence": (
            lambda: producer.produce("orders", rows(1), partition=0, sequence=0),
            "make the same call again, with the same sequence, or ns.abort",
        ),
        "no sequence": (lambda: ns.produce("orders", rows(1)), "do not produce the rows again before you looked"),
        "acknowledgement": (lambda: consumer.acknowledge(messages), "make the same call again, or ns.abort"),
    }
    run, advice = calls[call]
    store.forever = "dropped"
    with raises(OutcomeUnknown, match=re.escape(advice), durable=Durable.MAYBE) as caught:
        run()
    store.forever = None
    (txn_id,) = caught.value.txn_ids
    assert f"of the transaction {txn_id}" in str(caught.value)
    if call != "no sequence":
        run()
    assert ns.abort(txn_id).state == "COMMITTED"
    assert read(ns) == ([0] if call == "acknowledgement" else [0, 1])


@pytest.mark.parametrize("fate", ["dropped", "broken-after"])
@pytest.mark.parametrize("call", ["flush", "acknowledge", "abort", "abort by id"])
def test_a_call_of_unknown_outcome_that_commits_nothing_is_not_advised_to_commit(
    faulty: Any, memory: Place, call: str, fate: str
) -> None:
    """Who wants an abort, and follows advice to commit, would have the opposite."""
    ns, store = faulty
    ns.create_subscription("orders", "pool", type="shared")
    messages, txn = ns.consumer("orders", "pool").receive(timeout_ms=0), ns.begin()
    txn.produce("orders", rows(1))
    calls: dict[str, Callable[[], object]] = {
        "flush": txn.flush,
        "acknowledge": lambda: txn.acknowledge(messages),
        "abort": txn.abort,
        "abort by id": lambda: ns.abort(txn.id),
    }
    if "abort" in call:
        txn.flush()
    ns._connection.appender.create_attempts = 1
    store.forever, store.reads_forever = fate, "broken"
    store.reads.extend(["ok"] if call == "abort by id" else [])  # it looks first
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        calls[call]()
    assert caught.value.advice == f"make the same call again, {OR_ABORT}"
    assert caught.value.txn_ids == (str(txn.id),)
    store.heal()
    memory.open().produce("orders", rows(9))
    calls[call]()
    assert ns.transaction(txn.id).state == ("ABORTED" if "abort" in call else "OPEN")
    assert read(ns) == [0, 9]


@pytest.mark.parametrize("call", ["drop a topic", "drop a subscription", "fence", "forget", "seek"])
def test_what_would_undo_the_work_of_others_is_not_advised_to_be_done_again(faulty: Any, call: str) -> None:
    """By the time of a second call another one may have the name: it would be dropped, fenced, forgotten."""
    ns, store = faulty
    ns.producer("loader")
    ns.create_subscription("orders", "letters")
    consumer = ns.consumer("orders", "billing")
    calls: dict[str, tuple[Callable[[], object], str]] = {
        "drop a topic": (lambda: ns.drop_topic("audit"), "look whether it was done: ns.topics();"),
        "drop a subscription": (
            lambda: ns.drop_subscription("orders", "letters"),
            "look whether it was done: ns.subscriptions(topic);",
        ),
        "fence": (lambda: ns.fence("loader"), "look for a newer producer with this name before"),
        "forget": (lambda: ns.forget_app("job"), "look whether it was done: ns.last_txn_version(txn_app_id)"),
        "seek": (lambda: consumer.seek("earliest"), "open another consumer, and look where the subscription stands"),
    }
    committed(ns, 1, txn_app_id="job", txn_version=1)
    run, advice = calls[call]
    ns._connection.appender.create_attempts = 1
    store.script.extend([lambda: store.reads.append("broken"), "broken-after"])
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        run()
    assert caught.value.advice.startswith(advice)
    store.heal()
    if call == "seek":
        with raises(ConsumerFenced):
            run()


@pytest.mark.clause("P-55", "P-57", "P-65", "P-118")
@pytest.mark.parametrize("lands", [False, True])
def test_an_abort_from_another_client_gives_one_final_answer(faulty: Any, memory: Place, lands: bool) -> None:
    ns, store = faulty
    store.forever = "late"
    txn = begun(ns, 1)
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.commit()
    store.forever = None
    other = memory.open()
    if lands:
        store.land()
    info = other.abort(txn.id)
    store.land()
    assert info.state == ("COMMITTED" if lands else "ABORTED")
    if lands:
        assert txn.commit().version == info.version
    else:
        with raises(TransactionAborted, match="admin"):
            txn.commit()
        with raises(TransactionAborted):
            txn.commit()
    assert other.transaction(txn.id).state == info.state
    with Unchanged(memory):
        assert other.abort(txn.id) == other.abort(str(txn.id)) == info
    assert read(ns) == read(other) == ([0, 1] if lands else [0])


@pytest.mark.clause("P-116", "P-117")
def test_a_rival_who_takes_the_slot_of_unknown_outcome_settles_it(faulty: Any, memory: Place) -> None:
    ns, store = faulty
    rival = memory.open()
    store.forever = "late"
    txn = begun(ns, 1)
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.commit()
    store.forever = None
    rival.produce("orders", rows(9))
    store.land()
    assert txn.commit().offsets == {("orders", 0): range(2, 3)}
    assert read(ns) == read(rival) == [0, 9, 1]


@pytest.mark.clause("P-118")
def test_nothing_else_is_sent_while_an_entry_is_unknown(faulty: Any) -> None:
    ns, store = faulty
    store.forever = "dropped"
    txn = begun(ns, 1)
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.commit()
    slots = {key for call, key in store.calls if call == "create"}
    later = begun(ns, 2)
    with raises(RetriableError, match="still unknown"):
        later.commit()
    assert {key for call, key in store.calls if call == "create"} == slots
    assert later.state == "OPEN"
    store.forever = None
    later.commit()
    txn.commit()
    assert sorted(read(ns)) == [0, 1, 2]


@pytest.mark.clause("P-118")
def test_a_group_of_unknown_outcome_reports_to_each_caller_its_own_transaction(faulty: Any) -> None:
    ns, store = faulty
    transactions = [ns.begin() for _ in range(4)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number + 1))
    store.forever = "late"
    futures = [txn.commit_async() for txn in transactions]
    errors = [future.exception(30) for future in futures]
    told = {
        str(txn.id): error.txn_ids
        for txn, error in zip(transactions, errors, strict=True)
        if isinstance(error, OutcomeUnknown)
    }
    assert told, "the first ones were sent"
    assert all(found == (own,) for own, found in told.items())
    assert all(isinstance(error, RetriableError) for error in errors)
    assert len({id(error) for error in errors}) == 4, "an error of its own for each"
    store.forever = None
    for txn in transactions:
        txn.commit()
    store.land()
    assert sorted(read(ns)) == [0, 1, 2, 3, 4]


def test_a_reservation_of_unknown_outcome_that_came_true_gives_its_numbers(memory: Place) -> None:
    ns, store = memory.faulty()
    store.script.extend(["broken-after"])
    store.reads.extend(["broken"] * 12)
    store.forever = "broken"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        ns.create_topic("orders", SCHEMA)
    store.forever = None
    first = ns.begin()
    assert first.id.number < 1024, "of the block that was in doubt"
    with raises(TopicExists):
        ns.create_topic("orders", SCHEMA)


@pytest.mark.clause("P-117", "P-118")
@pytest.mark.parametrize("first", ["late", "broken-after", "lost"])
def test_a_refusal_of_the_second_put_says_nothing_about_the_first(faulty: Any, first: str) -> None:
    """Credentials that expire, or a disk that is full now, do not take back what was sent before."""
    ns, store = faulty
    store.script.append(first)
    store.script.extend(["refused"] * 2)
    store.reads.extend(["broken"] * 2)
    txn = begun(ns, 1)
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    store.land()
    assert read(ns) == [0, 1]


@pytest.mark.parametrize("call", ["produce", "small commit", "big commit", "flush", "prepare"])
def test_a_file_that_was_not_stored_leaves_no_call_unknown_whatever_it_is(faulty: Any, call: str) -> None:
    """It may be there, and no entry names it."""
    ns, store = faulty
    txn = ns.begin()
    calls: dict[str, Callable[[], object]] = {
        "produce": lambda: ns.produce("orders", rows(1)),
        "flush": txn.flush,
        "prepare": txn.prepare,
    }
    txn.produce("orders", [{"id": 1, "name": "n" * (2_000_000 if call == "big commit" else 1)}])
    run = calls.get(call, txn.commit)
    before = ns.snapshot().version
    store.puts.append("broken")
    with raises(StoreError, match="connection dropped", durable=Durable.NOTHING):
        run()
    assert (ns.snapshot().version, txn.state) == (before, "OPEN")
    run()
    if call in {"flush", "prepare"}:
        assert ns.complete(str(txn.id), commit=True) if call == "prepare" else txn.commit()
    assert read(ns) == [0, 1]


def test_who_waits_behind_an_unknown_outcome_hears_what_delays_it(faulty: Any) -> None:
    """On a file system whose fsync failed once no later try of the same handle can succeed: it says what can."""
    ns, store = faulty
    ns._connection.appender.create_attempts = 2
    store.script.append("broken-after")
    store.syncs.extend(["broken"] * 8)
    with pytest.raises(OutcomeUnknown, match=r"this call exists \(an earlier fsync failed\)") as doubt:
        ns.produce("orders", rows(1))
    assert isinstance(doubt.value.__cause__, StoreError)
    with raises(RetriableError, match=r"still unknown \(an earlier fsync failed\)") as waiting:
        ns.produce("orders", rows(2))
    assert waiting.value.advice == f"{StoreError._default_advice}; then try the same call again"
    with raises(RetriableError) as ended, ns.begin() as txn:
        txn.produce("orders", rows(3))
        txn.flush()
    assert ended.value.advice.startswith(f"{StoreError._default_advice}; then begin the block again")
    store.heal()
    assert read(ns) == [0, 1]


@pytest.mark.clause("P-118")
def test_an_interrupted_leader_leaves_the_others_a_true_answer(faulty: Any) -> None:
    """Whoever is interrupted while leading does not take the others along: they are told what is known."""
    ns, store = faulty
    other = begun(ns, 2)
    futures = []
    store.script.extend([lambda: futures.append(other.commit_async()), "killed"])
    with pytest.raises(KeyboardInterrupt):
        ns.produce("orders", rows(1))
    assert futures[0].result(30).offsets == {("orders", 0): range(2, 3)}
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-118")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it ends the worker
def test_a_member_of_an_interrupted_group_is_unknown(faulty: Any) -> None:
    """Two commits gather while an entry is under way; the request that puts theirs is interrupted behind the put."""
    ns, store = faulty
    transactions = [ns.begin(), ns.begin()]
    for number, txn in enumerate(transactions, 1):
        txn.produce("orders", rows(number))
    futures: list[Any] = []
    store.script.extend([lambda: futures.extend(txn.commit_async() for txn in transactions), "ok", "killed"])
    ns.produce("orders", rows(9))
    assert [type(future.exception(30)) for future in futures] == [KeyboardInterrupt] * 2, "which is no answer"
    for txn in transactions:
        with raises(InvalidTransactionState, match="the outcome of the commit of .* is unknown"):
            txn.produce("orders", rows(3))
    first, second = (txn.commit() for txn in transactions)
    assert first.version == second.version, "they shared the entry"
    assert (first.offsets, second.offsets) == ({("orders", 0): range(2, 3)}, {("orders", 0): range(3, 4)})
    assert read(ns) == [0, 9, 1, 2]


@pytest.mark.clause("P-121")
def test_what_may_not_survive_a_power_cut_is_not_reported(faulty: Any) -> None:
    ns, store = faulty
    store.script.append("lost")
    store.syncs.extend(["broken"] * 12)
    store.forever = "dropped"
    txn = begun(ns, 1)
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.commit()
    store.forever = None
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}


@pytest.mark.clause("P-80")
@pytest.mark.parametrize("fate", ["broken-after", "dropped"])
@pytest.mark.parametrize("again", ["flush", "commit"])
def test_more_acknowledgements_after_a_flush_of_unknown_outcome_are_not_mixed_with_it(
    faulty: Any, fate: str, again: str
) -> None:
    ns, store = faulty
    ns.produce("orders", rows(1, 2, 3))
    messages = ns.consumer("orders", "billing").receive(timeout_ms=0)
    txn = holding(ns, messages[:2])
    store.script.append(fate)
    store.reads.extend(["broken"] * 12)
    store.forever = "dropped"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        txn.flush()
    store.forever = None
    txn.acknowledge(messages[2])
    getattr(txn, again)()
    txn.acknowledge(messages[3]) if again == "flush" else None
    txn.commit()
    assert ns.subscription("orders", "billing").cursors[0].cursor == (4 if again == "flush" else 3)


@pytest.mark.clause("P-80")
def test_a_plain_acknowledgement_of_unknown_outcome_is_not_doubled(faulty: Any) -> None:
    ns, store = faulty
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    store.script.append("lost")
    consumer.acknowledge(messages)
    consumer.acknowledge(messages)
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1
    txn = ns.begin()
    with raises(TransactionConflict):
        txn.acknowledge(messages)


def test_the_waits_grow_and_are_bounded(faulty: Any) -> None:
    ns, store = faulty
    store.forever = "dropped"
    with raises(OutcomeUnknown, durable=Durable.MAYBE):
        ns.produce("orders", rows(1))
    waits = ns._connection.runtime.slept_ms
    assert len(waits) == slots.CREATE_ATTEMPTS - 1, "nobody looks after the last attempt"
    assert waits[-1] > waits[0]
    assert max(waits) <= slots._BACKOFF.longest_ms
    assert 15_000 < sum(waits) < 31_000


@pytest.mark.clause("P-117")
def test_damaged_bytes_in_the_slot_leave_the_entry_unknown(faulty: Any) -> None:
    ns, store = faulty
    store.script.append("lost")
    txn = begun(ns, 1)
    honest: dict[str, bytes] = {}

    def damage() -> None:
        key = store.calls[-1][1]
        honest[key] = store.inner.get(key)
        store.inner.put(key, honest[key][:-1])

    store.reads.append(damage)
    with raises(OutcomeUnknown, durable=Durable.MAYBE) as caught:
        txn.commit()
    assert isinstance(caught.value.__cause__, CorruptionError)
    (key,) = honest
    assert caught.value.advice == (
        f"restore {key.removeprefix('sales/')} of this log from a copy, for example by the command repair with "
        "--source; no damaged data was returned; then call "
        f"commit() again, {OR_ABORT}"
    )
    with raises(CorruptionError, match="truncated", durable=Durable.NOTHING):
        ns.produce("orders", rows(2))
    for key, data in honest.items():
        store.inner.put(key, data)
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    assert read(ns) == [0, 1]


@pytest.mark.clause("P-121")
def test_no_thread_reports_an_entry_that_another_thread_is_still_syncing(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = memory.orders()
    txn = begun(owner, 1)
    token = txn.prepare()
    ns, store = memory.faulty()
    owner.complete(token, commit=True)
    honest = store.sync
    synced: list[str] = []
    told: list[tuple[Any, int]] = []

    def sync(key: str) -> None:
        honest(key)
        if is_entry(key):
            synced.append(key)

    def complete() -> None:
        told.append((ns.complete(token, commit=True), len(synced)))

    monkeypatch.setattr(store, "sync", sync)
    store.syncs.append(lambda: run_threads(complete))
    ns.snapshot()
    ((answer, syncs),) = told
    assert answer.version == owner.snapshot().version
    assert syncs, "it was told that the transaction is committed before any sync had succeeded"
