"""``spark_ext.write_delta``: rows in a Delta table of somebody else's, once, wherever a driver dies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import catalog
import spark_ext
from spark_ext.delta.delta_table import DeltaTable
from spark_ext.delta.idempotence import app_of
from tests.delta.lives import SCHEMA, Death, QueryDeath, Shop, dying_at_every_step, shop
from txnlog.errors import ConsumerFenced, InvalidInputError, SchemaMismatch, TransactionConflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shop"]  # a fixture

STEPS = ["before Delta's commit", "after Delta's commit"]
ENTRY = ["before our commit", "after our commit"]


# --- a driver dies at every step --------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_a_run_of_process_that_dies_at_any_step_doubles_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(shop: Shop) -> None:
        shop.produce()
        shop.process(max_rows=None)  # would be another batch, if nothing were remembered

    steps = dying_at_every_step(spark, tmp_path, monkeypatch, Shop.process, again)
    assert steps == [*STEPS, *STEPS, *ENTRY, *STEPS, *ENTRY], "it takes the table over, then two batches"


@pytest.mark.timeout(900)
def test_a_query_that_dies_at_any_step_doubles_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(shop: Shop) -> None:
        shop.produce()
        shop.stream()

    steps = dying_at_every_step(
        spark, tmp_path, monkeypatch, Shop.stream, again, ends_with=QueryDeath, told=StreamingQueryException
    )
    assert steps == [*STEPS, *ENTRY, *STEPS, *ENTRY]


def test_a_transaction_with_a_version_that_dies_at_any_step_doubles_and_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nightly(shop: Shop) -> None:
        with spark_ext.transaction(spark, shop.path, txn_app_id="nightly", txn_version=7) as txn:
            if not txn.skipped:
                rows = spark.range(3).selectExpr("id", "'ann' AS customer")
                txn.write(rows, "bills")
                spark_ext.write_delta(rows, shop.table, txn)

    def check(shop: Shop) -> None:
        assert (shop.in_topic(), shop.in_delta()) == ([0, 1, 2], [0, 1, 2])

    steps = dying_at_every_step(spark, tmp_path, monkeypatch, nightly, nightly, check=check)
    assert steps == [*STEPS, *ENTRY]


def test_without_it_a_death_behind_the_append_doubles(shop: Shop) -> None:
    """The control: what people write first."""

    def handle(batch: Any, txn: Any) -> None:
        txn.write(batch.select("id", "customer"), "bills")
        batch.select("id", "customer").write.format("delta").mode("append").save(shop.table)

    shop.born(1)
    with pytest.raises(Death):
        shop.process(handle)
    shop.born()
    shop.process(handle)
    assert shop.in_topic() == list(range(8))
    assert shop.in_delta() == sorted([*range(4), *range(8)])


# --- two drivers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", STEPS)
def test_a_run_that_hangs_while_a_newer_one_does_the_work_adds_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    original, appends = DeltaTable.append, []

    def append(table: DeltaTable, *given: Any) -> None:
        appends.append(given)
        first = len(appends) == 2  # the one before it took the table over
        if first and place == STEPS[0]:
            newer()
        original(table, *given)
        if first and place == STEPS[1]:
            newer()

    def newer() -> None:
        shop.produce()
        shop.process(max_rows=None)

    monkeypatch.setattr(DeltaTable, "append", append)
    with pytest.raises(ConsumerFenced):
        shop.process()
    shop.check()


def test_a_run_that_hangs_is_shut_out_before_the_newer_one_looks_what_there_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = DeltaTable.append
    hanging: list[Any] = []

    def append(table: DeltaTable, *given: Any) -> None:
        if "offsets" in given[3]:
            if not hanging:
                hanging.append(given)
                shop.process(max_rows=None)  # the newer one, to its end
                return
            if len(hanging) == 1:  # it has looked, and is about to append: now the older one goes on
                hanging.append(None)
                original(table, *hanging[0])
        original(table, *given)

    monkeypatch.setattr(DeltaTable, "append", append)
    with pytest.raises(ConsumerFenced):
        shop.process()
    assert len(hanging) == 2
    shop.check()


def test_a_newer_run_is_known_by_the_table_also_before_the_log_says_so(shop: Shop) -> None:
    """The older run's claim is refused by Delta, in the moment in which it asks no log."""
    shop.process()
    with shop.open() as ns:
        subscription = ns._connection.subscription_record(ns.topic("orders").id, "billing")
        app = app_of(ns._connection, f"process/{subscription.id}")
    table = DeltaTable(shop.spark, shop.table)
    table.take(app, 1 << 62, {})
    shop.produce()
    with pytest.raises(ConsumerFenced, match="took the Delta table"):
        shop.process()
    assert shop.in_delta() == list(range(8))


# --- what comes again otherwise ---------------------------------------------------------------------------------------


def test_rows_that_are_read_again_by_will_are_appended_again(shop: Shop) -> None:
    shop.process()
    with shop.open() as ns:
        ns.consumer("orders", subscription="billing", takeover=True).seek("earliest")
    shop.process()
    assert shop.in_delta() == sorted([*range(8), *range(8)])


def test_a_batch_that_cannot_come_again_stops_the_run_and_says_which_it_was(shop: Shop) -> None:
    shop.born(5)  # before its first commit
    with pytest.raises(Death):
        shop.process()
    shop.born()
    with shop.open() as ns:
        ns.consumer("orders", subscription="billing", takeover=True).seek({0: 1, 1: 1})
    with pytest.raises(InvalidInputError, match=r"cannot be repeated: its offsets were orders 0: 0 to 2, 1: 0 to 2"):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3])
    with shop.open() as ns:
        ns.consumer("orders", subscription="billing", takeover=True).seek("earliest")
    shop.process()
    shop.check()


def test_a_batch_that_was_left_is_not_forgotten_where_the_next_run_has_other_topics(shop: Shop) -> None:
    with shop.open() as ns:
        ns.create_topic("returns", SCHEMA, partitions=2)
    shop.born(5)  # before its first commit
    with pytest.raises(Death):
        shop.process()
    shop.born()
    with pytest.raises(InvalidInputError, match=r"of a run over other topics that was never committed: orders"):
        shop.process(topics=["orders", "returns"])
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3])
    shop.process()
    shop.produce()
    shop.process(topics=["orders", "returns"])
    shop.check()


def test_a_table_may_number_its_rows_by_itself(shop: Shop) -> None:
    columns = "number BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT NOT NULL, customer STRING"
    shop.table += "-numbered"
    shop.spark.sql(f"CREATE TABLE delta.`{shop.table}` ({columns}) USING delta")
    shop.process()
    shop.check()


def test_a_table_that_forgets_is_refused(shop: Shop) -> None:
    name = "delta.setTransactionRetentionDuration"
    shop.spark.sql(f"ALTER TABLE delta.`{shop.table}` SET TBLPROPERTIES ('{name}' = 'interval 1 day')")
    with pytest.raises(InvalidInputError, match=r"forgets after some time .*UNSET TBLPROPERTIES"):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [])


def test_a_session_that_lets_delta_note_nothing_is_refused(shop: Shop) -> None:
    name = "spark.databricks.delta.commitInfo.enabled"
    shop.spark.conf.set(name, "false")
    try:
        with pytest.raises(InvalidInputError, match=rf"with {name}=false the writer of a commit"):
            shop.process()
    finally:
        shop.spark.conf.unset(name)
    assert (shop.in_topic(), shop.in_delta()) == ([], [])


def test_an_older_version_than_the_table_has_is_an_error_and_nothing_is_committed(shop: Shop) -> None:
    rows = shop.spark.range(3).selectExpr("id", "'ann' AS customer")

    def nightly(version: int) -> None:
        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="nightly", txn_version=version) as txn:
            txn.write(rows, "bills")
            spark_ext.write_delta(rows, shop.table, txn)

    shop.born(3)
    with pytest.raises(Death):
        nightly(8)
    shop.born()
    with pytest.raises(
        TransactionConflict,
        match=r"has version 8 of txnlog/\w{16}/app/nightly, so Delta would skip the rows of version 7",
    ):
        nightly(7)
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2])


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_table_has_a_name_or_a_path_and_must_be_there(shop: Shop) -> None:
    shop.spark.sql("CREATE DATABASE IF NOT EXISTS elsewhere")
    shop.spark.sql("CREATE TABLE elsewhere.bills (id BIGINT, customer STRING) USING DELTA")
    try:
        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn:
            rows = shop.spark.range(2).selectExpr("id", "'ann' AS customer")
            for missing in ("elsewhere.bill", str(shop.folder / "bill"), str(shop.folder / "lake")):
                with pytest.raises(InvalidInputError, match="there is no Delta table"):
                    spark_ext.write_delta(rows, missing, txn)
            with pytest.raises(InvalidInputError, match=r"'my-db\.bills' is no name in SQL .*backticks"):
                spark_ext.write_delta(rows, "my-db.bills", txn)
            with pytest.raises(InvalidInputError, match=r"'a\.b\.c\.d' cannot be read: .*TABLE"):
                spark_ext.write_delta(rows, "a.b.c.d", txn)
            spark_ext.write_delta(rows, "elsewhere.bills", txn)
            spark_ext.write_delta(rows, shop.table, txn)
            with pytest.raises(InvalidInputError, match="is written to twice"):
                spark_ext.write_delta(rows, shop.table, txn)
            assert shop.spark.table("elsewhere.bills").count() == 0, "the end of the block appends"
        assert shop.spark.table("elsewhere.bills").count() == 2
        assert shop.in_delta() == [0, 1]
    finally:
        shop.spark.sql("DROP DATABASE elsewhere CASCADE")


def test_a_name_is_the_table_that_had_it_when_it_was_given(shop: Shop) -> None:
    sql = shop.spark.sql
    for place in ("here", "there"):
        sql(f"CREATE DATABASE {place}")
        sql(f"CREATE TABLE {place}.bills (id BIGINT, customer STRING) USING DELTA")
    rows = shop.spark.range(3).selectExpr("id", "'c' customer")
    try:
        sql("USE here")
        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="nightly", txn_version=1) as txn:
            txn.write(rows, "bills")
            spark_ext.write_delta(rows, "bills", txn)
            sql("USE there")
        counts = [shop.spark.table(f"{place}.bills").count() for place in ("here", "there")]
        assert (counts, shop.in_topic()) == ([3, 0], [0, 1, 2])

        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="nightly", txn_version=2) as txn:
            spark_ext.write_delta(rows, "bills", txn)
            sql("DROP TABLE there.bills")
            with pytest.raises(TransactionConflict, match="dropped, or replaced"):
                txn.commit()
            txn.abort()
        assert not shop.spark.catalog.tableExists("there.bills")
    finally:
        sql("USE default")
        for place in ("here", "there"):
            sql(f"DROP DATABASE {place} CASCADE")


def test_the_table_of_a_topic_is_refused_by_a_call_before_a_row_is_computed(shop: Shop) -> None:
    shop.produce()
    with catalog.open(shop.root) as cat:
        cat.publish("sales", "orders")
    table = f"{shop.path}/orders"
    refused = r"/orders' is the table of a topic \(use txn.write\(df, topic\); nothing was written"
    with (
        spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn,
        pytest.raises(InvalidInputError, match=refused),
    ):
        spark_ext.write_delta(shop.empty(), table, txn)
    with shop.open() as ns:
        version = ns.snapshot().version
        with pytest.raises(InvalidInputError, match=refused):
            spark_ext.transaction(shop.spark, shop.path, producer="billing", decided_by=table)
        assert ns.snapshot().version == version


def test_a_transaction_that_no_second_run_could_know_is_refused(shop: Shop) -> None:
    rows = shop.spark.range(2).selectExpr("id", "'ann' AS customer")
    with spark_ext.transaction(shop.spark, shop.path) as txn:
        with pytest.raises(InvalidInputError, match="txn_app_id"):
            spark_ext.write_delta(rows, shop.table, txn)
        txn.write(rows, "bills")
    assert (shop.in_topic(), shop.in_delta()) == ([0, 1], [])


@pytest.mark.parametrize("name", ["txnVersion", "userMetadata", "replaceWhere"])
def test_options_that_the_call_has_itself_are_refused(shop: Shop, name: str) -> None:
    with spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn:
        with pytest.raises(InvalidInputError, match=name):
            spark_ext.write_delta(shop.empty(), shop.table, txn, options={name: "1"})
        txn.write(shop.empty(), "bills")


def test_columns_that_do_not_fit_are_refused_and_nothing_is_committed(shop: Shop) -> None:
    rows = shop.spark.range(2).selectExpr("id", "'ann' AS customer")

    def write(**options: Any) -> None:
        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn:
            txn.write(rows, "bills")
            spark_ext.write_delta(rows.selectExpr("*", "1 AS more"), shop.table, txn, **options)

    with pytest.raises(SchemaMismatch, match=r"do not fit the Delta table .*DELTA_METADATA_MISMATCH.*mergeSchema"):
        write()
    assert (shop.in_topic(), shop.in_delta()) == ([], [])
    write(options={"mergeSchema": "true"})
    assert (shop.in_topic(), shop.in_delta()) == ([0, 1], [0, 1])


def test_a_type_that_does_not_fit_is_reported_with_what_another_table_has_by_then(shop: Shop) -> None:
    other = str(shop.folder / "other")
    shop.empty().write.format("delta").save(other)
    rows = shop.spark.range(2).selectExpr("CAST(id AS INT) id", "'ann' AS customer")

    def write() -> None:
        with spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn:
            spark_ext.write_delta(rows.selectExpr("CAST(id AS BIGINT) id"), shop.table, txn)
            spark_ext.write_delta(rows, other, txn)

    with pytest.raises(SchemaMismatch, match=r"/other'.*DELTA_FAILED_TO_MERGE_FIELDS") as told:
        write()
    (note,) = told.value.__notes__
    assert "/bills' has its rows" in note
    assert (shop.in_delta(), shop.in_delta(other)) == ([0, 1], [])
    assert {row["customer"] for row in shop.spark.read.format("delta").load(shop.table).collect()} == {None}


def test_arguments_that_are_mistaken_are_reported_with_the_way_out(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match="txn is a transaction over DataFrames"):
        spark_ext.write_delta(shop.empty(), shop.table, None)
    with (
        spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn,
        pytest.raises(InvalidInputError, match=r"there is no Delta table 'fd'.*a path must be absolute"),
    ):
        spark_ext.write_delta(shop.empty(), "fd", txn)


# --- rows that cannot be computed -------------------------------------------------------------------------------------


def _refusing(*columns: str) -> list[str]:
    """Columns of a batch: order 2 is one that nobody can compute."""
    return ["IF(id = 2, CAST(raise_error('a bad order') AS BIGINT), id) AS id", *columns]


def test_an_order_whose_row_for_the_table_cannot_be_computed_brings_its_batch_to_the_dead_letters(shop: Shop) -> None:
    shop.careful()

    def handler(batch: Any, txn: Any) -> None:
        shop.calls.append([])
        spark_ext.write_delta(batch.selectExpr(*_refusing("customer")), shop.table, txn)

    done = shop.process(handler, subscription="careful", on_error="dead_letter", max_attempts=2)
    assert (done.batches, done.dead_letters, len(shop.calls)) == (2, 4, 3)
    assert shop.dead() == [0, 1, 2, 3]
    assert shop.in_delta() == [4, 5, 6, 7]


def test_a_row_that_could_not_be_computed_the_first_time_is_tried_as_often_as_asked(shop: Shop) -> None:

    def handler(batch: Any, txn: Any) -> None:
        shop.calls.append([])
        txn.write(batch, "bills")
        rows = batch.selectExpr(*_refusing("customer")) if len(shop.calls) == 1 else batch
        spark_ext.write_delta(rows, shop.table, txn)

    shop.process(handler, max_attempts=2)
    assert len(shop.calls) == 3
    shop.check()


@pytest.mark.parametrize("how", ["sought behind it", "sought to the newest", "acknowledged by a consumer"])
def test_a_batch_that_was_left_and_taken_off_otherwise_stops_the_run_too(shop: Shop, how: str) -> None:
    shop.born(5)  # before its first commit
    with pytest.raises(Death):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3]), "the table is ahead"
    shop.born()
    with shop.open() as ns:
        consumer = ns.consumer("orders", subscription="billing", takeover=True)
        if how == "acknowledged by a consumer":
            consumer.acknowledge(consumer.receive(max_messages=8))
        else:
            consumer.seek("latest" if how == "sought to the newest" else {0: 2, 1: 2})
    shop.produce()
    with pytest.raises(InvalidInputError, match=r"cannot be repeated: its offsets were orders 0: 0 to 2, 1: 0 to 2"):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3])


def test_a_subscription_is_exchanged_once_the_old_one_was_run_to_its_end(shop: Shop) -> None:
    """As docs/spark.md has it done for one with a dead-letter topic: it knows nothing of what the old one left."""
    shop.born(5)  # before its first commit
    with pytest.raises(Death):
        shop.process()
    assert (shop.in_topic(), shop.in_delta()) == ([], [0, 1, 2, 3]), "the table is ahead"
    shop.born()
    shop.process()
    shop.produce()
    with shop.open() as ns:
        start = {item.partition: item.cursor for item in ns.lag("orders", "billing")}
        ns.create_subscription("orders", "billing-2", dead_letter_topic="orders-dead", start=start)
    shop.process(subscription="billing-2")
    assert len(shop.in_delta()) > 8
    assert shop.in_topic() == shop.in_delta() == list(range(len(shop.in_delta())))
