"""Scenarios of consumers and of their subscriptions."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from tests.sim.scenario import Run, pooled, scenario, subscribed
from tests.sim.scopes import FIRST, Effect, has, rows, together, took
from txnlog.api.namespace import Namespace
from txnlog.errors import SubscriptionNotFound


@scenario()
def opens_a_consumer_and_acknowledges(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "fresh"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    assert messages.table.column("value").to_pylist() == list(FIRST)
    first, rest = run.expect(_unless_new(took("fresh", 1, 2))), run.expect(_unless_new(took("fresh", 0, 3)))
    run.does(lambda: consumer.acknowledge(messages[1:3]), first)
    run.does(lambda: consumer.acknowledge(messages), rest)


def _unless_new(effect: Effect) -> Effect:
    def check(ns: Namespace) -> bool:
        try:
            return effect(ns)
        except SubscriptionNotFound:
            return False

    return check


@scenario(prepare=subscribed)
def acknowledges_cumulatively(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    promise = run.expect(took("billing", 0, 1, 2))
    run.does(lambda: consumer.acknowledge(messages[2], cumulative=True), promise)


@scenario(prepare=subscribed)
def moves_messages_in_a_transaction(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    txn = run.does(run.ns.begin)
    promise = run.expect(together(took("billing", 0, 2), has(audit=(11, 12))), txn)
    txn.acknowledge(messages[0])
    txn.produce("audit", rows(11))
    run.does(txn.flush)
    txn.acknowledge(messages[2])
    txn.produce("audit", rows(12))
    run.commits(txn, promise)


@scenario(prepare=subscribed)
def acknowledges_cumulatively_in_a_transaction(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    txn = run.does(run.ns.begin)
    promise = run.expect(together(took("billing", 0, 1, 2), has(audit=(11,))), txn)
    txn.acknowledge(messages[0], cumulative=True)
    run.does(txn.flush)
    txn.acknowledge(messages[2], cumulative=True)
    txn.produce("audit", rows(11))
    run.commits(txn, promise)


@scenario(prepare=subscribed)
def receives_again_what_it_aborted(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    txn = run.does(run.ns.begin)
    promise = run.expect(together(took("billing", 0, 1, 2, 3), has(audit=(11,))), txn)
    txn.acknowledge(messages)
    txn.produce("audit", rows(11))
    run.does(txn.flush)
    run.does(txn.abort)
    run.never(promise)
    assert run.does(lambda: consumer.receive(timeout_ms=0)).table.column("value").to_pylist() == list(FIRST)


@scenario(prepare=subscribed)
def seeks(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    promise = run.expect(took("billing", 0, 1))

    def again() -> None:
        nonlocal consumer  # its own seek may have fenced it
        consumer = run.ns.consumer("orders", "billing")
        consumer.seek({0: 2})

    run.does(lambda: consumer.seek({0: 2}), promise, again)
    assert run.does(lambda: consumer.receive(timeout_ms=0)).table.column("value").to_pylist() == [3, 4]


@scenario(prepare=pooled)
def shares(run: Run) -> None:
    consumer = run.does(lambda: run.ns.consumer("orders", "pool"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    plain = run.expect(took("pool", 0, 1))
    run.does(lambda: consumer.acknowledge(messages[:2]), plain)
    txn = run.does(run.ns.begin)
    promise = run.expect(together(took("pool", 2, 3), has(audit=(11,))), txn)
    run.does(lambda: txn.acknowledge(messages[2:]))
    txn.produce("audit", rows(11))
    run.commits(txn, promise)


@scenario(prepare=pooled)
def gives_up_messages_as_dead_letters(run: Run) -> None:
    promise = run.expect(together(took("pool", 0, 1, 2, 3), has(dead=FIRST)))
    promise.told = "unknown"  # it comes with a receive, which repeats it by itself
    consumer = run.does(lambda: run.ns.consumer("orders", "pool"))
    for _ in range(3):
        messages = run.does(lambda: consumer.receive(timeout_ms=0))
        run.does(partial(consumer.negative_acknowledge, messages))
    assert len(run.does(lambda: consumer.receive(timeout_ms=0))) == 0
    promise.told = "done"


@scenario()
def creates_and_drops_a_subscription(run: Run) -> None:
    def create(**options: Any) -> object:
        return run.ns.create_subscription("orders", "brief", **options)

    def drop() -> None:
        with contextlib.suppress(SubscriptionNotFound):
            run.ns.drop_subscription("orders", "brief")

    run.does(create, again=lambda: create(if_not_exists=True))
    promise = run.expect(lambda ns: "brief" not in ns.subscriptions("orders"))
    run.does(lambda: run.ns.drop_subscription("orders", "brief"), promise, drop)
