"""``spark_ext.process``: a handler over a subscription, batch by batch, exactly once, with no checkpoint directory."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.processing.stop import Stop
from tests.by_hand import append
from tests.spark.shop import SCHEMA, Shop, shop
from tests.spark.support import ids, versions
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    Durable,
    InvalidTransactionState,
    SchemaMismatch,
    TopicNotFound,
    TransactionHasFailedOperation,
)
from txnlog.format.actions import DeleteRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.write.dataframe_transaction import DataFrameTransaction
from tests.spark.handlers import commits, hides_a_mismatch
from txnlog.common.pauses import Backoff

__all__ = ["shop"]  # a fixture


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


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("bad", "kind", "problem"),
    [
        (lambda _batch, _txn: 1 / 0, ZeroDivisionError, "division"),
        (lambda batch, txn: txn.write(batch, "evne"), TopicNotFound, "did you mean 'even'"),
        (lambda batch, txn: txn.write(batch.withColumn("x", F.lit(1)), "odd"), SchemaMismatch, "no column 'x'"),
        (hides_a_mismatch, TransactionHasFailedOperation, "topic 'odd', column 'id': null"),
        (lambda _batch, txn: txn.abort(), InvalidTransactionState, "the handler aborted the transaction of the batch"),
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


def test_a_handler_that_exits_ends_the_program_and_leaves_nothing_of_its_batch(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        shop.handle(batch, txn)
        sys.exit(3)

    shop.produce(0)
    with pytest.raises(SystemExit) as raised:
        shop.run(handler)
    assert raised.value.code == 3
    shop.check(0, 0)
    assert (shop.behind(), shop.ns.transactions("OPEN")) == (4, ())


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

    monkeypatch.setattr("spark_ext.processing.run._HANDLER_BACKOFF", Backoff(1_000.0, 30_000.0))
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


def test_more_work_of_a_handler_behind_its_own_commit_is_refused_and_not_as_if_nothing_were_durable(shop: Shop) -> None:
    def handler(batch: DataFrame, txn: DataFrameTransaction) -> None:
        txn.commit()
        shop.handle(batch, txn)

    shop.produce(0)
    with pytest.raises(InvalidTransactionState, match="the transaction of the batch is committed") as raised:
        shop.run(handler)
    assert "leave txn.commit() out of the handler" in raised.value.advice
    assert raised.value.durable is Durable.MAYBE
    assert "the handler had committed its batch" in raised.value.__notes__[-1]
    shop.check(0, 0)
    assert shop.behind() == 0
