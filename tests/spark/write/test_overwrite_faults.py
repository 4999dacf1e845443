"""What overwriting from Spark, and reading by key, did wrong once; each docstring names the kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.support import namespace_cache
from spark_ext.support.options import WriteOptions
from spark_ext.write import write_jobs
from spark_ext.write.format_batch_writer import TaskWritten, TopicBatchWriter
from spark_ext.write.task_writer import TaskIdentity
from tests.spark.support import Frame, ids, path_of
from txnlog.errors import InvalidInputError, StoreError, TransactionConflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDS = pa.schema([("id", pa.int64())])
SPARK: Any = SimpleNamespace(conf={}, is_stopped=False)
"""A session of which nothing is asked."""


@pytest.fixture
def ns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[txnlog.Namespace]:
    """Frames of ours run in this process: there is no JVM."""
    attempts = itertools.count()
    monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
    with txnlog.open(tmp_path / "lake", "sales", create=True) as opened:
        opened.enable("holes")
        opened.create_topic("orders", IDS)
        opened.produce("orders", [{"id": 100}, {"id": 101}])
        namespace_cache.use(opened)
        yield opened


def begin(ns: txnlog.Namespace) -> Any:
    return spark_ext.transaction(SPARK, path_of(ns), storage_options={})


def fail_once(monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]) -> None:
    """The next job gets no numbers: the store does not take the entry that reserves them."""
    reserve, problems = write_jobs.reserve_job, [problem("no space left")]

    def reserved(ns: Any) -> Any:
        if problems:
            raise problems.pop()
        return reserve(ns)

    monkeypatch.setattr(write_jobs, "reserve_job", reserved)


@pytest.mark.parametrize("problem", [StoreError, KeyboardInterrupt])
def test_an_overwrite_that_failed_before_its_job_truncates_nothing(
    ns: txnlog.Namespace, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    """Loss: write(mode="overwrite") raised between the truncation and its job, the caller caught that as with an
    append, and the end of the block emptied the topic."""
    with begin(ns) as txn:
        fail_once(monkeypatch, problem)
        with pytest.raises(problem):
            txn.write(Frame(), "orders", mode="overwrite")
    assert ids(ns, "orders") == [100, 101]


def test_an_overwrite_that_failed_before_its_job_can_be_tried_again(
    ns: txnlog.Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A false error: the same call again said "'orders' was written to before in the transaction"."""
    with begin(ns) as txn:
        fail_once(monkeypatch, StoreError)
        with pytest.raises(StoreError):
            txn.write(Frame(), "orders", mode="overwrite")
        assert txn.write(Frame(), "orders", mode="overwrite") == 3
    assert ids(ns, "orders") == [1, 2, 3]


def test_a_topic_that_a_job_of_the_transaction_writes_to_cannot_be_overwritten(ns: txnlog.Namespace) -> None:
    """DOUBLED: the refusal of docs/spark.md ("a topic cannot be overwritten after the same transaction wrote to it")
    knows of finished jobs alone. Another thread overwrites while an append is under way, and the rows of both stay."""
    with begin(ns) as txn:

        def overwrite() -> None:
            with pytest.raises(InvalidInputError, match="was written to before"):
                txn.write(Frame(), "orders", mode="overwrite")

        txn.write(Frame(overwrite), "orders")
    assert ids(ns, "orders") == [1, 2, 3, 100, 101]


def test_a_topic_that_was_made_again_while_an_empty_frame_was_written_is_not_emptied(ns: txnlog.Namespace) -> None:
    """Loss: the format looked its topic up by name at the commit. With no file written nothing showed that it was
    another topic by then, and its rows went."""
    writer = TopicBatchWriter(WriteOptions(path_of(ns, "orders")), Frame.schema, True)
    ns.drop_topic("orders")
    ns.create_topic("orders", IDS)
    ns.produce("orders", [{"id": 7}])
    with pytest.raises(TransactionConflict):
        writer.commit([TaskWritten()])
    assert ids(ns, "orders") == [7]


def test_the_newest_rows_of_a_version_stay_what_they_were(namespace: txnlog.Namespace, spark: SparkSession) -> None:
    """A deleted key came back: a topic with the default columns got one more. From then on a row that ended its key
    and had headers counted as a live one, at the newest version and at every version before."""
    namespace.create_topic("events", key="key")
    headers = [("reason", b"left")]
    namespace.produce("events", [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"}])
    version = namespace.produce("events", [{"key": b"a", "value": None, "headers": headers}]).version

    def shown() -> list[bytes]:
        frame = spark_ext.read_topic(spark, path_of(namespace, "events"), version=version, newest_by="key")
        return sorted(bytes(row["key"]) for row in frame.collect())

    assert shown() == [b"b"]
    namespace.alter_topic("events", add_columns=pa.schema([("extra", pa.string())]))
    assert shown() == [b"b"]
