"""A streaming run, and a consumer that opens or uses its subscription at the same time, through one handle or two."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from spark_ext import handles, jobs, stream_commits
from spark_ext.options import read_options
from spark_ext.stream_plan import StreamPlan
from tests.client.support import SCHEMA, Place, ids, memory_place, raises, read, rows  # noqa: F401 - a fixture
from txnlog import takeover
from txnlog.errors import ConsumerFenced, TransactionAborted, TxnLogError
from txnlog.ids import TxnId


def _sink(ns: Any, subscription: int) -> Any:
    """The first batch of a run whose sink acknowledges."""
    taken = stream_commits.BatchRange("orders", subscription, {0: 0}, {0: 1})
    identity = stream_commits.QueryIdentity("query", "query")
    return lambda: stream_commits._take_epoch(ns, taken, identity, "run")


def _source(ns: Any, _subscription: int) -> Any:
    """The first batch of a run whose source acknowledges by itself."""
    handles.use(ns)
    options = {"path": f"{ns.root}/{ns.name}/orders", "subscription": "billing"}
    plan = StreamPlan(read_options(options, streaming=True))
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
    subscription = ns.consumer("orders", "billing")._subscribed[0].subscription
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
            lambda: ns.consumer("orders", "billing"),
        )
    ]

    def both_wait() -> None:
        """While an entry is on its way, both queue up for the next."""
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 10
        while len(ns.connection.appender._queue) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)

    store.script.append(both_wait)
    ns.produce("orders", rows(1))
    for thread in threads:
        thread.join(10)
    assert len(answers) == 2
    assert not [answer for answer in answers if isinstance(answer, Exception)]


def _by_source(ns: Any) -> Any:
    handles.use(ns)
    options = {"path": f"{ns.root}/{ns.name}/orders", "subscription": "billing"}
    plan = StreamPlan(read_options(options, streaming=True))
    log = [plan.initial().to_dict()]

    def acknowledge() -> None:
        log.append(plan.latest(log[-1], None))
        plan.acknowledge(log[-1])

    return acknowledge


def _by_consumer(ns: Any) -> Any:
    consumer = ns.consumer("orders", "billing")
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
    take = ns.connection.appender.take_numbers

    def noted(count: int) -> list[int]:
        numbers.extend(taken := take(count))
        return list(taken)

    monkeypatch.setattr(ns.connection.appender, "take_numbers", noted)
    store.script.append(lambda: rival.abort(TxnId(ns.connection.coordinator, numbers[-1])))
    with raises(TransactionAborted, match="admin"):
        acknowledge()
    assert rival.subscription("orders", "billing").cursors[0].cursor == 1


def _batch(ns: Any, subscription: int, end: int) -> Any:
    """The commit of a batch that read everything below ``end``, as both sinks do it."""
    taken = stream_commits.BatchRange("orders", subscription, {0: 0}, {0: end})
    identity = stream_commits.QueryIdentity("query", "query")
    wanted = stream_commits.acknowledgements(ns, [taken], identity, "run")
    txn = jobs.begin(ns, jobs.reserve_job(ns))
    txn.acknowledge_ranges(wanted)
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
    consumer = other.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    token = ""
    if prepared:
        txn = other.begin()
        txn.acknowledge(messages[5])
        txn.produce("audit", rows(*ids(messages[5].table)))
        token = txn.prepare()
    honest = takeover.take_epoch

    def late(*arguments: Any, **options: Any) -> int:
        if prepared:
            other.complete(token, commit=True)
        else:
            with other.begin() as mine:
                mine.acknowledge(messages[5])
                mine.produce("audit", rows(*ids(messages[5].table)))
        return honest(*arguments, **options)

    monkeypatch.setattr(stream_commits, "take_epoch", late)
    with contextlib.suppress(TxnLogError):
        _batch(ns, ns.subscription("orders", "billing").id, 10)
    seen = read(ns, "audit")
    assert len(seen) == len(set(seen)), f"processed twice: {sorted(seen)}"
