"""Scenarios of transactions and of plain batches, by producers with and without a name."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.sim.scenario import Promise, Run, scenario, subscribed
from tests.sim.scopes import has, open_client, rows, together, took
from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.errors import ProducerFenced, TransactionAborted

# --- producing ------------------------------------------------------------------------------------------------------


@scenario()
def produces(run: Run) -> None:
    run.does(lambda: run.ns.produce("orders", rows(11, 12)), run.expect(has(orders=(11, 12))), repeats=False)
    run.does(lambda: run.ns.produce("wide", rows(13, 14), 1), run.expect(has(wide=(13, 14))), repeats=False)


@scenario()
def commits_over_two_topics(run: Run) -> None:
    txn = run.does(run.ns.begin)
    promise = run.expect(has(orders=(11, 12), audit=(13,), wide=(14, 15)), txn)
    txn.produce("orders", rows(11, 12))
    txn.produce("audit", rows(13))
    txn.produce("wide", rows(14), 0)
    txn.produce("wide", rows(15), 1)
    run.commits(txn, promise)


@scenario()
def flushes_twice_and_commits(run: Run) -> None:
    txn = run.does(run.ns.begin)
    promise = run.expect(has(orders=(11,), audit=(12,), wide=(13,)), txn)
    txn.produce("orders", rows(11))
    run.does(txn.flush)
    txn.produce("audit", rows(12))
    run.does(txn.flush)
    txn.produce("wide", rows(13), 1)
    run.commits(txn, promise)


@scenario()
def aborts_what_it_flushed(run: Run) -> None:
    txn = run.does(run.ns.begin)
    promise = run.expect(has(orders=(11,), audit=(12,)), txn)
    txn.produce("orders", rows(11))
    run.does(txn.flush)
    txn.produce("audit", rows(12))
    run.does(txn.abort)
    run.never(promise)
    run.does(txn.abort)


@scenario()
def interleaves_two_transactions(run: Run) -> None:
    first, second = run.does(run.ns.begin), run.does(run.ns.begin)
    promises = run.expect(has(orders=(11, 12)), first), run.expect(has(orders=(13,), audit=(14,)), second)
    first.produce("orders", rows(11))
    second.produce("orders", rows(13))
    run.does(first.flush)
    second.produce("audit", rows(14))
    run.commits(second, promises[1])
    first.produce("orders", rows(12))
    run.commits(first, promises[0])


@scenario()
def brings_the_batch_of_an_application(run: Run) -> None:
    def bring() -> bool:
        txn = run.ns.begin(txn_app_id="nightly", txn_version=7)
        txn.produce("orders", rows(11))
        txn.produce("audit", rows(12))
        return txn.commit().skipped

    run.does(bring, run.expect(has(orders=(11,), audit=(12,))))
    assert run.does(bring), "brought before"


@scenario()
def transacts(run: Run) -> None:
    def work(txn: Transaction) -> None:
        txn.produce("orders", rows(11))
        txn.produce("audit", rows(12))

    run.does(lambda: run.ns.transact(work), run.expect(has(orders=(11,), audit=(12,))), repeats=False)


# --- names and sequences --------------------------------------------------------------------------------------------


@scenario()
def repeats_a_sequenced_batch(run: Run) -> None:
    loader = run.does(lambda: run.ns.producer("loader"))
    first, second = run.expect(has(orders=(11, 12))), run.expect(has(orders=(13,)))
    run.does(lambda: loader.produce("orders", rows(11, 12), 0, sequence=0), first)
    run.does(lambda: loader.produce("orders", rows(13), 0, sequence=2), second)
    assert run.does(lambda: loader.produce("orders", rows(11, 12), 0, sequence=0)).duplicate
    assert run.does(lambda: loader.last_sequence("orders", 0)) == 2


@scenario()
def commits_sequences(run: Run) -> None:
    loader = run.does(lambda: run.ns.producer("loader"))
    gone = run.does(loader.begin)
    never = run.expect(has(orders=(99,)), gone)
    gone.produce("orders", rows(99), 0, sequence=0)
    run.does(gone.flush)
    run.does(gone.abort)
    run.never(never)
    txn = run.does(loader.begin)
    promise = run.expect(has(orders=(11,)), txn)
    txn.produce("orders", rows(11), 0, sequence=0)
    run.commits(txn, promise)


@scenario()
def starts_a_producer_over_another(run: Run) -> None:
    before, txn = _rival(run, "loader")
    run.does(lambda: run.ns.producer("loader"), _fences(run, before, txn))


@scenario()
def fences_a_producer(run: Run) -> None:
    before, txn = _rival(run, "loader")
    run.does(lambda: run.ns.fence("loader"), _fences(run, before, txn))


def _rival(run: Run, name: str | None) -> tuple[Any, Transaction]:
    """A producer of another client, on an honest store, with an open transaction."""
    producer = open_client(run.store.inner, "rival", run.clock).producer(name)
    txn = producer.begin()
    txn.produce("orders", rows(21))
    txn.flush()
    txn.produce("audit", rows(22))
    return producer, txn


def _fences(run: Run, producer: Any, txn: Transaction) -> Promise:
    """That it is fenced: its commit is refused, and has no effect."""

    def fenced(ns: Namespace) -> bool:
        ns._connection.follower.refresh()
        return ns._connection.follower.state.producers["loader"].epoch > producer.epoch

    def check(ns: Namespace) -> None:
        with contextlib.suppress(ProducerFenced):
            producer.produce("audit", rows(23))
        with contextlib.suppress(ProducerFenced):
            txn.commit()
        assert has(audit=(23,))(ns) != fenced(ns), "a zombie produced, or its owner was refused without a reason"
        assert has(orders=(21,), audit=(22,))(ns) == (txn.state == "COMMITTED")

    run.checks.append(check)
    return run.expect(fenced)


@scenario()
def aborts_as_an_administrator(run: Run) -> None:
    _, txn = _rival(run, None)
    never = run.expect(has(orders=(21,), audit=(22,)))
    assert run.does(lambda: run.ns.abort(str(txn.id), by="ops", why="test")).state == "ABORTED"
    run.never(never)
    with pytest.raises(TransactionAborted):
        txn.commit()


# --- two phases -----------------------------------------------------------------------------------------------------


def _prepares(run: Run) -> tuple[str, Promise]:
    consumer = run.does(lambda: run.ns.consumer("orders", "billing"))
    messages = run.does(lambda: consumer.receive(timeout_ms=0))
    txn = run.does(run.ns.begin)
    promise = run.expect(together(has(orders=(11,), audit=(12,)), took("billing", 0, 1)), txn)
    txn.produce("orders", rows(11))
    txn.produce("audit", rows(12))
    txn.acknowledge(messages[:2])
    token = run.does(txn.prepare)
    assert run.does(txn.prepare) == token
    return token, promise


@scenario(prepare=subscribed)
def prepares_and_commits(run: Run) -> None:
    token, promise = _prepares(run)
    first = run.does(lambda: run.ns.complete(token, commit=True), promise)
    assert first == run.does(lambda: run.ns.complete(token, commit=True))


@scenario(prepare=subscribed)
def prepares_and_aborts(run: Run) -> None:
    token, promise = _prepares(run)
    run.does(lambda: run.ns.complete(token, commit=False))
    run.never(promise)


@scenario(prepare=subscribed)
def prepares_and_is_aborted_by_force(run: Run) -> None:
    token, promise = _prepares(run)
    run.does(lambda: run.ns.abort(token, force=True))
    run.never(promise)
