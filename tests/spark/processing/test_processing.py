"""``spark_ext.process``: a handler over a subscription, batch by batch, exactly once, with no checkpoint directory."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
from spark_ext.processing.batch_plan import claim
from spark_ext.processing.progress import progress_line
from spark_ext.processing.run import Run
from spark_ext.processing.stop import Stop
from spark_ext.support import namespace_cache
from spark_ext.support.spark_errors import without_txnlog
from tests.by_hand import append
from tests.client.support import Place, memory_place
from tests.spark.shop import SCHEMA, Shop, shop
from tests.spark.support import ids, path_of, versions
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    InvalidInputError,
    InvalidTransactionState,
    NameNotAllowed,
    NamespaceNotFound,
    OffsetOutOfRange,
    SchemaMismatch,
    StoreError,
    TopicNotFound,
    TransactionHasFailedOperation,
    UnsupportedFeature,
)
from txnlog.format.actions import Commit, DeleteRecords
from txnlog.format.keys import kind_of
from txnlog.store import CountingStore, ForwardingStore, ObjectNotFound
from txnlog.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_ext.write.dataframe_transaction import DataFrameTransaction
    from txnlog.api.namespace import Namespace

__all__ = ["memory_place", "shop"]  # fixtures


def commits(ns: Namespace, numbers: tuple[int, ...]) -> list[Commit]:
    entries = [ns._connection.follower.log.entry(number).actions for number in numbers]
    return [action for actions in entries for action in actions if isinstance(action, Commit)]


# --- batches ----------------------------------------------------------------------------------------------------------


def test_each_batch_is_one_entry_with_what_the_handler_wrote_and_its_acknowledgement(shop: Shop) -> None:
    for first in (0, 4, 8):
        shop.produce(first)
    result = shop.run()
    assert (result.batches, result.rows, result.dead_letters, result.stopped) == (3, 12, 0, "caught_up")
    assert shop.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    shop.check(0, 12)
    assert shop.behind() == 0
    assert set(result.versions) == versions(shop.ns, "even")
    assert all(len(commit.acknowledgements) == 1 for commit in commits(shop.ns, result.versions))
    again = shop.run()
    assert (again.batches, again.versions, again.stopped) == (0, (), "caught_up")
    assert len(shop.calls) == 3


def test_a_batch_ends_between_versions_and_has_no_more_rows_than_it_should_if_that_can_be(shop: Shop) -> None:
    for first, count in ((0, 3), (3, 7), (10, 1), (11, 2), (13, 2)):
        shop.produce(first, count)
    shop.run(max_rows=4)
    assert shop.calls == [[0, 1, 2], [*range(3, 10)], [10, 11, 12], [13, 14]], "the second one is a single transaction"
    shop.produce(15, 3)
    shop.produce(18, 3)
    shop.run(max_rows=None)
    assert shop.calls[4:] == [[*range(15, 21)]]
    shop.check(0, 21)


def test_available_now_ends_with_what_was_there_at_its_start(shop: Shop) -> None:
    def more(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        shop.produce(100 * len(shop.calls))

    shop.produce(0)
    shop.produce(4)
    assert shop.run(more).batches == 2
    assert shop.calls == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shop.behind() == 8


def test_a_run_has_the_subscription_until_it_returns_and_keeps_it_where_it_raises(shop: Shop) -> None:
    refused: list[ConsumerBusy] = []

    def handler(frame: Any, txn: Any) -> None:
        with pytest.raises(ConsumerBusy, match="the query 'nightly'") as caught:
            shop.ns.consumer("orders", "billing")
        refused.append(caught.value)

    def process(work: Any) -> None:
        shop.run(work, query_name="nightly")

    def fail(frame: Any, txn: Any) -> None:
        raise ValueError("wrong")

    shop.produce(0)
    process(handler)
    assert len(refused) == 1
    shop.ns.consumer("orders", "billing").close()
    shop.produce(4)
    with pytest.raises(ValueError, match="wrong"):
        process(fail)
    with pytest.raises(ConsumerBusy, match="the query 'nightly'"):
        shop.ns.consumer("orders", "billing")
    process(handler)
    shop.ns.consumer("orders", "billing").close()


def test_it_goes_on_where_a_consumer_left_the_cursor(shop: Shop) -> None:
    for first in (0, 4):
        shop.produce(first)
    consumer = shop.ns.consumer("orders", "billing", takeover=True)
    messages = consumer.receive(4)
    consumer.acknowledge(messages)
    taken = messages.table.column("id").to_pylist()
    shop.run(max_rows=None)
    assert shop.calls == [sorted(set(range(8)) - set(taken))]
    with pytest.raises(ConsumerFenced):
        consumer.receive(timeout_ms=0)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [*range(8)]),
        ("latest", []),
        ({0: 1, 1: 4}, [2, 4, 6]),
        ({"orders": {0: 4, 1: 3}}, [7]),
        ({"orders": "latest"}, []),
    ],
    ids=str,
)
def test_a_new_subscription_begins_where_start_says(shop: Shop, start: Any, expected: list[int]) -> None:
    shop.produce(0, 8)
    shop.run(start=start)
    assert [i for call in shop.calls for i in call] == expected
    shop.produce(8)
    shop.run(start="earliest")
    assert shop.calls[-1] == [8, 9, 10, 11], "start counts for a new one only"


def test_what_was_acknowledged_or_prepared_by_itself_stays_out_of_the_batches(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.produce(0, 20)
    consumer = shop.ns.consumer("orders", "billing", takeover=True)
    messages = consumer.receive(20)  # partition 0, then 1: ten offsets each
    by_place = {(partition, offset): i for i, (_, partition, offset) in enumerate(messages.positions)}
    consumer.acknowledge(messages[[by_place[0, 3], by_place[0, 4]]])
    with shop.ns.begin() as txn:
        txn.acknowledge(messages[[by_place[1, 0], by_place[1, 6]]])
        token = txn.prepare()
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        result = shop.run(max_rows=None)
    assert "2 messages are pending" in caplog.text
    held, gone = [1, 13], [6, 8]
    done = sorted(set(range(20)) - {*held, *gone})
    assert sorted(i for call in shop.calls for i in call) == done
    assert result.rows == 16
    assert shop.calls[0] == sorted([0, 2, 4, *range(3, 13, 2)]), "up to what others have, in each partition"
    shop.ns.complete(token, commit=False)
    shop.run()
    assert sorted(i for call in shop.calls[result.batches :] for i in call) == held
    assert shop.behind() == 0


def test_what_was_deleted_unread_is_taken_with_a_warning(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.produce(0, 20)
    shop.ns.create_subscription("orders", "billing")
    append(shop.ns, DeleteRecords(shop.ns.topic("orders").id, ((0, 7),)))
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        assert shop.run().rows == 13
    assert "7 messages were deleted" in caplog.text
    assert shop.calls == [sorted([14, 16, 18, *range(1, 20, 2)])]
    assert shop.behind() == 0


@pytest.mark.parametrize("native", [True, False], ids=["native", "format"])
def test_several_topics_are_one_batch_with_the_topics_name_and_metadata(shop: Shop, native: bool) -> None:
    shop.ns.create_topic("returns", SCHEMA)
    shop.produce(0)
    shop.produce(100, topic="returns")
    shop.produce(4)
    seen: list[Any] = []

    def look(batch: DataFrame, txn: DataFrameTransaction) -> None:
        seen.append((batch.columns, {(row["_topic"], row["id"], row["_version"]) for row in batch.collect()}))
        shop.handle(batch, txn)

    result = shop.run(look, topics=["orders", "returns"], max_rows=8, include_metadata=True, native=native)
    metadata = ["_partition", "_offset", "_timestamp", "_txn_id", "_version"]
    assert [columns for columns, _ in seen] == [["id", "customer", *metadata, "_topic"]] * 2
    expected = shop.ns.snapshot().read("orders", include_metadata=True).to_pylist()
    orders = {("orders", row["id"], row["_version"]) for row in expected}
    expected = shop.ns.snapshot().read("returns", include_metadata=True).to_pylist()
    returns = {("returns", row["id"], row["_version"]) for row in expected}
    assert seen[0][1] == {row for row in orders if row[1] < 4} | returns
    assert seen[1][1] == {row for row in orders if row[1] >= 4}
    first, second = commits(shop.ns, result.versions)
    assert (len(first.acknowledgements), len(second.acknowledgements)) == (2, 1)
    assert shop.behind() == shop.behind("returns") == 0


@pytest.mark.parametrize("native", [True, False], ids=["native", "format"])
def test_one_topic_has_no_topic_column_and_no_metadata_unless_asked(shop: Shop, native: bool) -> None:
    shop.produce(0)
    columns: list[list[str]] = []
    shop.run(lambda batch, _txn: columns.append(batch.columns), topics="orders", native=native)
    more = {"subscription": "more", "include_metadata": True, "native": native}
    shop.run(lambda batch, _txn: columns.append(batch.columns), **more)
    assert columns == [
        ["id", "customer"],
        ["id", "customer", "_partition", "_offset", "_timestamp", "_txn_id", "_version"],
    ]


def test_a_handler_may_write_nothing_or_commit_by_itself(shop: Shop) -> None:
    shop.produce(0)
    assert shop.run(lambda _batch, _txn: None).rows == 4
    assert shop.behind() == 0
    shop.produce(4)

    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        txn.commit()

    shop.run(handler)
    shop.check(4, 8)
    assert shop.behind() == 0


# --- a handler that fails ---------------------------------------------------------------------------------------------


def _swallows(batch: DataFrame, txn: DataFrameTransaction) -> None:
    with contextlib.suppress(SchemaMismatch):
        txn.write(batch.selectExpr("if(id = 6, null, id) AS id"), "odd")


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("bad", "kind", "problem"),
    [
        (lambda _batch, _txn: 1 / 0, ZeroDivisionError, "division"),
        (lambda batch, txn: txn.write(batch, "evne"), TopicNotFound, "did you mean 'even'"),
        (lambda batch, txn: txn.write(batch.withColumn("x", F.lit(1)), "odd"), SchemaMismatch, "no column 'x'"),
        (_swallows, TransactionHasFailedOperation, "topic 'odd', column 'id': null"),
        (lambda _batch, txn: txn.abort(), InvalidTransactionState, "was aborted"),
    ],
    ids=["raises", "unknown topic", "unknown column", "swallows", "aborts"],
)
def test_a_handler_that_fails_stops_the_run_and_leaves_nothing_of_its_batch(
    shop: Shop, bad: Any, kind: type[Exception], problem: str
) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if len(shop.calls) == 2:
            bad(batch, txn)

    shop.produce(0)
    shop.produce(4)
    with pytest.raises(kind, match=problem) as raised:
        shop.run(handler)
    assert any("nothing of its batch was committed (orders 0: 2 to 4, 1: 2 to 4)" in n for n in raised.value.__notes__)
    shop.check(0, 4)
    assert shop.behind() == 4
    assert shop.ns.transactions("OPEN") == ()
    assert shop.run(lambda batch, _txn: shop.calls.append(sorted(row["id"] for row in batch.collect()))).rows == 4
    assert shop.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]


def test_a_handler_is_tried_as_often_as_asked(shop: Shop) -> None:
    def flaky(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if len(shop.calls) < 3:
            raise OSError("not there yet")

    shop.produce(0)
    assert shop.run(flaky, max_attempts=3).rows == 4
    assert shop.calls == [[0, 1, 2, 3]] * 3
    shop.check(0, 4)


def test_a_handler_that_fails_is_tried_again_after_longer_and_longer_pauses(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that it calls may be down for some seconds: that says nothing of the messages."""

    def flaky(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        if len(shop.calls) < 8:
            raise OSError("not there yet")

    pauses: list[float] = []

    def wait(_self: Stop, _runtime: object, milliseconds: float) -> bool:
        pauses.append(milliseconds)
        return False

    monkeypatch.setattr("spark_ext.processing.run._HANDLER_PAUSE_MS", 1000.0)
    monkeypatch.setattr(Stop, "wait", wait)
    shop.produce(0)
    assert shop.run(flaky, max_attempts=8).rows == 4
    assert len(pauses) == 7
    for pause, most in zip(pauses, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000], strict=True):
        assert most / 2 <= pause <= most


def test_a_handler_that_fails_behind_its_own_commit_is_not_run_again(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        txn.commit()
        raise ValueError("as planned")

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="dead")
    shop.produce(0)
    with pytest.raises(ValueError, match="as planned") as raised:
        shop.run(handler, on_error="dead_letter")
    assert "the handler had committed its batch" in raised.value.__notes__[-1]
    shop.check(0, 4)
    assert (shop.behind(), ids(shop.ns, "dead")) == (0, [])


# --- dead letters -----------------------------------------------------------------------------------------------------


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


def test_tasks_whose_python_has_no_txnlog_are_no_reason_for_dead_letters(shop: Shop) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        error = PySparkException("an exception of a task\nModuleNotFoundError: No module named 'txnlog'")
        raise without_txnlog(error) or error from error

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(UnsupportedFeature, match="the Python of Spark's tasks has no module txnlog"):
        shop.run(handler, on_error="dead_letter")
    assert (len(shop.calls), ids(shop.ns, "orders-dead"), shop.behind()) == (1, [], 4)


def test_trouble_with_the_store_is_no_reason_for_dead_letters(shop: Shop) -> None:
    def handler(_batch: DataFrame, _txn: DataFrameTransaction) -> None:
        shop.calls.append([])
        raise StoreError("the disk is full")

    shop.ns.create_subscription("orders", "billing", dead_letter_topic="orders-dead")
    shop.produce(0)
    with pytest.raises(StoreError, match="the disk is full"):
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
        (_swallows, "TransactionHasFailedOperation: "),
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


# --- what it is asked -------------------------------------------------------------------------------------------------


@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"topics": []}, InvalidInputError, "topics is the name"),
        ({"topics": 7}, InvalidInputError, "topics is the name"),
        ({"topics": ["ordres"]}, TopicNotFound, r"did you mean 'orders'\?; nothing was written"),
        ({"topics": ["orders", "counts"]}, SchemaMismatch, "different columns"),
        ({"subscription": "a/b"}, NameNotAllowed, "a/b"),
        ({"subscription": None}, NameNotAllowed, "None"),
        ({"handler": "no function"}, InvalidInputError, "handler is a function"),
        ({"handler": len}, InvalidInputError, "handler cannot be called with a batch and its tra"),
        ({"handler": setattr}, InvalidInputError, "cannot be called .*: missing a required argument: 'value'"),
        ({"trigger": "once"}, InvalidInputError, "unknown trigger 'once'"),
        ({"trigger": {"processingTime": "1 second"}}, InvalidInputError, "interval_ms"),
        ({"trigger": {"interval_ms": 0}}, InvalidInputError, "interval_ms is a length of time, at least 1ms"),
        ({"on_error": "ignore"}, InvalidInputError, "unknown on_error 'ignore'"),
        ({"on_error": ["stop"]}, InvalidInputError, "unknown on_error"),
        ({"on_error": "dead_letters"}, InvalidInputError, "did you mean 'dead_letter'"),
        ({"max_rows": 0}, InvalidInputError, "max_rows"),
        ({"max_attempts": 0}, InvalidInputError, "max_attempts"),
        ({"query_name": ""}, NameNotAllowed, "query_name"),
        ({"stop": 5}, InvalidInputError, "stop is a threading.Event"),
        ({"start": "soon"}, InvalidInputError, "unknown position 'soon'"),
        ({"include_metadata": "no"}, InvalidInputError, "include_metadata is True or False, not 'no'"),
        ({"native": "false"}, InvalidInputError, "native is True or False, not 'false'"),
        ({"progress": 0}, InvalidInputError, "progress is True or False, not 0"),
        ({"start": {"ordres": "latest"}}, InvalidInputError, "did you mean 'orders'"),
        ({"storage_options": {"key": object()}}, InvalidInputError, "plain values"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    shop: Shop, options: dict[str, Any], kind: type[Exception], problem: str
) -> None:
    shop.ns.create_topic("counts", pa.schema([("customer", pa.string())]))
    version = shop.ns.snapshot().version
    with pytest.raises(kind, match=problem):
        shop.run(**options)
    assert shop.ns.snapshot().version == version


def test_a_handler_is_called_as_it_is_not_as_what_it_wraps(shop: Shop) -> None:
    def inner(batch: DataFrame, txn: DataFrameTransaction, handle: Any) -> None:
        handle(batch, txn)

    @functools.wraps(inner)
    def outer(batch: DataFrame, txn: DataFrameTransaction) -> None:
        inner(batch, txn, shop.handle)

    shop.produce(0)
    assert shop.run(outer).rows == 4


@pytest.mark.parametrize(
    ("start", "kind", "problem"),
    [
        ("begin", InvalidInputError, "unknown position 'begin'"),
        (None, InvalidInputError, "unknown position None"),
        ({2: 0}, OffsetOutOfRange, "no partition 2"),
        ({0: -1}, InvalidInputError, "an offset is a whole number"),
        ({"audit": "begin"}, InvalidInputError, "unknown position 'begin'"),
        ({"ordres": "latest"}, InvalidInputError, "did you mean 'orders'"),
        ("2062-11-25T00:00:00Z", InvalidInputError, "in the future"),
        ({"audit": "2062-11-25T00:00:00Z"}, InvalidInputError, "in the future"),
    ],
    ids=str,
)
@pytest.mark.parametrize("there", [(), ("orders",), ("audit",), ("orders", "audit")], ids=str)
def test_a_start_that_is_none_is_refused_whether_or_not_the_subscription_is_there(
    memory: Place, there: tuple[str, ...], start: Any, kind: type[Exception], problem: str
) -> None:
    ns = memory.open()
    topics = ["orders", "audit"]
    for topic in topics:
        ns.create_topic(topic, SCHEMA)
    for topic in there:
        ns.create_subscription(topic, "billing")
    version = ns.snapshot().version
    with pytest.raises(kind, match=problem):
        claim(ns._connection, topics, "billing", query_name="q", start=start, to_dead_letters=False)
    assert ns.snapshot().version == version


def test_a_start_that_was_deleted_meanwhile_is_no_reason_to_refuse_a_subscription_that_is_there(shop: Shop) -> None:
    shop.run(start={0: 0, 1: 0})
    shop.produce(0, 20)
    append(shop.ns, DeleteRecords(shop.ns.topic("orders").id, ((0, 7),)))
    assert shop.run(start={0: 0, 1: 0}).rows == 13


@pytest.mark.parametrize("connect", [False, True], ids=["", "connect"])
def test_a_root_that_spark_itself_cannot_read_is_reported_before_anything_is_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, connect: bool
) -> None:
    """No file system for the root's scheme; or, behind Connect, another machine's folder."""
    shop.produce(0)
    version = shop.ns.snapshot().version
    if connect:  # without a JVM of its own
        monkeypatch.setattr(
            shop, "spark", SimpleNamespace(read=shop.spark.read, conf=shop.spark.conf, is_stopped=False)
        )
    address, problem = ("", "PATH_NOT_FOUND") if connect else ("nowhere:/", 'No FileSystem for scheme "nowhere"')
    url = f"{address}/not/here"
    monkeypatch.setattr(LocalStore, "url", lambda _store, key: f"{url}/{key}")
    with pytest.raises(InvalidInputError, match=rf"own scan cannot read .*{problem}.* \(pass native=False"):
        shop.run()
    assert shop.ns.snapshot().version == version
    monkeypatch.undo()
    shop.run()
    shop.check(0, 4)


def test_a_path_is_a_namespace(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match=r"names the topic 'orders'.* and name it in topics="):
        spark_ext.process(
            shop.spark, path_of(shop.ns, "orders"), topics="orders", subscription="billing", handler=shop.handle
        )
    with pytest.raises(NamespaceNotFound):
        spark_ext.process(shop.spark, f"{shop.ns.root}/no/no", topics="a", subscription="b", handler=shop.handle)


@pytest.mark.parametrize("options", [{"type": "shared"}, {"type": "failover"}, {"takeover": "after_lease"}], ids=str)
def test_a_subscription_whose_messages_are_not_one_runs_alone_is_refused(shop: Shop, options: Any) -> None:
    shop.ns.create_topic("returns", SCHEMA)
    shop.ns.create_subscription("orders", "billing", **options)
    version = shop.ns.snapshot().version
    with pytest.raises(UnsupportedFeature, match="use an exclusive subscription"):
        shop.run(topics=["returns", "orders"])
    assert shop.ns.snapshot().version == version, "nor was the subscription of the other topic made"


# --- how it is watched ------------------------------------------------------------------------------------------------


def test_a_batch_is_a_line_in_the_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.produce(0)
    with caplog.at_level(logging.INFO, "txnlog.spark"):
        result = shop.run(query_name="nightly")
    found = [record for record in caplog.records if record.name == "txnlog.spark" and record.levelno == logging.INFO]
    lines = [record.getMessage() for record in found]  # a warning may be there as well: of functions that hang
    assert lines == [f"'nightly': batch 1 of 4 rows is version {result.versions[0]} (orders 0: 0 to 2, 1: 0 to 2)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_on_a_terminal_see_a_line_and_a_pipe_gets_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for first in (0, 4):
        shop.produce(first)
    for stream, wanted in ((io.StringIO(), True), (Terminal(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        subscription = f"s{len(shop.calls)}"
        shop.run(subscription=subscription, progress=wanted)
        monkeypatch.undo()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        seen = stream.getvalue()
        if isinstance(stream, Terminal) and wanted:
            assert f"{subscription}: 2 batches, 8 rows, 0 behind" in seen
        else:
            assert seen == ""


def test_without_the_package_for_it_a_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line("billing", wanted=True) as show:
        show("some text")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("own", [True, False])
def test_a_look_that_finds_nothing_is_two_reads_at_most(shop: Shop, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    store = shop.wrapped(lambda inner: CountingStore(inner, classify=kind_of))
    if not own:  # then the log's newest entry is looked at as well, once a second: here each time
        ((_, kept),) = [item for item in namespace_cache._handles.items() if item[1].namespace.root == shop.ns.root]
        kept.own = False
        monkeypatch.setattr(namespace_cache, "_LOOK_S", 0)
    looks: list[int] = []
    look = Run._look

    def counted(run: Run) -> Any:
        if len(looks) == 2:
            store.reset()  # the claim is made, and the log was read up to it
        looks.append(1)
        return look(run)

    monkeypatch.setattr(Run, "_look", counted)
    result = shop.run(stop=lambda: len(looks) >= 12, trigger={"interval_ms": 1})
    assert (result.batches, result.stopped) == (0, "asked")
    released = 1  # the subscription, when the run returns: an entry, before which a local log is looked at
    looked = (len(looks) - 2) * (1 if own else 2)
    assert store.counts() == {("get", "entry"): looked + released, ("create", "entry"): released}
