"""A streaming run, and a consumer that opens, seeks or uses its subscription meanwhile, or while no run is there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from spark_ext.processing import ownership
from spark_ext.streaming import batch_commit, source_plan
from spark_ext.streaming.source_plan import StreamPlan
from spark_ext.support import namespace_cache
from spark_ext.support.options import read_options
from spark_ext.write import write_jobs
from tests.client.support import SCHEMA, Place, ids, memory_place, raises, read, rows, waiting  # noqa: F401 - a fixture, waiting
from txnlog.api.internals import acknowledge_ranges, connection_of
from txnlog.client import subscription_ownership
from txnlog.common.ids import TxnId
from txnlog.errors import ConsumerFenced, InvalidInputError, SubscriptionNotFound, TransactionAborted, TxnLogError
from txnlog.testing import ManualClock


def _sink(ns: Any, subscription: int) -> Any:
    """The first batch of a run whose sink acknowledges."""
    taken = batch_commit.BatchRange("orders", subscription, {0: 0}, {0: 1})
    identity = batch_commit.QueryIdentity("query", "query")
    return lambda: batch_commit._take_epoch(ns, taken, identity, "run")


def _source(ns: Any, _subscription: int) -> Any:
    """The first batch of a run whose source acknowledges by itself."""
    namespace_cache.use(ns)
    options = {"path": f"{ns.root}/{ns.name}/orders", "subscription": "billing"}
    plan = StreamPlan(read_options(options, streaming=True), {}, None)
    end = plan.latest(plan.initial().to_dict(), None)

    def acknowledge() -> None:
        with contextlib.suppress(ConsumerFenced):  # the consumer was second
            plan.acknowledge(end)

    return acknowledge


@pytest.mark.clause("P-74")
@pytest.mark.parametrize("run", [_sink, _source])
def test_a_run_and_a_consumer_that_open_in_one_entry_are_both_answered(memory: Place, run: Any) -> None:
    """Both raise the epoch, and an entry raises it once: the one that comes second is for the next entry."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    subscription = ns.consumer("orders", "billing", takeover=True)._subscribed[0].subscription
    ns.produce("orders", rows(0))
    opened = run(ns, subscription)
    answers: list[Any] = []

    def answered(call: Any) -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - it is the result
            answers.append(error)

    threads = [
        threading.Thread(target=answered, args=(call,), daemon=True)
        for call in (
            opened,
            lambda: ns.consumer("orders", "billing", takeover=True),
        )
    ]

    def both_wait() -> None:
        """While an entry is on its way, both queue up for the next."""
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while waiting(ns) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)

    store.script.append(both_wait)
    ns.produce("orders", rows(1))
    for thread in threads:
        thread.join(10)
    assert len(answers) == 2
    assert not [answer for answer in answers if isinstance(answer, Exception)]


def _by_source(ns: Any) -> Any:
    namespace_cache.use(ns)
    options = {"path": f"{ns.root}/{ns.name}/orders", "subscription": "billing"}
    plan = StreamPlan(read_options(options, streaming=True), {}, None)
    log = [plan.initial().to_dict()]

    def acknowledge() -> None:
        log.append(plan.latest(log[-1], None))
        plan.acknowledge(log[-1])

    return acknowledge


def _by_consumer(ns: Any) -> Any:
    consumer = ns.consumer("orders", "billing", takeover=True)
    return lambda: consumer.acknowledge(consumer.receive(timeout_ms=0))


@pytest.mark.parametrize("opened", [_by_source, _by_consumer])
def test_an_acknowledgement_that_somebody_aborted_is_no_success(
    memory: Place, monkeypatch: pytest.MonkeyPatch, opened: Any
) -> None:
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    acknowledge, rival = opened(ns), memory.open()
    acknowledge()
    ns.produce("orders", rows(1))
    numbers: list[int] = []
    take = ns._connection.appender.take_numbers

    def noted(count: int) -> list[int]:
        numbers.extend(taken := take(count))
        return list(taken)

    monkeypatch.setattr(ns._connection.appender, "take_numbers", noted)
    store.script.append(lambda: rival.abort(TxnId(ns._connection.coordinator, numbers[-1])))
    with raises(TransactionAborted, match="admin"):
        acknowledge()
    assert rival.subscription("orders", "billing").cursors[0].cursor == 1


def _batch(ns: Any, subscription: int, end: int) -> Any:
    """The commit of a batch that read everything below ``end``, as both sinks do it."""
    taken = batch_commit.BatchRange("orders", subscription, {0: 0}, {0: end})
    identity = batch_commit.QueryIdentity("query", "query")
    wanted = batch_commit.acknowledgements(ns, [taken], identity, "run")
    txn = write_jobs.begin(ns, write_jobs.reserve_job(ns))
    acknowledge_ranges(txn, wanted)
    txn.produce("audit", rows(*range(end)))
    return txn.commit()


@pytest.mark.clause("P-84")
@pytest.mark.parametrize("prepared", [False, True])
def test_what_was_acknowledged_by_itself_while_a_batch_took_over_is_not_taken_twice(
    memory: Place, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    ns, other = memory.open(), memory.open()
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
    ns.produce("orders", rows(*range(10)))
    consumer = other.consumer("orders", "billing", takeover=True)
    messages = consumer.receive(timeout_ms=0)
    token = ""
    if prepared:
        txn = other.begin()
        txn.acknowledge(messages[5])
        txn.produce("audit", rows(*ids(messages[5].table)))
        token = txn.prepare()
    honest = subscription_ownership.take_epoch

    def late(*arguments: Any, **options: Any) -> int:
        if prepared:
            other.complete(token, commit=True)
        else:
            with other.begin() as mine:
                mine.acknowledge(messages[5])
                mine.produce("audit", rows(*ids(messages[5].table)))
        return honest(*arguments, **options)

    monkeypatch.setattr(batch_commit, "take_epoch", late)
    with contextlib.suppress(TxnLogError):
        _batch(ns, ns.subscription("orders", "billing").id, 10)
    seen = read(ns, "audit")
    assert set(ids(messages[5].table)) <= set(seen), "the other one was at work in between"
    assert len(seen) == len(set(seen)), f"processed twice: {sorted(seen)}"


def test_a_run_that_lost_the_subscription_before_its_first_commit_does_not_take_it_back(memory: Place) -> None:
    """No commit of the run says that it had an epoch, and the subscription has another consumer by now."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", start="earliest")
    ns.produce("orders", rows(*range(5)))
    taken = batch_commit.BatchRange("orders", ns.subscription("orders", "billing").id, {0: 0}, {0: 5})
    identity = batch_commit.QueryIdentity("query", "query")
    held = batch_commit.acknowledgements(ns, [taken], identity, "run")[0].epoch
    assert ns.subscription("orders", "billing").epoch == held
    rival = memory.open().consumer("orders", "billing", takeover=True)
    lost = ns.subscription("orders", "billing").epoch
    assert lost > held
    for _ in range(2):
        with raises(ConsumerFenced, match=f"is {lost}, this consumer's is {held}"):
            batch_commit.acknowledgements(ns, [taken], identity, "run")
    assert ns.subscription("orders", "billing").epoch == lost
    rival.acknowledge(rival.receive(timeout_ms=0))
    assert ns.subscription("orders", "billing").cursors[0].cursor == 5


# --- a cursor that somebody moved back --------------------------------------------------------------------------------


class _Query:
    """A query on ``orders`` of five rows: each run has a plan of its own, ``log`` outlives it as a checkpoint does."""

    def __init__(self, ns: Any) -> None:
        namespace_cache.use(ns)
        for topic in ("orders", "audit"):
            ns.create_topic(topic, SCHEMA)
        ns.produce("orders", rows(*range(5)))
        self.ns = ns
        self.restart()
        self.log = [self.plan.initial().to_dict()]

    def restart(self) -> None:
        options = {"path": f"{self.ns.root}/{self.ns.name}/orders", "subscription": "billing"}
        self.plan = StreamPlan(read_options(options, streaming=True), {}, None)

    def batch(self) -> None:
        """The next batch is planned, and the one before acknowledged: Spark's order."""
        last = self.log[-1]
        self.log.append(self.plan.latest(last, None))
        if len(self.log) > 2:
            self.plan.acknowledge(last)

    @property
    def cursor(self) -> int:
        return int(self.ns.subscription("orders", "billing").cursors[0].cursor)

    def seek(self, position: Any) -> None:
        with self.ns.consumer("orders", "billing", takeover=True) as consumer:
            consumer.seek(position)


def _sink_acknowledged(query: _Query) -> None:
    query.batch()
    _batch(query.ns, query.ns.subscription("orders", "billing").id, 5)


def _source_acknowledged(query: _Query) -> None:
    query.batch()
    query.ns.produce("orders", rows(5))
    query.batch()


@pytest.mark.parametrize("first", [_sink_acknowledged, _source_acknowledged])
def test_a_stopped_query_does_not_undo_a_seek_and_goes_on_where_it_was_sought_back_to(
    memory: Place, first: Callable[[_Query], None]
) -> None:
    query = _Query(memory.open())
    first(query)
    assert query.cursor == 5
    end = query.log[-1]["offsets"]["orders"]["0"]
    query.seek("earliest")
    query.ns.produce("orders", rows(6))
    for _ in range(2):
        query.restart()
        for refused in (query.batch, lambda: query.plan.acknowledge(query.log[-1])):
            with raises(
                InvalidInputError,
                match=rf"continues at offset {end}, but .* is at 0 "
                r"\(stop the query and seek .*; a new checkpointLocation .* once more",
            ):
                refused()
    assert query.cursor == 0
    query.seek({0: end})
    query.batch()
    query.ns.produce("orders", rows(7))
    query.batch()
    assert query.cursor == end + 1


def test_a_subscription_that_was_dropped_and_made_again_is_not_taken_off_to_the_old_end(memory: Place) -> None:
    query = _Query(memory.open())
    query.batch()
    query.ns.drop_subscription("orders", "billing")
    query.ns.create_subscription("orders", "billing", start="earliest")
    query.restart()
    with raises(InvalidInputError, match="is at 0"):
        query.plan.acknowledge(query.log[-1])
    assert query.cursor == 0


@pytest.mark.parametrize("run", ["run", "later"])
def test_a_subscription_that_is_dropped_while_a_batch_is_at_work_is_reported_by_name(memory: Place, run: str) -> None:
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.create_subscription("orders", "billing", start="earliest")
    ns.produce("orders", rows(*range(5)))
    taken = batch_commit.BatchRange("orders", ns.subscription("orders", "billing").id, {0: 0}, {0: 5})
    identity = batch_commit.QueryIdentity("query", "query")
    batch_commit.acknowledgements(ns, [taken], identity, "run")
    ns.drop_subscription("orders", "billing")
    with raises(SubscriptionNotFound, match=r"'billing' of 'orders' was dropped \(begin with a new checkpointLocation"):
        batch_commit.acknowledgements(ns, [taken], identity, run)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_query_that_died_before_it_acknowledged_catches_up(memory: Place, acknowledged: bool) -> None:
    query = _Query(memory.open())
    query.batch()
    for number in range(3):
        query.ns.produce("orders", rows(5 + number))
        if not acknowledged or number:  # it dies with the batch planned, again and again
            query.log.append(query.plan.latest(query.log[-1], None))
            query.restart()
        else:
            query.batch()
    assert query.cursor == (5 if acknowledged else 0)
    query.plan.acknowledge(query.log[-1])
    assert query.cursor == 8


def test_a_seek_while_a_run_takes_over_stops_it_and_those_that_follow(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = _Query(memory.open())
    query.batch()
    query.plan.acknowledge(query.log[-1])
    query.ns.produce("orders", rows(5))
    query.batch()
    query.restart()
    honest = subscription_ownership.take_epoch

    def late(*arguments: Any) -> int:
        monkeypatch.undo()
        query.seek("earliest")
        return honest(*arguments)

    monkeypatch.setattr(source_plan, "take_epoch", late)
    for _ in range(2):
        with raises(InvalidInputError, match="continues at offset 6, but .* is at 0"):
            query.plan.acknowledge(query.log[-1])
        query.restart()
    assert query.cursor == 0


# --- a cursor that another run moved on -------------------------------------------------------------------------------


def _sink_batch(query: _Query, low: int, high: int, run: str) -> None:
    """A run's sink commits a batch of the query."""
    taken = batch_commit.BatchRange("orders", query.ns.subscription("orders", "billing").id, {0: low}, {0: high})
    identity = batch_commit.QueryIdentity("query", "query")
    wanted = batch_commit.acknowledgements(query.ns, [taken], identity, run)
    with query.ns.begin() as txn:
        acknowledge_ranges(txn, wanted)


@pytest.mark.parametrize("replays", [False, True])
def test_a_run_whose_messages_another_run_took_meanwhile_is_fenced(memory: Place, replays: bool) -> None:
    """It saw the cursor where its checkpoint is, so the checkpoint is no older copy."""
    query = _Query(memory.open())
    query.log.append(query.plan.latest(query.log[-1], None))
    if replays:
        query.restart()
        query.plan.partitions(*query.log[-2:])
    _sink_batch(query, 0, 5, "run-1")
    query.ns.produce("orders", rows(5))
    _sink_batch(query, 5, 6, "run-2")
    for _ in range(2):
        with raises(ConsumerFenced, match=r"another run or query .* 'billing'.*offset 5.*at 6.*has ended"):
            query.plan.latest(query.log[-1], None)


@pytest.mark.parametrize("replays", [False, True])
def test_a_checkpoint_that_was_behind_when_the_run_began_may_be_an_older_copy(memory: Place, replays: bool) -> None:
    query = _Query(memory.open())
    query.log.append(query.plan.latest(query.log[-1], None))
    _sink_batch(query, 0, 5, "run-1")
    query.ns.produce("orders", rows(5))
    _sink_batch(query, 5, 6, "run-2")
    query.restart()
    if replays:
        query.plan.partitions(*query.log[-2:])
    for _ in range(2):
        with raises(InvalidInputError, match=r"offset 5, .* at 6 .*if another run with this checkpoint is at work"):
            query.plan.latest(query.log[-1], None)


def test_a_seek_ahead_of_a_run_is_no_other_run(memory: Place) -> None:
    query = _Query(memory.open())
    query.log.append(query.plan.latest(query.log[-1], None))
    _sink_batch(query, 0, 5, "run-1")
    query.ns.produce("orders", rows(5))
    query.seek({0: 6})
    with raises(InvalidInputError, match=r"offset 5, .* at 6 "):
        query.plan.latest(query.log[-1], None)


def test_a_query_whose_messages_expired_says_so(memory: Place) -> None:
    """Whatever failOnDataLoss is: only the checkpoint says where the query is, and the cursor is elsewhere."""
    clock = ManualClock(1_767_225_600_000)
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA, message_ttl_ms="1h")
    ns.create_subscription("orders", "billing")
    for number in range(3):
        ns.produce("orders", rows(number), partition=0)
    namespace_cache.use(ns)
    options = {"path": f"{ns.root}/{ns.name}/orders", "subscription": "billing", "failOnDataLoss": "false"}
    plan = StreamPlan(read_options(options, streaming=True), {}, None)
    first = plan.latest(plan.initial().to_dict(), 1)
    plan.acknowledge(first)
    clock.advance(2 * 3_600_000)
    ns.maintain()
    for run in (plan, StreamPlan(read_options(options, streaming=True), {}, None)):
        with raises(ConsumerFenced, match="the messages between expired .* a new checkpointLocation"):
            run.latest(first, None)
    connection = connection_of(ns)
    subscription = connection.subscription_record(connection.topic_record("orders").id, "billing")
    assert subscription is not None
    repeated = batch_commit.BatchRange("orders", subscription.id, {0: 1}, {0: 2})  # planned before its driver died
    with raises(ConsumerFenced, match="the messages between expired .* a new checkpointLocation"):
        batch_commit.acknowledgements(ns, [repeated], batch_commit.QueryIdentity("query", "query"), "next run")
    again = StreamPlan(read_options(options, streaming=True), {}, None)
    assert again.initial().offsets == {"orders": {0: 3}}


# --- another query ----------------------------------------------------------------------------------------------------


def _owned(memory: Place) -> tuple[Any, int]:
    """A subscription that a query owns, whose first batch it acknowledged."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    subscription = ns.consumer("orders", "billing", takeover=True)._subscribed[0].subscription
    ns.produce("orders", rows(0))
    _sink(ns, subscription)()
    return ns, subscription


def _as_sink(ns: Any, subscription: int) -> None:
    taken = batch_commit.BatchRange("orders", subscription, {0: 0}, {0: 1})
    batch_commit._take_epoch(ns, taken, batch_commit.QueryIdentity("other", "other"), "other run")


def _as_process(ns: Any, _subscription: int) -> None:
    ownership.take_over(
        connection_of(ns), ["orders"], "billing", query_name=None, start="earliest", to_dead_letters=False
    )


@pytest.mark.parametrize("run", [_as_sink, _source, _as_process])
def test_who_takes_the_subscription_of_another_query_hears_that_its_state_stays_behind(
    memory: Place, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """SILENT: the checkpoint of a running aggregate is lost or mistyped, and all totals are too small from then on."""
    ns, subscription = _owned(memory)
    assert "belonged to the query" not in caplog.text
    begun = run(ns, subscription)
    if begun is not None:
        begun()
    warned = [record.getMessage() for record in caplog.records if "belonged to the query" in record.getMessage()]
    assert len(warned) == 1
    assert "'billing' of 'orders' belonged to the query 'query', and belongs to" in warned[0]
    assert "ns.consumer('orders', 'billing', takeover=True).seek({0: 0})" in warned[0]


def test_a_query_that_goes_on_with_its_own_subscription_hears_nothing(
    memory: Place, caplog: pytest.LogCaptureFixture
) -> None:
    ns, subscription = _owned(memory)
    _sink(ns, subscription)()
    _as_process(ns, subscription)
    caplog.clear()
    _as_process(ns, subscription)
    assert "belonged to the query" not in caplog.text
