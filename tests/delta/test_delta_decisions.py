"""``spark_ext.transaction(..., decided_by=table)``: one decision for a Delta table and for topics, whoever dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from spark_ext.delta.delta_table import DeltaTable
from spark_ext.delta.idempotence import app_of
from tests.delta.lives import Death, Shop, dying_at_every_step, shop
from txnlog.api.namespace import Namespace
from txnlog.api.transaction import Transaction
from txnlog.errors import (
    ConsumerFenced,
    InvalidInputError,
    OutcomeUnknown,
    ProducerFenced,
    SchemaMismatch,
    TransactionConflict,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shop"]  # a fixture

STEPS = [
    "before our prepare",
    "after our prepare",
    "before Delta's commit",
    "after Delta's commit",
    "before our commit",
    "after our commit",
]


@pytest.mark.timeout(900)
def test_a_driver_that_dies_at_any_step_doubles_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(shop: Shop) -> None:
        assert set(shop.in_topic()) <= set(shop.in_delta()), "the table decides first"
        shop.produce()
        shop.decided(max_messages=1000)  # other batches than before: nothing depends on that

    def check(shop: Shop) -> None:
        shop.check()
        assert shop.ns.transactions(state="PREPARED") == ()

    steps = dying_at_every_step(spark, tmp_path, monkeypatch, Shop.decided, again, check=check)
    assert steps == [*STEPS, *STEPS]


@pytest.mark.parametrize("place", ["before", "after"])
def test_an_owner_that_hangs_at_its_append_while_a_newer_one_recovers_takes_effect_once_or_never(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    original, appends = DeltaTable.append, []

    def append(table: DeltaTable, *given: Any) -> None:
        appends.append(given)
        if len(appends) == 1 and place == "before":
            shop.decided(max_messages=1000)
        original(table, *given)
        if len(appends) == 1 and place == "after":
            shop.decided(max_messages=1000)

    shop.born()
    monkeypatch.setattr(DeltaTable, "append", append)
    fenced = ProducerFenced if place == "before" else ConsumerFenced  # the first batch was committed, by the newer one
    with pytest.raises(fenced, match="decided against" if place == "before" else "this consumer's"):
        shop.decided()
    shop.check()


def test_an_owner_whose_transaction_was_settled_meanwhile_appends_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, appends = DeltaTable.append, []

    def append(table: DeltaTable, *given: Any) -> None:
        appends.append(given)
        if len(appends) == 1:
            with spark_ext.transaction(shop.spark, shop.path, producer="bills", decided_by=shop.table):
                pass  # it settles, and has no work of its own
        original(table, *given)

    shop.born()
    monkeypatch.setattr(DeltaTable, "append", append)
    with pytest.raises(ProducerFenced, match="decided against"):
        shop.decided()
    assert (shop.in_topic(), shop.in_delta(), shop.behind()) == ([], [], 8)
    shop.decided()
    shop.check()


def test_an_owner_that_was_settled_before_it_asks_the_log_appends_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, prepared = Transaction.prepare, []

    def prepare(txn: Transaction) -> str:
        token = original(txn)
        prepared.append(token)
        if len(prepared) == 1:
            with spark_ext.transaction(shop.spark, shop.path, producer="bills", decided_by=shop.table):
                pass  # it settles, and has no work of its own
        return token

    shop.born()
    monkeypatch.setattr(Transaction, "prepare", prepare)
    with pytest.raises(ProducerFenced, match="decided against"):
        shop.decided()
    assert (shop.in_topic(), shop.in_delta(), shop.behind()) == ([], [], 8)
    shop.decided()
    shop.check()


@pytest.mark.parametrize("commit", [True, False])
def test_a_commit_that_is_asked_for_again_appends_nothing_that_was_decided(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, commit: bool
) -> None:
    """Its end is in the log, and the answer did not come."""
    complete, append = Namespace.complete, DeltaTable.append
    answers: list[str] = []

    def without_an_answer(ns: Namespace, token: str, *, commit: bool) -> Any:
        found = complete(ns, token, commit=commit)
        if not answers:
            answers.append(token)
            raise OutcomeUnknown("the store did not answer")
        return found

    def unheard(table: DeltaTable, df: Any, app: str, version: int, *given: Any) -> None:
        if not commit and version % 2 == 0 and not answers:
            raise OSError("an executor was lost")
        append(table, df, app, version, *given)

    shop.born()
    monkeypatch.setattr(Namespace, "complete", without_an_answer)
    monkeypatch.setattr(DeltaTable, "append", unheard)
    consumer = shop.ns.consumer("orders", subscription="billing", takeover=True)
    with spark_ext.transaction(shop.spark, shop.path, producer="bills", decided_by=shop.table) as txn:
        messages = consumer.receive(max_messages=1000, timeout_ms=0)
        rows = shop.spark.createDataFrame(messages.table.select(["id", "customer"]))
        txn.write(rows, "bills")
        spark_ext.write_delta(rows, shop.table, txn)
        txn.acknowledge(messages)
        with pytest.raises(OutcomeUnknown):
            txn.commit()
        if commit:
            txn.commit()
        else:
            with pytest.raises(ProducerFenced):
                txn.commit()
    consumer.close()
    assert shop.in_delta() == shop.in_topic()
    shop.decided()
    shop.check()


def test_what_delta_refuses_is_aborted_and_its_messages_come_again(shop: Shop) -> None:
    shop.born()
    consumer = shop.ns.consumer("orders", subscription="billing", takeover=True)

    def bill(column: str) -> None:
        with spark_ext.transaction(shop.spark, shop.path, producer="bills", decided_by=shop.table) as txn:
            messages = consumer.receive(max_messages=1000, timeout_ms=0)
            rows = shop.spark.createDataFrame(messages.table.select(["id", "customer"]))
            txn.write(rows, "bills")
            spark_ext.write_delta(rows.withColumnRenamed("customer", column), shop.table, txn)
            txn.acknowledge(messages)

    with pytest.raises(SchemaMismatch, match="DELTA_METADATA_MISMATCH"):
        bill("client")
    assert (shop.in_topic(), shop.in_delta(), shop.behind()) == ([], [], 8)
    assert shop.ns.transactions(state="PREPARED") == ()
    consumer.redeliver_unacknowledged()
    bill("customer")
    shop.check()


def test_a_table_that_has_a_later_decision_does_not_decide(shop: Shop) -> None:
    shop.born(2)  # prepared, and no more
    with pytest.raises(Death):
        shop.decided()
    shop.born()
    (prepared,) = shop.ns.transactions(state="PREPARED")
    table = DeltaTable(shop.spark, shop.table)
    app = app_of(shop.ns._connection, "producer/bills")
    table.take(app, 2 * prepared.version + 4, {})
    with pytest.raises(TransactionConflict, match="does not show how it decided"):
        shop.decided()
    shop.ns.complete(prepared.txn_id, commit=False)
    shop.decided()
    shop.check()


def test_what_does_not_fit_is_refused(shop: Shop) -> None:
    other = str(shop.folder / "other")
    shop.empty().write.format("delta").save(other)
    with pytest.raises(InvalidInputError, match="decided_by goes with producer"):
        spark_ext.transaction(shop.spark, shop.path, decided_by=shop.table)
    with pytest.raises(InvalidInputError, match="without txn_app_id"):
        spark_ext.transaction(shop.spark, shop.path, producer="b", txn_app_id="a", txn_version=1, decided_by=shop.table)
    with pytest.raises(InvalidInputError, match="there is no Delta table"):
        spark_ext.transaction(shop.spark, shop.path, producer="b", decided_by=str(shop.folder / "none"))
    with spark_ext.transaction(shop.spark, shop.path, producer="b", decided_by=shop.table) as txn:
        with pytest.raises(InvalidInputError, match="is decided by the Delta table"):
            spark_ext.write_delta(shop.empty(), other, txn)
        spark_ext.write_delta(shop.empty(), shop.table, txn)
        with pytest.raises(InvalidInputError, match="written to twice"):
            spark_ext.write_delta(shop.empty(), shop.table, txn)
