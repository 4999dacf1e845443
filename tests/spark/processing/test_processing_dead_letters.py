"""``spark_ext.process``: messages on which the handler fails, and troubles that are none of theirs."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.support.spark_errors import without_txnlog
from tests.spark.shop import SCHEMA, Shop, shop
from tests.spark.support import ids, path_of, versions
from txnlog.errors import (
    InvalidInputError,
    NameNotAllowed,
    SchemaMismatch,
    StoreError,
    TopicNotFound,
    UnsupportedFeature,
)
from txnlog.store import ForwardingStore, ObjectNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.write.dataframe_transaction import DataFrameTransaction
from tests.spark.handlers import commits, hides_a_mismatch

__all__ = ["shop"]  # a fixture


def test_messages_on_which_the_handler_fails_go_to_the_dead_letters_in_one_entry(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if 5 in shop.calls[-1]:
            raise ValueError("no five\nand more")

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    for first in (0, 4, 8):
        shop.produce(first)
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        result = shop.run(handler, on_error="dead_letter", max_attempts=2)
    assert (result.batches, result.rows, result.dead_letters) == (3, 12, 4)
    assert shop.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [8, 9, 10, 11]]
    letters = shop.ns.snapshot().read("orders-dead", include_metadata=True).to_pylist()
    source = {row["id"]: row for row in shop.ns.snapshot().read("orders", include_metadata=True).to_pylist()}
    assert sorted(row["id"] for row in letters) == [4, 5, 6, 7]
    for row in letters:
        assert row["customer"] == source[row["id"]]["customer"]
        assert row["_dead_reason"] == "the handler failed 2 times: ValueError: no five"
        assert (row["_source_topic"], row["_redeliveries"]) == ("orders", 2)
        assert (row["_source_partition"], row["_source_offset"]) == (
            source[row["id"]]["_partition"],
            source[row["id"]]["_offset"],
        )
        assert row["_partition"] == row["_source_partition"]
        assert row["_version"] == result.versions[1]
    (commit,) = commits(shop.ns, result.versions[1:2])
    assert len(commit.acknowledgements) == 1
    assert ids(shop.ns, "even") == [0, 2, 8, 10]
    assert shop.behind() == 0
    assert "goes to the dead letters" in caplog.text


def test_the_reason_of_what_failed_in_a_task_is_what_the_function_raised(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        fails = F.udf(lambda number: {}[number], "long", useArrow=False)
        with contextlib.suppress(Exception):
            txn.write(batch.withColumn("id", fails("id")), "even")

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    assert shop.run(handler, on_error="dead_letter", max_attempts=1).dead_letters == 4
    (reason,) = set(shop.ns.snapshot().read("orders-dead").column("_dead_reason").to_pylist())
    assert re.fullmatch(r"the handler failed 1 times: .* failed: PythonException: KeyError: \d", reason)


def test_a_reason_that_is_no_text_stands_in_the_dead_letters_all_the_same(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        raise FileNotFoundError(os.fsdecode(b"caf\xe9.csv"))

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    caplog.set_level(logging.CRITICAL, "txnlog")  # no report of a test may hold what is no text
    assert shop.run(handler, on_error="dead_letter", max_attempts=1).dead_letters == 4
    reasons = shop.ns.snapshot().read("orders-dead").column("_dead_reason").to_pylist()
    assert set(reasons) == {r"the handler failed 1 times: FileNotFoundError: caf\udce9.csv"}


def test_dead_letters_of_several_topics_go_where_each_subscription_says(shop: Shop) -> None:
    shop.ns.create_topic("returns", SCHEMA)
    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.ns.create_subscription("returns", "billing", dead_letter_topic="returns-dead")
    shop.produce(0)
    shop.produce(10, topic="returns")
    result = shop.run(
        lambda _batch, _txn: 1 / 0, topics=["orders", "returns"], on_error="dead_letter", max_attempts=1, max_rows=None
    )
    assert (result.batches, result.dead_letters) == (1, 8)
    assert (ids(shop.ns, "orders-dead"), ids(shop.ns, "returns-dead")) == ([0, 1, 2, 3], [10, 11, 12, 13])
    assert versions(shop.ns, "orders-dead", "returns-dead") == set(result.versions)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (UnsupportedFeature, "the Python of Spark's tasks has no module txnlog"),
        (StoreError, "the disk is full"),
    ],
)
def test_what_is_no_fault_of_the_messages_is_no_reason_for_dead_letters(
    shop: Shop, kind: type[Exception], match: str
) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        if kind is StoreError:
            raise StoreError("the disk is full")
        error = PySparkException("an exception of a task\nModuleNotFoundError: No module named 'txnlog'")
        raise without_txnlog(error) or error from error

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(kind, match=match):
        shop.run(handler, on_error="dead_letter")
    assert (len(shop.calls), ids(shop.ns, "orders-dead"), shop.behind()) == (1, [], 4)


@pytest.mark.some(1)
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("inside", ["collect", "write"])
def test_files_that_spark_cannot_read_are_no_reason_for_dead_letters(shop: Shop, inside: str, native: bool) -> None:
    """They are there again later, or they are damaged; of the messages in them it says nothing."""

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        files = list(Path(path_of(shop.ns, "orders")).rglob("*.parquet"))
        for file in files:
            file.rename(f"{file}.away")
        try:
            batch.collect() if inside == "collect" else txn.write(batch, "even")
        finally:
            for file in files:
                Path(f"{file}.away").rename(file)

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(Exception, match="FAILED_READ_FILE" if native else "CorruptionError: the segment"):
        shop.run(handler, on_error="dead_letter", native=native)
    assert (len(shop.calls), ids(shop.ns, "orders-dead"), shop.behind()) == (1, [], 4)
    shop.run()
    shop.check(0, 4)


class _Unreachable:
    """A session whose jobs come to nothing: its tasks have no way to the store, or it was stopped."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down and name in {"read", "_jsparkSession"}:
            raise Py4JError("the session was stopped")
        return getattr(self._spark, name)


@pytest.mark.parametrize("native", [True, False])
def test_a_spark_that_is_gone_is_no_reason_for_dead_letters(shop: Shop, native: bool) -> None:
    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    shop.spark = session = _Unreachable(shop.spark)  # type: ignore[assignment]

    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        session.down = True
        raise Py4JError("Cannot call methods on a stopped SparkContext")

    with pytest.raises(Py4JError, match="stopped SparkContext"):
        shop.run(handler, on_error="dead_letter", max_attempts=1, native=native)
    assert (ids(shop.ns, "orders-dead"), shop.behind()) == ([], 4)


class _WayToAll(ForwardingStore):
    """A store whose client finds files that were taken away from everybody else."""

    def get(self, key: str) -> bytes:
        try:
            return super().get(key)
        except ObjectNotFound:
            away = Path(f"{self.url(key)}.away")
            if not away.exists():
                raise
            return away.read_bytes()


def test_files_to_which_tasks_have_no_way_are_no_reason_for_dead_letters(shop: Shop) -> None:
    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    shop.wrapped(_WayToAll)  # this process, which would bring them to the dead letters, does not notice

    def handler(batch: DataFrame, _txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        for file in Path(path_of(shop.ns, "orders")).rglob("*.parquet"):
            file.rename(f"{file}.away")
        try:
            batch.collect()
        except PythonException:
            raise ValueError("no rates today") from None  # in the handler's own words, which say nothing of files

    with pytest.raises(ValueError, match="no rates today"):
        shop.run(handler, on_error="dead_letter", max_attempts=2, native=False)
    assert (len(shop.calls), ids(shop.ns, "orders-dead"), shop.behind()) == (2, [], 4)


@pytest.mark.parametrize(
    ("write", "kind", "problem"),
    [
        (lambda batch, txn: txn.write(batch, "evne"), TopicNotFound, "did you mean 'even'"),
        (lambda batch, txn: txn.write(batch, "a/b"), NameNotAllowed, "a/b"),
        (lambda batch, txn: txn.write(batch.withColumn("x", F.lit(1)), "odd"), SchemaMismatch, "no column 'x'"),
        (lambda batch, txn: txn.write(batch.collect(), "odd"), InvalidInputError, "takes a Spark DataFrame"),
        (lambda batch, txn: txn.write(batch.select("custmer"), "odd"), AnalysisException, "UNRESOLVED_COLUMN.*custmer"),
    ],
    ids=["unknown topic", "no name", "unknown column", "no DataFrame", "misspelt column"],
)
def test_a_call_that_is_wrong_whatever_the_messages_are_ends_the_run_and_makes_no_dead_letters(
    shop: Shop, write: Any, kind: type[Exception], problem: str
) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        write(batch, txn)

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(kind, match=problem) as raised:
        shop.run(handler, on_error="dead_letter")
    assert "nothing of its batch was committed" in raised.value.__notes__[-1]
    assert (len(shop.calls), ids(shop.ns, "orders-dead"), shop.behind()) == (1, [], 4)


def _writes_null(batch: DataFrame, txn: DataFrameTransaction) -> None:
    txn.write(batch.selectExpr("if(id = 2, null, id) AS id"), "odd")


def _claims_trouble(batch: DataFrame, _txn: DataFrameTransaction) -> None:
    def fails(_: int) -> int:
        raise ValueError("\ntxnlog.errors.CorruptionError: the text of a message")

    batch.select(F.udf(fails, "bigint", useArrow=False)("id")).collect()


def _ends_it(batch: DataFrame, txn: DataFrameTransaction) -> None:
    txn.abort()
    txn.write(batch, "odd")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (_writes_null, "SchemaMismatch: topic 'odd', column 'id': null"),
        (hides_a_mismatch, "TransactionHasFailedOperation: "),
        (_ends_it, "InvalidTransactionState: "),
        (_claims_trouble, "PythonException: "),
    ],
    ids=["null", "swallows", "aborts", "claims trouble"],
)
def test_an_error_of_ours_that_came_of_a_row_brings_its_batch_to_the_dead_letters(
    shop: Shop, bad: Any, reason: str
) -> None:
    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0, 8)
    assert shop.run(bad, on_error="dead_letter", max_attempts=1, max_rows=None).dead_letters == 8
    reasons = shop.ns.snapshot().read("orders-dead").column("_dead_reason").to_pylist()
    assert all(f"the handler failed 1 times: {reason}" in text for text in reasons)


def test_dead_letters_need_a_topic_that_can_take_them_before_anything_is_done(shop: Shop) -> None:
    shop.produce(0)
    with pytest.raises(InvalidInputError, match=r"'billing' of 'orders' does not exist yet .create it with "):
        shop.run(on_error="dead_letter")
    assert shop.ns.subscriptions("orders") == ()
    shop.ns.create_subscription("orders", "billing")
    epoch = shop.ns.subscription("orders", "billing").epoch
    with pytest.raises(InvalidInputError, match="has no dead-letter topic"):
        shop.run(on_error="dead_letter")
    shop.ns.create_subscription("orders", "other", dead_letter_topic="gone")
    shop.ns.drop_subscription("orders", "other")
    assert shop.ns.subscription("orders", "billing").epoch == epoch
    assert shop.calls == []


def test_a_subscription_without_a_dead_letter_topic_is_succeeded_by_one_that_has_it_as_advised(shop: Shop) -> None:
    for first in (0, 4):
        shop.produce(first)
    asked = iter([False, True])
    assert shop.run(stop=lambda: next(asked)).rows == 4
    with pytest.raises(InvalidInputError, match="has no dead-letter topic") as refused:
        shop.run(on_error="dead_letter")
    assert "ns.create_subscription('orders', 'another name', start={0: 2, 1: 2}, dead_letter" in refused.value.advice
    shop.ns.create_subscription("orders", "again", start={0: 2, 1: 2}, dead_letter_topic="orders-dead")
    assert shop.run(subscription="again", on_error="dead_letter").rows == 4
    shop.check(0, 8)


def test_the_advice_about_dead_letters_names_no_more_positions_than_a_person_reads(shop: Shop) -> None:
    shop.ns.create_topic("wide", SCHEMA, partitions=9)
    shop.ns.create_subscription("wide", "billing")
    with pytest.raises(InvalidInputError) as refused:
        shop.run(topics="wide", on_error="dead_letter")
    assert "start={item.partition: item.cursor for item in ns.lag('wide', 'billing')}" in refused.value.advice
    named = {item.partition: item.cursor for item in shop.ns.lag("wide", "billing")}
    shop.ns.create_subscription("wide", "again", start=named, dead_letter_topic="dead")
