"""Ctrl-C in a call of a transaction of DataFrames: the call is repeated, and doubles, tears and loses nothing."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from spark_ext import jobs, transactions
from spark_ext.executor_writer import TaskIdentity, write_batches
from spark_ext.transactions import DataFrameTransaction
from tests.client.test_interrupts import interrupted
from txnlog import transaction, work
from txnlog.errors import TxnLogError

if TYPE_CHECKING:
    from txnlog.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])
MODULES: tuple[ModuleType, ...] = (jobs, transactions, transaction, work)


def begun(ns: Namespace, *numbers: int) -> DataFrameTransaction:
    """A transaction to which a job has written files."""
    record = ns.connection.topic_handle("orders").record
    spec = jobs.Planned(SCHEMA, record).spec(ns, "{}")
    rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
    written = write_batches(iter([rows]), spec, TaskIdentity(0, 0))
    txn = DataFrameTransaction(ns, jobs.begin(ns, spec.first_number - 1), "{}")
    txn._segments.extend(jobs.segments_of(written, spec.first_number, spec.first_number - 1))
    txn._written["orders"] = len(numbers)
    return txn


@pytest.mark.parametrize("call", ["commit", "flush"])
def test_a_call_that_is_interrupted_anywhere_and_repeated_tells_the_true_end(namespace: Namespace, call: str) -> None:
    ns = namespace
    ns.create_topic("orders", SCHEMA)
    expected: list[int] = []
    problems: list[str] = []
    for place in range(1, 500):
        told = None
        with begun(ns, 2 * place, 2 * place + 1) as txn:
            more = interrupted(getattr(txn, call), MODULES, place)
            try:
                told = txn.commit()
            except Exception as error:
                if not isinstance(error, TxnLogError):
                    problems.append(f"{place}: {type(error).__name__} {error}"[:200])
                else:
                    problems.append(f"{place}: refused: {error}"[:300])
                txn.abort()
        if told is not None:
            expected += [2 * place, 2 * place + 1]
        if not more:
            break
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == expected
    assert problems == []
