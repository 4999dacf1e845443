"""Batches that a Delta table has and no commit of ours, on which a handler fails; and notes of somebody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import spark_ext
from spark_ext.delta.delta_table import DeltaTable
from spark_ext.delta.idempotence import app_of
from tests.delta.lives import SCHEMA, Death, Shop, shop
from txnlog.errors import CorruptionError, Durable, InvalidInputError

__all__ = ["shop"]  # a fixture

Handler = Callable[[Any, Any], None]


def fine(shop: Shop) -> Handler:
    """It brings each batch to the table."""

    def handler(batch: Any, txn: Any) -> None:
        spark_ext.write_delta(batch.select("id", "customer"), shop.table, txn)

    return handler


def dying_behind_the_table(shop: Shop, **options: Any) -> None:
    """A run that brought its first batch to the table, and dies before it commits; the next process is there."""
    shop.born(5)
    with pytest.raises(Death):
        shop.process(fine(shop), **options)
    shop.born()


# --- given up ---------------------------------------------------------------------------------------------------------


def test_a_batch_whose_rows_a_table_has_does_not_go_to_the_dead_letters(shop: Shop) -> None:
    """The first table takes the batch, the second one has a constraint that order 2 breaks; nobody died."""
    shop.careful()
    second = f"{shop.folder}/second"
    shop.empty().write.format("delta").save(second)
    shop.spark.sql(f"ALTER TABLE delta.`{second}` ADD CONSTRAINT not_two CHECK (id <> 2)")

    def handler(batch: Any, txn: Any) -> None:
        rows = batch.select("id", "customer")
        spark_ext.write_delta(rows, shop.table, txn)
        spark_ext.write_delta(rows, second, txn)

    options = {"subscription": "careful", "on_error": "dead_letter", "max_attempts": 2}
    with pytest.raises(
        InvalidInputError, match=r"whose rows the Delta table '.*/bills' has already, .*version \d"
    ) as told:
        shop.process(handler, **options)
    assert told.value.durable is Durable.MAYBE
    assert (shop.dead(), shop.in_delta(), shop.in_delta(second)) == ([], [0, 1, 2, 3], [])
    shop.spark.sql(f"ALTER TABLE delta.`{second}` DROP CONSTRAINT not_two")
    shop.process(handler, **options)
    assert (shop.dead(), shop.in_delta(), shop.in_delta(second)) == ([], list(range(8)), list(range(8)))


def test_a_run_goes_on_behind_a_batch_that_a_table_has_and_the_handler_failed_on(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.careful()

    def failing(batch: Any, txn: Any) -> None:
        if batch.where("id = 2").count():
            raise ValueError("a bad order")
        fine(shop)(batch, txn)

    options = {"subscription": "careful", "on_error": "dead_letter", "max_attempts": 2}
    dying_behind_the_table(shop, **options)
    assert shop.in_delta() == [0, 1, 2, 3]
    shop.process(failing, **options)
    assert shop.dead() == [0, 1, 2, 3]
    assert shop.in_delta() == list(range(8)), "later batches come to the table"
    (warned,) = [text for text in caplog.messages if "dead letters by now" in text]
    assert "/bills' has a batch that was never committed, since its version 2" in warned
    assert "orders 0: 0 to 2, 1: 0 to 2" in warned
    shop.produce()
    shop.process(fine(shop), **options)
    assert shop.in_delta() == list(range(12))


def test_a_handler_that_fails_behind_write_delta_makes_no_dead_letters_of_a_batch_that_a_dead_run_left(
    shop: Shop,
) -> None:
    shop.careful()
    options = {"subscription": "careful", "on_error": "dead_letter", "max_attempts": 1}
    dying_behind_the_table(shop, **options)

    def failing(batch: Any, txn: Any) -> None:
        fine(shop)(batch, txn)
        raise ValueError("a bad order")

    with pytest.raises(InvalidInputError, match=r"whose rows the Delta table '.*/bills' has already"):
        shop.process(failing, **options)
    assert shop.dead() == []
    shop.process(fine(shop), **options)
    assert shop.in_delta() == list(range(8))


def test_a_batch_of_which_a_part_became_dead_letters_holds_up_no_later_one(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """The next run has smaller batches, as is done where a driver died of its memory; and it has two tables."""
    shop.careful()
    second = f"{shop.folder}/second"
    shop.empty().write.format("delta").save(second)
    options = {"subscription": "careful", "on_error": "dead_letter", "max_attempts": 1}

    def both(batch: Any, txn: Any) -> None:
        fine(shop)(batch, txn)
        spark_ext.write_delta(batch.select("id", "customer"), second, txn)

    def failing(batch: Any, txn: Any) -> None:
        if batch.where("id = 2").count():
            raise ValueError("a bad order")
        both(batch, txn)

    shop.born(9)  # behind the second table's rows
    with pytest.raises(Death):
        shop.process(both, max_rows=8, **options)
    assert (shop.in_delta(), shop.in_delta(second)) == (list(range(8)), list(range(8)))
    shop.born()
    shop.produce()
    shop.process(failing, max_rows=4, **options)
    assert shop.dead() == [0, 1, 2, 3]
    assert (shop.in_delta(), shop.in_delta(second)) == (list(range(12)), list(range(12)))
    with shop.open() as ns:
        assert sum(item.behind_messages for item in ns.lag("orders", "careful")) == 0
    told = [text for text in caplog.messages if "dead letters by now, but for orders 0: 2 to 4, 1: 2 to 4" in text]
    assert len(told) == 2, "one for each table"


def test_a_batch_that_became_dead_letters_does_not_hold_up_a_run_over_more_topics(shop: Shop) -> None:
    shop.careful()
    with shop.open() as ns:
        ns.create_topic("returns", SCHEMA)
        ns.create_subscription("returns", "careful", dead_letter_topic="returns-dead")
        ns.produce("returns", [{"id": 100, "customer": "r"}])

    def failing(batch: Any, txn: Any) -> None:
        batch.count()
        raise ValueError("a bad order")

    options = {"subscription": "careful", "on_error": "dead_letter", "max_attempts": 1}
    dying_behind_the_table(shop, **options)
    assert shop.process(failing, **options).dead_letters == 8
    shop.process(fine(shop), topics=["orders", "returns"], **options)
    assert shop.in_delta() == [0, 1, 2, 3, 100]


# --- what others note -------------------------------------------------------------------------------------------------


def test_a_note_with_a_partition_that_is_no_number_makes_no_dead_letters(shop: Shop) -> None:
    shop.careful()
    shop.born()
    number = shop.ns._connection.subscription_record(shop.ns._connection.topic_record("orders").id, "careful").id
    app = app_of(shop.ns._connection, f"process/{number}")
    record = {
        "app": app,
        "version": 0,
        "txn": str(shop.ns.begin().id),
        "offsets": {"orders": {"9" * 5_000: [0, 2]}},
        "end": {"version": 1, "offsets": {"orders": {"0": 2}}},
    }
    note = json.dumps({"txnlog": record}, separators=(",", ":"))
    row = shop.spark.createDataFrame([(-1, "x")], "id bigint, customer string")
    row.write.format("delta").mode("append").option("userMetadata", note).save(shop.table)

    def handler(batch: Any, txn: Any) -> None:
        spark_ext.write_delta(batch.select("id", "customer"), shop.table, txn)

    with pytest.raises(CorruptionError, match="is damaged"):
        shop.process(handler, subscription="careful", on_error="dead_letter", max_attempts=2)
    assert shop.dead() == []


def test_a_decision_whose_note_is_damaged_is_reported_with_a_type(shop: Shop) -> None:
    """The next owner of the producer asks the table, whose note names no entry but a list."""
    life = shop.born()
    append = DeltaTable.append

    def damaged(table: DeltaTable, df: Any, app: str, version: int, record: dict[str, Any], options: Any) -> None:
        append(table, df, app, version, {**record, "entry": ["x"]}, options)
        life.end = 0  # dies behind Delta's commit

    shop._patch.setattr(DeltaTable, "append", damaged)
    with pytest.raises(Death):
        shop.decided()
    shop.born()
    with pytest.raises(CorruptionError, match="is damaged"):
        shop.decided()
