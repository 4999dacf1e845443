"""A Delta table that a log wrote to which was put back to an older state, and records in it that nobody here wrote."""

from __future__ import annotations

import json
import shutil

import pytest

from spark_ext.delta.delta_table import DeltaTable
from spark_ext.delta.idempotence import app_of
from spark_ext.support import namespace_cache
from tests.delta.lives import SCHEMA, Death, Shop, shop
from txnlog.errors import ConsumerFenced, CorruptionError, TransactionConflict

__all__ = ["shop"]  # a fixture


def produce(shop: Shop, *numbers: int) -> None:
    with shop.open() as ns:
        ns.produce("orders", [{"id": number, "customer": "c"} for number in numbers], partition=0)


def put_back(shop: Shop, backup: str) -> None:
    namespace_cache._handles.clear()
    shutil.rmtree(shop.root)
    shutil.copytree(backup, shop.root)


def test_a_decision_of_the_log_before_it_was_put_back_is_not_taken_for_that_of_another_transaction(shop: Shop) -> None:
    """The table says yes to version p of a log that is no more; what the new one prepares at p has other rows."""
    backup = str(shop.folder / "backup")
    shop.born()
    shop.decided()
    shop.check()
    with shop.open() as ns:
        ns.snapshot()
    namespace_cache._handles.clear()
    shutil.copytree(shop.root, backup)
    produce(shop, 100, 101)
    shop.born()
    shop.decided()
    assert shop.in_delta()[-2:] == [100, 101]
    put_back(shop, backup)
    produce(shop, 200, 201)  # the sender has other messages by now
    shop.born()
    with pytest.raises(TransactionConflict, match="which was aborted: nothing of it is committed"):
        shop.decided()
    assert shop.in_topic() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert shop.in_delta() == [0, 1, 2, 3, 4, 5, 6, 7, 100, 101]
    assert shop.behind() == 2, "the messages come again"


@pytest.mark.parametrize(
    "record",
    [
        {"offsets": 5},
        {"offsets": {"orders": {"0": [0, 2]}}},
        {"offsets": {"orders": {"zero": [0, 2]}}, "txn": 7, "end": 7},
    ],
)
def test_a_record_that_is_damaged_is_reported_with_a_type(shop: Shop, record: dict[str, object]) -> None:
    shop.born()
    number = shop.ns._connection.subscription_record(shop.ns._connection.topic_record("orders").id, "billing").id
    app = app_of(shop.ns._connection, f"process/{number}")
    note = json.dumps({"txnlog": {"app": app, "version": 0, **record}}, separators=(",", ":"))
    row = shop.spark.createDataFrame([(-1, "x")], "id bigint, customer string")
    row.write.format("delta").mode("append").option("userMetadata", note).save(shop.table)
    with pytest.raises(CorruptionError, match="is damaged, or was not written by this library"):
        shop.process()
    assert (shop.in_topic(), shop.in_delta(), shop.behind()) == ([], [-1], shop.count), "nothing is done on its word"


def test_a_run_over_a_copy_of_the_log_takes_no_version_for_its_own(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both logs give their runs the same epoch; Delta skips the append of the second without a word."""
    other = Shop(shop.spark, shop.folder / "other", monkeypatch, new=False)
    shutil.copytree(shop.root, other.root)
    other.table = shop.table
    produce(other, 300)
    produce(shop, 400)
    original, calls = DeltaTable.append, []
    refused: list[str] = []

    def append(table: DeltaTable, df: object, app: str, version: int, record: dict[str, object], *rest: object) -> None:
        calls.append(version)
        if "offsets" in record and len(calls) == 2:
            with pytest.raises(ConsumerFenced, match="copy of the namespace") as told:
                other.process(max_rows=None)
            refused.append(str(told.value))
        original(table, df, app, version, record, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "append", append)
    shop.process(max_rows=None)
    assert len(refused) == 1, "the other run came between the claim of the table and the rows"
    assert len(calls) == 3, "it asked for the table"
    assert calls[2] == calls[0], "as the first one did"
    taken = [0, 1, 2, 3, 4, 5, 6, 7, 400]
    assert (shop.in_topic(), shop.in_delta(), shop.behind()) == (taken, taken, 0)
    assert (other.in_topic(), other.behind()) == ([], len(taken)), "nothing is committed there"


def test_a_batch_of_the_log_before_it_was_put_back_is_not_taken_for_one_with_the_same_offsets(shop: Shop) -> None:
    backup = str(shop.folder / "backup")
    shop.born()
    shop.process()
    shop.check()
    namespace_cache._handles.clear()
    shutil.copytree(shop.root, backup)
    produce(shop, 100, 101)
    shop.born(5)
    with pytest.raises(Death):
        shop.process()
    assert shop.in_delta()[-2:] == [100, 101]
    put_back(shop, backup)
    with shop.open() as ns:  # it goes on otherwise, and farther
        for number in range(10):
            ns.create_topic(f"other{number}", SCHEMA)
    produce(shop, 200, 201)
    shop.born()
    with pytest.raises(CorruptionError, match="from a log with another version"):
        shop.process()
    assert not {200, 201} & {*shop.in_topic(), *shop.in_delta()}
