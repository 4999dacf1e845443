"""Scenarios of a namespace as a whole: it is opened, has topics, and is maintained."""

from __future__ import annotations

import contextlib

from tests.sim.scenario import Run, scenario
from tests.sim.scopes import FIRST, SCHEMA, has, open_client, rows, values
from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.errors import InvalidInputError, TopicNotFound

HOUR_MS = 3_600_000

# --- opening --------------------------------------------------------------------------------------------------------


@scenario(opens=False)
def opens_a_namespace(run: Run) -> None:
    run.ns = run.does(lambda: open_client(run.store, "client", run.clock))


@scenario(opens=False, prepare=Namespace.checkpoint)
def opens_from_a_checkpoint_and_reads(run: Run) -> None:
    run.ns = run.does(lambda: open_client(run.store, "client", run.clock))
    assert run.does(lambda: values(run.ns, "orders")) == list(FIRST)


@scenario(opens=False, prepare=None)
def opens_with_create(run: Run) -> None:
    run.ns = run.does(lambda: open_client(run.store, "client", run.clock, create=True))
    topic = run.expect(lambda ns: "probes" in ns.topics())
    run.does(lambda: run.ns.create_topic("probes", SCHEMA, if_not_exists=True), topic)


# --- topics ---------------------------------------------------------------------------------------------------------


@scenario()
def creates_a_topic_and_uses_it(run: Run) -> None:
    topic = run.expect(lambda ns: "later" in ns.topics())
    run.does(
        lambda: run.ns.create_topic("later", SCHEMA),
        topic,
        lambda: run.ns.create_topic("later", SCHEMA, if_not_exists=True),
    )
    run.does(lambda: run.ns.produce("later", rows(11)), run.expect(has(later=(11,))), repeats=False)


@scenario()
def drops_a_topic(run: Run) -> None:
    def drop() -> None:
        with contextlib.suppress(TopicNotFound):
            run.ns.drop_topic("orders")

    run.does(lambda: run.ns.drop_topic("orders"), run.expect(lambda ns: "orders" not in ns.topics()), drop)


# --- maintenance ----------------------------------------------------------------------------------------------------


@scenario()
def makes_a_checkpoint(run: Run) -> None:
    run.does(run.ns.checkpoint)
    run.does(lambda: run.ns.produce("orders", rows(11)), run.expect(has(orders=(11,))), repeats=False)
    run.does(run.ns.checkpoint)


def _littered(ns: Namespace) -> None:
    """Files of an aborted transaction, of one that is open, and of one that is prepared."""
    for ending in (Transaction.abort, Transaction.flush, Transaction.prepare):
        txn = ns.begin(timeout_ms=15 * 60_000)
        txn.produce("orders", rows(99))
        txn.flush()
        ending(txn)


@scenario(prepare=_littered, later_ms=48 * HOUR_MS)
def vacuums(run: Run) -> None:
    never = run.expect(has(orders=(99,)))
    run.does(lambda: run.ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=HOUR_MS))
    run.clock.advance(2 * HOUR_MS)
    run.does(lambda: run.ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=HOUR_MS))
    run.never(never)
    (token,) = (item.txn_id for item in run.does(lambda: run.ns.transactions(state="PREPARED")))
    run.never(never)
    run.promises.remove(never)
    run.does(lambda: run.ns.complete(str(token), commit=True), run.expect(has(orders=(99,))))


@scenario()
def forgets_an_application(run: Run) -> None:
    txn = run.does(lambda: run.ns.begin(txn_app_id="nightly", txn_version=1))
    promise = run.expect(has(orders=(11,)), txn)
    txn.produce("orders", rows(11))
    run.commits(txn, promise)
    forgotten = run.expect(lambda ns: ns.last_txn_version("nightly") is None)

    def forget() -> None:
        with contextlib.suppress(InvalidInputError):
            run.ns.forget_app("nightly")

    run.does(lambda: run.ns.forget_app("nightly"), forgotten, forget)


@scenario()
def reads_older_versions(run: Run) -> None:
    before = run.does(lambda: run.ns.snapshot().version)
    run.does(lambda: run.ns.produce("orders", rows(11)), run.expect(has(orders=(11,))), repeats=False)
    found = run.does(lambda: run.ns.snapshot(version=before).read("orders"))
    assert found.column("value").to_pylist() == list(FIRST)
