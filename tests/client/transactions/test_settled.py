"""Several calls in one attempt that fails: what each of them may be told, by what the log shows and by what not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, begun, is_entry, raises, received, rows, wait_for, waiting
from txnlog.engine.effects import Pause
from txnlog.errors import Durable, OutcomeUnknown, RetriableError, StoreError
from txnlog.format.actions import Begin
from txnlog.log.commands import effect
from txnlog.testing import ManualClock


@pytest.fixture
def faulty(memory: Place, clock: ManualClock) -> tuple[Any, FaultyStore]:
    """A client with one message in ``orders``, that gives up after two attempts, and its store."""
    ns, store = memory.faulty(clock=clock)
    ns._connection.appender.create_attempts = 2
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    return ns, store


def lost(call: Callable[[], Any], store: FaultyStore) -> None:
    """A call whose entry is there, and nobody here knows."""
    store.script.extend(["broken-after", "broken"])
    store.reads.extend(["broken", "broken"])
    with pytest.raises(OutcomeUnknown):
        call()


def in_doubt_but_shown(ns: Any, store: FaultyStore) -> Any:
    """A transaction whose commit was in doubt, and which the log shows by now."""
    txn = begun(ns, 1, timeout_ms=None)
    lost(txn.commit, store)
    ns.produce("orders", rows(2))
    return txn


def one_batch(ns: Any, *calls: Callable[[], Any]) -> list[Any]:
    """All calls in one batch of the appender, each in a thread; what they gave or raised."""
    own = ns._connection.appender
    gather = own._gather
    results: list[Any] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            results[place] = calls[place]()
        except BaseException as error:  # noqa: BLE001 - it is what the call came to
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]

    async def gather_all() -> None:
        own._gather = gather
        for thread in threads[1:]:
            before = waiting(ns)
            thread.start()
            while waiting(ns) == before:
                await Pause(1)

    own._gather = gather_all
    threads[0].start()
    wait_for(lambda: all(thread.ident for thread in threads))
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


def sent_and_not_heard_of(ns: Any, store: FaultyStore) -> None:
    """The next entry is there, another thread of the process reads it, and who appended it hears nothing."""

    def read_by_another() -> None:
        ns._connection.follower.refresh()
        store.reads.append("broken")

    store.script.extend([lambda: store.reads.append("broken"), "lost", read_by_another, "broken"])


@pytest.mark.clause("P-118")
def test_messages_that_the_log_leased_are_not_withheld_by_a_commit_next_to_them(faulty: Any) -> None:
    """Were the call asked once more behind its own entry, it would be granted nothing, and know of no doubt."""
    ns, store = faulty
    ns.create_subscription("orders", "billing", type="shared")
    ns.produce("orders", rows(1, 2, 3))
    consumer = ns.consumer("orders", "billing")
    txn = begun(ns, 9, timeout_ms=None)
    sent_and_not_heard_of(ns, store)
    _, first = one_batch(ns, txn.commit, lambda: received(consumer))
    store.heal()
    later = received(consumer)
    assert 0 in (first if isinstance(first, list) else []) + later, (first, later)


@pytest.mark.clause("P-118")
def test_a_takeover_asked_again_next_to_a_repeated_commit_stays_unknown(faulty: Any) -> None:
    ns, store = faulty
    ns.consumer("orders", "billing").close()
    txn = in_doubt_but_shown(ns, store)
    store.forever = "dropped"
    with pytest.raises(OutcomeUnknown):
        ns.consumer("orders", "billing", name="c")
    committed, taken = one_batch(ns, txn.commit, lambda: ns.consumer("orders", "billing", name="c"))
    assert committed.offsets
    assert type(taken) is RetriableError, taken
    store.heal()
    ns.consumer("orders", "billing", name="c")


@pytest.mark.clause("P-118")
@pytest.mark.parametrize("company", [False, True], ids=["alone", "beside a commit"])
def test_a_takeover_of_unknown_outcome_keeps_its_epoch(faulty: Any, *, company: bool) -> None:
    ns, store = faulty
    ns.consumer("orders", "billing", name="c").close()
    txn = begun(ns, 9, timeout_ms=None)
    sent_and_not_heard_of(ns, store)
    take = partial(ns.consumer, "orders", "billing", name="c")
    *_, taken = one_batch(ns, *([txn.commit, take] if company else [take]))
    store.heal()
    assert isinstance(taken, OutcomeUnknown), taken
    take()


@pytest.mark.clause("P-62", "P-118")
def test_who_asks_again_for_what_only_a_checkpoint_shows_does_not_hear_that_nothing_was_written(
    faulty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store = faulty
    txn = in_doubt_but_shown(ns, store)
    ns.checkpoint()

    def broken() -> None:
        raise StoreError("connection dropped", durable=Durable.MAYBE)

    with monkeypatch.context() as patched:
        patched.setattr(ns._connection.appender, "_before_append", broken)
        with raises(StoreError, durable=Durable.MAYBE):
            txn.commit()
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}


@pytest.mark.clause("P-118")
def test_who_prepares_again_what_the_log_shows_does_not_hear_that_nothing_was_written(
    faulty: Any, clock: ManualClock
) -> None:
    ns, store = faulty
    txn = begun(ns, 1, flush=True, timeout_ms=None)
    lost(txn.prepare, store)
    ns.produce("orders", rows(2))
    clock.advance(600_000)
    store.reads_forever = "broken"
    with raises(StoreError, durable=Durable.MAYBE):
        txn.prepare()
    store.heal()
    assert txn.prepare() == str(txn.id)


@pytest.mark.clause("P-205")
def test_a_commit_is_not_held_up_by_what_others_left_behind(memory: Place) -> None:
    """1,500 transactions are overdue, a hundred of which an entry ends; an entry takes 400 ms on this store."""
    clock = ManualClock(1_767_225_600_000)
    ns, store = memory.faulty_orders(clock=clock)
    other = memory.open(clock=clock)._connection.appender
    numbers = other.take_numbers(1_500)
    other.call(effect(lambda _draft, _at: [Begin(number, 1_000) for number in numbers]))
    clock.advance(10_000)
    txn = begun(ns, 7, timeout_ms=5_000)
    create = store.inner.create

    def slow(key: str, data: bytes) -> Any:
        if is_entry(key):
            clock.advance(400)
        return create(key, data)

    store.inner.create = slow  # type: ignore[method-assign]
    assert txn.commit().offsets == {("orders", 0): range(1)}


def test_an_error_of_one_call_keeps_nothing_of_another_in_memory(faulty: Any) -> None:
    ns, store = faulty
    txn = begun(ns, 1)
    store.forever = store.reads_forever = "broken"
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    with pytest.raises(RetriableError) as waiting:
        ns.produce("orders", rows(2))
    store.heal()
    assert waiting.value.__cause__ is None
    assert "read timed out" in waiting.value.message
