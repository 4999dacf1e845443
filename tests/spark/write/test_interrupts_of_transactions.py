"""Ctrl-C in a call of a transaction of DataFrames: the call is repeated, and doubles, tears and loses nothing."""

from __future__ import annotations

import itertools
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructField, StructType

from spark_ext.write import arrow_batches, dataframe_transaction, write_jobs
from spark_ext.write.dataframe_transaction import DataFrameTransaction
from spark_ext.write.task_writer import TaskIdentity, write_batches
from tests.interrupts import interrupted
from txnlog.api import transaction
from txnlog.client import transaction_work
from txnlog.errors import OutcomeUnknown, TransactionHasFailedOperation, TxnLogError

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])
MODULES: tuple[ModuleType, ...] = (write_jobs, dataframe_transaction, transaction, transaction_work)


def begun(ns: Namespace, *numbers: int) -> DataFrameTransaction:
    """A transaction to which a job has written files."""
    record = ns._connection.topic_handle("orders").record
    spec = write_jobs.Planned(SCHEMA, record).spec(ns, "{}")
    rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
    written = write_batches(iter([rows]), spec, TaskIdentity(0, 0))
    txn = DataFrameTransaction(ns, write_jobs.begin(ns, spec.numbers), "{}")
    txn._segments.extend(write_jobs.segments_of(written, spec.numbers, spec.numbers.txn))
    txn._written["orders"] = len(numbers)
    return txn


@pytest.mark.parametrize("call", ["commit", "flush"])
def test_a_call_that_is_interrupted_anywhere_and_repeated_reports_the_true_end(namespace: Namespace, call: str) -> None:
    ns = namespace
    ns.create_topic("orders", SCHEMA)
    expected: list[int] = []
    problems: list[str] = []
    for place in itertools.count(1):
        told = None
        with begun(ns, 2 * place, 2 * place + 1) as txn:
            more = interrupted(getattr(txn, call), MODULES, place)
            try:
                told = txn.commit()
            except TxnLogError as error:
                problems.append(f"{place}: refused: {error}"[:300])
                txn.abort()
        if told is not None:
            expected += [2 * place, 2 * place + 1]
        if not more:
            break
    assert place > 15, "places"
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == expected
    assert problems == []


class Doubtful:
    """A transaction whose first flush is not answered; it tells what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def flush(self) -> None:
        self.calls.append("flush")
        if self.calls.count("flush") == 1:
            raise OutcomeUnknown("no answer")


def test_what_a_flush_left_unknown_is_logged_before_more_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call after call would else make one entry larger, until it is too large for the log."""
    monkeypatch.setattr(write_jobs, "entries_of", lambda segments: ([item] for item in segments))
    monkeypatch.setattr(write_jobs, "adopt_segments", lambda txn, segments: txn.calls.extend(segments))
    txn, segments = Doubtful(), ["a", "b", "c"]
    with pytest.raises(OutcomeUnknown):
        write_jobs.add_segments(txn, segments)  # type: ignore[arg-type]
    write_jobs.add_segments(txn, segments)  # type: ignore[arg-type]
    assert txn.calls == ["a", "flush", "a", "flush", "b", "flush", "c"]
    assert segments == []


class Frame:
    """As much of a DataFrame as a write asks for before its job."""

    schema = StructType([StructField("id", LongType())])
    columns = ("id",)

    def toDF(self, *_: str) -> Frame:  # noqa: N802 - Spark's name
        return self

    def mapInArrow(self) -> None:  # noqa: N802 - Spark's name
        raise NotImplementedError


def test_a_write_that_is_interrupted_behind_its_job_leaves_only_the_abort(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever catches the interrupt and commits would commit without the rows, or with rows that he writes again."""
    ns = namespace
    ns.create_topic("orders", SCHEMA)
    jobs_run: list[int] = []

    def collect(_: object, task: partial[object], *__: object, **___: object) -> list[Row]:
        rows = pa.record_batch([pa.array([len(jobs_run)], pa.int64())], schema=SCHEMA)
        written = write_batches(iter([rows]), task.keywords["spec"], TaskIdentity(0, 0))
        jobs_run.append(len(jobs_run))
        return [Row(segment=item.to_json()) for item in written]

    monkeypatch.setattr(arrow_batches, "collect", collect)
    expected: list[int] = []
    refused = 0
    for place in itertools.count(1):
        before = len(jobs_run)
        txn = DataFrameTransaction(ns, write_jobs.begin(ns, write_jobs.reserve_job(ns)), "{}")
        with suppress(TransactionHasFailedOperation), txn:
            more = interrupted(partial(txn.write, Frame(), "orders"), MODULES, place)  # type: ignore[arg-type]
            ran = len(jobs_run) > before
            if more and ran:
                refused += 1
                with pytest.raises(TransactionHasFailedOperation):
                    txn.commit()
            elif ran:
                expected += jobs_run[before:]
        if not more:
            break
    assert place > 15, "places"
    assert refused > 5
    assert len(expected) == 1
    assert ns.snapshot().read("orders").column("id").to_pylist() == expected
