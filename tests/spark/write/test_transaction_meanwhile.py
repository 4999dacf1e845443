"""A transaction over DataFrames, and what happens while one of its jobs runs. Frames of ours run in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.support import namespace_cache
from spark_ext.write.task_writer import TaskIdentity
from tests.spark.support import Frame
from txnlog.api.internals import connection_of
from txnlog.client.block_keeper import BlockKeeper
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    ProducerFenced,
    RetriableError,
    TopicNotFound,
    TransactionHasFailedOperation,
)
from txnlog.log.appender import Appender
from txnlog.testing import ManualClock

IDS = pa.schema([("id", pa.int64())])
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

SPARK: Any = SimpleNamespace(conf={}, is_stopped=False)
"""A session of which nothing is asked."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def ns(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[txnlog.Namespace]:
    attempts = iter(range(1_000))
    monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
    with txnlog.open(tmp_path / "lake", "sales", create=True, clock=clock) as opened:
        opened.create_topic("orders", IDS)
        namespace_cache.use(opened)
        yield opened


def begin(ns: txnlog.Namespace) -> Any:
    return spark_ext.transaction(SPARK, f"{ns.root}/{ns.name}", storage_options={})


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_write_whose_transaction_ends_meanwhile_does_not_say_that_its_rows_are_in(
    ns: txnlog.Namespace, end: str
) -> None:
    with begin(ns) as txn:
        txn.write(Frame(), "orders")
        with pytest.raises(InvalidTransactionState):
            txn.write(Frame(getattr(txn, end)), "orders")
    assert ns.snapshot().read("orders").num_rows == (3 if end == "commit" else 0)
    assert txn.rows == {"orders": 3}


def test_a_job_that_takes_longer_than_a_vacuums_grace_keeps_its_numbers_and_those_before_it(
    ns: txnlog.Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keepers: list[BlockKeeper] = []

    def kept(keeper: BlockKeeper) -> BlockKeeper:
        keepers.append(keeper)
        return keeper

    monkeypatch.setattr(BlockKeeper, "__enter__", kept)
    other = txnlog.open(ns.root, "sales", clock=clock)

    def three_hours() -> None:
        for _ in range(12):
            clock.advance(15 * MINUTE_MS)
            for keeper in keepers:
                connection_of(ns).appender.run(keeper.renew_if_due)
            other.vacuum(grace_ms=HOUR_MS)

    with other, begin(ns) as txn:
        for _ in range(4):  # in several blocks
            txn.write(Frame(), "orders")
        keepers.clear()
        txn.write(Frame(three_hours), "orders")
        assert 2 <= len(keepers) <= 4
    assert ns.snapshot().read("orders").num_rows == 15


def test_a_topic_that_is_made_again_while_a_transaction_is_open_is_the_one_that_is_written(
    ns: txnlog.Namespace,
) -> None:
    with txnlog.open(ns.root, "sales") as other, begin(ns) as txn:
        other.drop_topic("orders")
        other.create_topic("orders", IDS)
        txn.write(Frame(), "orders")
    assert ns.snapshot().read("orders").num_rows == 3


# --- writes that fail -------------------------------------------------------------------------------------------------


def fails() -> None:
    raise RuntimeError("as planned\nat a line")


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.clause("P-203")
@pytest.mark.parametrize("failure", [fails, interrupted])
def test_after_a_job_that_failed_only_the_abort_is_left(ns: txnlog.Namespace, failure: Callable[[], None]) -> None:
    txn = begin(ns)
    with pytest.raises(TransactionHasFailedOperation) as told, txn:  # noqa: PT012 - the end of the block raises
        txn.write(Frame(), "orders")
        with pytest.raises((RuntimeError, KeyboardInterrupt)) as cause:
            txn.write(Frame(failure), "orders")
        for more in (lambda: txn.write(Frame(), "orders"), txn.flush):
            with pytest.raises(TransactionHasFailedOperation, match=f"failed: {cause.typename}"):
                more()
    assert told.value.__cause__ is cause.value
    assert "at a line" not in str(told.value)
    assert txn.state == "ABORTED"
    assert ns.snapshot().read("orders").num_rows == 0
    assert ns.transactions() == (), "the log never saw it"
    with pytest.raises(TransactionHasFailedOperation):
        txn.commit()


def test_a_failed_write_may_be_followed_by_an_abort(ns: txnlog.Namespace) -> None:
    with begin(ns) as txn:
        with pytest.raises(RuntimeError):
            txn.write(Frame(fails), "orders")
        txn.abort()
    assert txn.state == "ABORTED"


def test_a_call_that_is_refused_before_its_job_leaves_the_transaction_as_it_was(ns: txnlog.Namespace) -> None:
    with begin(ns) as txn:
        with pytest.raises(TopicNotFound, match="did you mean 'orders'"):
            txn.write(Frame(), "oders")
        for given, name in ((pa.table({"id": [1]}), "pyarrow.lib.Table"), (3, "int")):
            with pytest.raises(InvalidInputError, match=rf"Spark DataFrame, not {name} \(.*spark.createDataFrame"):
                txn.write(given, "orders")
        txn.write(Frame(), "orders")
    assert ns.snapshot().read("orders").num_rows == 3


def test_a_commit_that_came_while_a_job_ran_stands_although_the_job_failed(ns: txnlog.Namespace) -> None:
    with begin(ns) as txn:
        txn.write(Frame(), "orders")

        def late() -> None:
            txn.commit()
            fails()

        with pytest.raises(RuntimeError):
            txn.write(Frame(late), "orders")
    assert txn.commit().version == ns.snapshot().version
    assert ns.snapshot().read("orders").num_rows == 3


def test_a_transaction_is_used_in_its_block_and_has_one(ns: txnlog.Namespace) -> None:
    txn = begin(ns)
    for use in (lambda: txn.write(Frame(), "orders"), txn.flush, txn.commit):
        with pytest.raises(InvalidTransactionState, match=r"outside of its with block.*with spark_ext.transaction"):
            use()
    with txn:
        txn.write(Frame(), "orders")
    assert txn.commit() == txn.result, "repeated it gives the same"
    with pytest.raises(InvalidTransactionState, match=r"had its with block already \(begin a new one"), txn:
        pass
    assert ns.snapshot().read("orders").num_rows == 3


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_race_lost_in_a_block_is_run_again_from_the_blocks_beginning(
    ns: txnlog.Namespace, monkeypatch: pytest.MonkeyPatch, at_the_end: bool
) -> None:
    def lost(*_: object, **_options: object) -> None:
        raise RetriableError("somebody else was always faster")

    txn = begin(ns)
    with pytest.raises(RetriableError, match="begin the block again: its"), txn:  # noqa: PT012 - its end raises
        txn.write(Frame(), "orders")
        if not at_the_end:
            lost()
        monkeypatch.setattr(Appender, "carry_out", lost)  # of its handle, too
    assert txn.state == "ABORTED"


def test_a_refused_commit_says_once_what_was_done_elsewhere_however_often_it_is_asked_for(ns: txnlog.Namespace) -> None:
    txn: Any = spark_ext.transaction(SPARK, f"{ns.root}/{ns.name}", producer="nightly", storage_options={})
    with pytest.raises(ProducerFenced), txn:  # noqa: PT012 - the end of the block raises, too
        txn.write(Frame(), "orders")
        txn._before_commit("Delta table '/bills'", "bills", lambda: ns.producer("nightly"))
        for _ in range(2):
            with pytest.raises(ProducerFenced) as told:
                txn.commit()
            (note,) = told.value.__notes__
            assert note.startswith("the Delta table '/bills' has its rows")


@pytest.mark.clause("P-45", "P-147")
def test_a_short_job_after_a_pause_shorter_than_the_grace_is_not_refused(
    ns: txnlog.Namespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: clock.now_ms() / 1_000)
    with txnlog.open(ns.root, ns.name, clock=clock) as other:

        def job(minutes: int) -> None:
            def work() -> None:
                clock.advance(minutes * MINUTE_MS)
                other.vacuum(grace_ms=HOUR_MS)

            with begin(ns) as txn:
                txn.write(Frame(work), "orders")

        job(0)
        job(0)  # its block has numbers for two jobs
        clock.advance(59 * MINUTE_MS)
        job(3)
        assert ns.snapshot().read("orders").num_rows == 9
