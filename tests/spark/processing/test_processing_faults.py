"""``spark_ext.process`` where something happens: deaths, lost answers, other runs, requests to stop."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import txnlog
from spark_ext.processing.ownership import take_over
from spark_ext.processing.stop import interruptible
from spark_ext.support import namespace_cache
from tests.client.support import SCHEMA, FaultyStore, Place, memory_place, raises
from tests.spark.shop import Shop, shop
from tests.spark.support import path_of
from txnlog.common.pauses import Backoff
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    OutcomeUnknown,
    StoreError,
    SubscriptionNotFound,
    TopicNotFound,
    TransactionAborted,
)
from txnlog.format.keys import kind_of
from txnlog.store import Created, ForwardingStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from spark_ext.write.dataframe_transaction import DataFrameTransaction

__all__ = ["memory_place", "shop"]  # fixtures


# --- deaths -----------------------------------------------------------------------------------------------------------


class Death(BaseException):
    """The process ends here: nothing of what follows reaches the store."""


class MortalStore(ForwardingStore):
    """Dies at a commit's entry, before or after it was created; a dead process makes no request."""

    def __init__(self, inner: Store, place: str, commit: int) -> None:
        super().__init__(inner)
        self._place, self._left, self._dead = place, commit, False

    def die(self) -> None:
        self._dead = True
        raise Death

    def create(self, key: str, data: bytes) -> Created:
        self._check()
        if kind_of(key) != "entry" or b'{"action":"commit"' not in data:
            return super().create(key, data)
        self._left -= 1
        if not self._left and self._place == "before the entry":
            self.die()
        created = super().create(key, data)
        if not self._left and self._place == "after the entry":
            self.die()
        return created

    def get(self, key: str) -> bytes:
        self._check()
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self._check()
        super().put(key, data)

    def _check(self) -> None:
        if self._dead:
            raise Death


@pytest.mark.some(2)
@pytest.mark.parametrize("place", ["before the data", "between the writes", "before the entry", "after the entry"])
def test_a_run_that_dies_and_the_next_one_bring_every_message_once(shop: Shop, place: str) -> None:
    for first in (0, 4, 8):
        shop.produce(first)
    store = shop.wrapped(lambda inner: MortalStore(inner, place, 2))

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        second = len(shop.calls) == 1
        if second and place == "before the data":
            shop.calls.append([])
            store.die()
        if second and place == "between the writes":
            shop.calls.append([])
            txn.write(batch.where("id % 2 = 0"), "even")
            store.die()
        shop.handle(batch, txn)

    with pytest.raises(Death):
        shop.run(handler)
    died = place == "after the entry"
    shop.check(0, 8 if died else 4)
    assert shop.behind() == (4 if died else 8)
    shop.wrapped(lambda inner: inner)
    result = shop.run()
    shop.check(0, 12)
    assert (result.batches, shop.behind()) == (1 if died else 2, 0)


def test_a_dead_run_whose_rows_are_pending_is_not_in_the_way_of_the_next_one(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        txn.flush()  # the log holds rows and acknowledgements, and nobody to end them
        store.die()

    shop.produce(0)
    store = shop.wrapped(lambda inner: MortalStore(inner, "", 0))
    with pytest.raises(Death):
        shop.run(handler)
    assert [item.state for item in shop.ns.transactions("OPEN")] == ["OPEN"]
    shop.wrapped(lambda inner: inner)
    assert shop.run().rows == 4
    shop.check(0, 4)
    assert [item.reason for item in shop.ns.transactions("ABORTED")] == ["fenced"]


# --- answers that do not come -----------------------------------------------------------------------------------------


def doubtful(shop: Shop, words: list[str]) -> tuple[Callable[[Any, Any], None], FaultyStore]:
    """A handler, and a store whose creates of entries behind its first batch go as these words say, each once."""
    store: FaultyStore = shop.wrapped(FaultyStore)
    ns = namespace_cache.namespace_at(namespace_cache.location_of(path_of(shop.ns)), "rw", {})
    ns._connection.appender.create_attempts = 1

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if len(shop.calls) == 1:
            store.script.extend(words)

    return handler, store


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "words", [["lost"], ["dropped"], ["broken"], ["broken-after"], ["broken", "dropped", "lost"]], ids=str
)
def test_a_commit_without_an_answer_is_asked_for_and_the_handler_is_not_run_again(shop: Shop, words: list[str]) -> None:
    shop.produce(0)
    shop.produce(4)
    result = shop.run(doubtful(shop, words)[0])
    assert (result.batches, result.rows) == (2, 8)
    assert shop.calls == [[0, 1, 2, 3], [4, 5, 6, 7]]
    shop.check(0, 8)
    assert shop.behind() == 0


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("landed", "same_process", "left"),
    [(True, False, 1), (False, False, 2), (False, True, 1)],
    ids=["it is there", "it is late", "the process lives on"],
)
def test_a_commit_that_stays_unknown_ends_the_run_and_the_next_one_asks_the_log(
    shop: Shop, landed: bool, same_process: bool, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ext.processing.run._BACKOFF", Backoff(1.0, 1.0))
    shop.produce(0)
    shop.produce(4)
    handler, store = doubtful(shop, ["late"])

    def silent(batch: DataFrame, txn: DataFrameTransaction) -> None:
        handler(batch, txn)
        store.reads.append("ok")  # the look at a local log before the entry is sent
        store.forever, store.reads_forever = "dropped", "broken"

    with pytest.raises(OutcomeUnknown, match="run again"):
        shop.run(silent)
    store.heal()
    if landed:
        store.land()
    if not same_process:
        shop.wrapped(lambda inner: inner)
    result = shop.run()  # the handle that knows of the commit brings it first, whoever asks
    store.land()
    assert result.batches == left
    assert shop.calls == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]][-1 - left :]
    shop.check(0, 8)
    assert shop.behind() == 0


# --- others -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-79")
def test_a_run_that_another_one_took_over_from_stops_and_leaves_nothing(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        assert shop.run().rows == 8, "the newer run does all of it"

    shop.produce(0)
    shop.produce(4)
    with pytest.raises(ConsumerFenced):
        shop.run(handler)
    assert shop.calls == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7]]
    shop.check(0, 8)
    assert shop.behind() == 0


@pytest.mark.parametrize(
    ("meanwhile", "kind", "told"),
    [
        (lambda ns: ns.consumer("orders", "billing", takeover=True).seek("earliest"), ConsumerFenced, "the epoch"),
        (
            lambda ns: ns.drop_subscription("orders", "billing"),
            SubscriptionNotFound,
            r"'billing' of 'orders' was dropped \(run it again",
        ),
    ],
    ids=["seek", "drop"],
)
def test_a_subscription_that_was_moved_or_dropped_between_batches_ends_the_run(
    shop: Shop, meanwhile: Any, kind: type[Exception], told: str
) -> None:
    asked: list[int] = []

    def between() -> bool:
        asked.append(1)
        if len(asked) == 2:
            meanwhile(shop.ns)
        return False

    shop.produce(0)
    shop.produce(4)
    with pytest.raises(kind, match=told):
        shop.run(stop=between)
    shop.check(0, 4)
    assert len(shop.calls) == 1


def test_a_batch_whose_subscription_is_dropped_meanwhile_is_reported_as_committed(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        shop.ns.drop_subscription("orders", "billing")

    shop.produce(0)
    with pytest.raises(
        SubscriptionNotFound,
        match=r"'billing' of 'orders' was dropped while .* without its acknowledgement, at version \d+ \(orders",
    ) as caught:
        shop.run(handler)
    assert caught.value.durable is Durable.MAYBE
    assert "repeats the batch" in caught.value.advice
    shop.check(0, 4)


def test_a_batch_whose_subscription_is_dropped_and_created_again_meanwhile_is_not_committed(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        cursors = {item.partition: item.cursor for item in shop.ns.lag("orders", "billing")}
        shop.ns.drop_subscription("orders", "billing")
        shop.ns.create_subscription("orders", "billing", start=cursors)

    shop.produce(0)
    with pytest.raises(SubscriptionNotFound, match=r"was dropped \(run it again: .*; nothing was written\)"):
        shop.run(handler)
    shop.run()
    shop.check(0, 4)
    assert shop.behind() == 0


def test_a_batch_that_others_aborted_is_tried_again(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if len(shop.calls) <= 2:
            txn.flush()
            shop.ns.abort(txn.id)

    shop.produce(0)
    shop.produce(4)
    with caplog.at_level(logging.INFO, "txnlog.spark"):
        assert shop.run(handler).rows == 8
    assert shop.calls == [[0, 1, 2, 3]] * 3 + [[4, 5, 6, 7]]
    assert caplog.text.count("is tried again after") == 2
    shop.check(0, 8)


def test_a_batch_is_not_tried_for_ever(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ext.processing.run._BACKOFF", Backoff(1.0, 1.0))

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        txn.flush()
        shop.ns.abort(txn.id)

    shop.produce(0)
    with pytest.raises(TransactionAborted):
        shop.run(handler)
    assert (len(shop.calls), shop.behind()) == (5, 4)


@pytest.mark.parametrize("when", ["before its subscription", "before the takeover"])
def test_a_run_that_is_refused_behind_a_subscription_that_it_made_says_so(memory: Place, when: str) -> None:
    ns, store = memory.faulty()
    rival = memory.open()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    store.script.extend(["ok", lambda: rival.drop_topic("audit")])
    if "takeover" in when:
        store.script.appendleft("ok")
    kind = TopicNotFound if "takeover" not in when else SubscriptionNotFound
    with raises(kind, match="topic 'audit'.*may be durable", durable=Durable.MAYBE):
        take_over(
            ns._connection, ["orders", "audit"], "billing", query_name="q", start="earliest", to_dead_letters=False
        )
    assert ns.subscriptions("orders") == ("billing",)


def test_a_subscription_of_one_name_is_taken_over_under_that_name(shop: Shop) -> None:
    shop.ns.create_subscription("orders", "billing", takeover="same_name")
    shop.produce(0)
    with pytest.raises(txnlog.errors.InvalidInputError, match="pass query_name"):
        shop.run()
    shop.run(query_name="nightly")
    shop.produce(4)
    with pytest.raises(ConsumerBusy, match="'nightly', not to 'weekly'"):
        shop.run(query_name="weekly")
    assert shop.run(query_name="nightly").rows == 4
    assert shop.ns.subscription("orders", "billing").consumer == "nightly"


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval_ms", [1, "1ms"])
def test_an_interval_goes_on_until_its_event_is_set(shop: Shop, interval_ms: int | str) -> None:
    stop = threading.Event()

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        shop.produce(4 * len(shop.calls))
        if len(shop.calls) == 3:
            stop.set()

    shop.produce(0)
    result = shop.run(handler, trigger={"interval_ms": interval_ms}, stop=stop)
    assert (result.batches, result.stopped) == (3, "asked")
    shop.check(0, 12)
    assert shop.behind() == 4, "what came last is the next run's"


def test_a_run_that_was_asked_to_stop_before_it_began_does_nothing(shop: Shop) -> None:
    shop.produce(0)
    result = shop.run(stop=lambda: True)
    assert (result.batches, result.stopped, shop.calls) == (0, "asked", [])


@pytest.mark.parametrize("interval_ms", [3_600_000, "1h"])
def test_a_run_that_waits_for_its_interval_stops_at_once(shop: Shop, interval_ms: int | str) -> None:
    told: list[int] = []

    def after_a_while() -> bool:
        told.append(1)
        return len(told) > 3

    assert shop.run(trigger={"interval_ms": interval_ms}, stop=after_a_while).stopped == "asked"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_batch_at_hand_finish(shop: Shop, number: signal.Signals) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        os.kill(os.getpid(), number)
        shop.handle(batch, txn)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    shop.produce(0)
    shop.produce(4)
    result = shop.run(handler)
    assert (result.batches, result.stopped) == (1, "signal")
    shop.check(0, 4)
    assert shop.behind() == 4
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_second_signal_aborts_the_batch_at_hand(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("interrupted before")

    shop.produce(0)
    result = shop.run(handler)
    assert (result.batches, result.stopped) == (0, "signal")
    shop.check(0, 0)
    assert shop.behind() == 4
    assert shop.ns.transactions("OPEN") == ()
    shop.run()
    shop.check(0, 4)


def test_an_aborted_batch_leaves_no_job_behind(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    running = shop.spark.sparkContext.statusTracker()

    def wait_for(happened: Callable[[], object]) -> None:
        end = time.monotonic() + 120
        while not happened():
            assert time.monotonic() < end
            time.sleep(0.02)

    def interrupt_when_it_runs() -> None:
        wait_for(running.getActiveJobsIds)
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: "stopping after this batch" in caplog.text)  # two at once would be one to Python
        os.kill(os.getpid(), signal.SIGINT)

    def sleeps(batches: Any) -> Any:
        time.sleep(600)
        yield from batches

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        threading.Thread(target=interrupt_when_it_runs, daemon=True).start()
        txn.write(batch.mapInArrow(sleeps, "id long, customer string"), "even")

    shop.produce(0)
    assert shop.run(handler).stopped == "signal"
    wait_for(lambda: not running.getActiveJobsIds())
    assert (shop.behind(), shop.ns.transactions("OPEN")) == (4, ())


def test_a_session_that_was_stopped_inside_hides_no_error() -> None:
    def gone(_tag: str) -> None:
        raise AttributeError("'NoneType' object has no attribute 'removeJobTag'")  # as PySpark's own

    context = SimpleNamespace(addJobTag=lambda _tag: None, cancelJobsWithTag=gone, removeJobTag=gone)
    session: Any = SimpleNamespace(sparkContext=context, _jsparkSession=None)
    with pytest.raises(StoreError, match="what came of it"), interruptible(session):
        raise StoreError("what came of it")


def test_an_interrupt_that_no_signal_of_ours_brought_is_the_callers(shop: Shop) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        raise KeyboardInterrupt

    shop.produce(0)
    with pytest.raises(KeyboardInterrupt):
        shop.run(handler)
    assert shop.behind() == 4


def test_what_an_interrupt_broke_is_no_failure_of_the_handler(shop: Shop) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ConnectionError("answer from Java side is empty")

    shop.produce(0)
    with pytest.raises(KeyboardInterrupt):
        shop.run(handler)
    assert (shop.behind(), shop.ns.transactions("OPEN")) == (4, ())


def test_a_run_in_another_thread_leaves_the_signals_alone(shop: Shop) -> None:
    handlers: list[Any] = []
    before = signal.getsignal(signal.SIGTERM)
    shop.produce(0)

    def work() -> None:
        shop.run(lambda _batch, _txn: handlers.append(signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert handlers == [before]
    assert shop.behind() == 0


def test_a_run_that_is_to_stop_does_not_try_a_failed_batch_again(shop: Shop) -> None:
    stop = threading.Event()

    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        stop.set()
        raise ValueError("as planned")

    shop.produce(0)
    result = shop.run(handler, stop=stop, max_attempts=3)
    assert (result.batches, result.stopped, len(shop.calls), shop.behind()) == (0, "asked", 1, 4)
