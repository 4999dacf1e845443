"""One append to a Delta table: what was raised, and whether the rows are there, are two things."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException

import spark_ext
from spark_ext.delta.delta_table import DeltaTable
from tests.delta.lives import Shop, shop
from txnlog.errors import CorruptionError, Durable, InvalidInputError, OutcomeUnknown, TransactionConflict

__all__ = ["shop"]  # a fixture

_MANIFEST = "delta.compatibility.symlinkFormatManifest.enabled"


def break_hook(shop: Shop) -> None:
    """Let Delta fail behind each commit: DELTA_POST_COMMIT_HOOK_FAILED."""
    place = Path(shop.table, "_symlink_format_manifest")
    shutil.rmtree(place, ignore_errors=True)
    place.write_text("no folder")


def append(shop: Shop, *numbers: int, version: int = 1) -> None:
    rows = shop.spark.createDataFrame([(number, "x") for number in numbers], "id bigint, customer string")
    with spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=version) as txn:
        spark_ext.write_delta(rows, shop.table, txn)


def raising(error: Exception) -> Callable[..., Any]:
    def raises(*_: object) -> Any:
        raise error

    return raises


def test_an_append_behind_which_a_hook_failed_is_done(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.spark.sql(f"ALTER TABLE delta.`{shop.table}` SET TBLPROPERTIES ('{_MANIFEST}' = 'true')")
    break_hook(shop)
    append(shop, 7)
    assert shop.in_delta() == [7]
    assert "has the rows, and then failed: " in caplog.text
    assert "DELTA_POST_COMMIT_HOOK_FAILED" in caplog.text


def test_a_batch_behind_whose_append_a_hook_failed_does_not_become_dead_letters(shop: Shop) -> None:
    shop.careful()
    shop.spark.sql(f"ALTER TABLE delta.`{shop.table}` SET TBLPROPERTIES ('{_MANIFEST}' = 'true')")

    def handler(batch: Any, txn: Any) -> None:
        shop.calls.append([])
        if len(shop.calls) == 2:  # the table is taken over by then
            break_hook(shop)
        spark_ext.write_delta(batch.select("id", "customer"), shop.table, txn)

    shop.process(handler, subscription="careful", on_error="dead_letter", max_attempts=1)
    assert (shop.dead(), shop.in_delta()) == ([], list(range(8)))


def test_a_delta_whose_log_has_another_interface_is_asked_by_its_history(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaTable, "_notes_behind", raising(Py4JError("Method getChanges([]) does not exist")))
    append(shop, 1)
    append(shop, 2, version=2)
    append(shop, 2, version=2)
    assert shop.in_delta() == [1, 2]
    table = DeltaTable(shop.spark, shop.table)
    app = table.apps("txnlog/")[0]
    with pytest.raises(TransactionConflict, match=r"has version 2 of .*, and skipped this one: 2"):
        table.append(shop.empty(), app, 2, {}, {})


@pytest.mark.parametrize("error", [Py4JError("gone"), IllegalArgumentException("gone")])
def test_a_table_that_does_not_show_whether_it_took_the_rows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "_notes_behind", raising(error))
        patch.setattr("spark_ext.delta.delta_table.DataFrame", raising(error))
        with pytest.raises(OutcomeUnknown, match=r"it is unknown whether .* has the rows: .*gone") as raised:
            append(shop, 1)
    assert raised.value.durable is Durable.MAYBE
    append(shop, 1)
    assert shop.in_delta() == [1], "the same work again"


def test_a_message_that_reads_like_an_error_of_deltas_goes_to_the_dead_letters_too(shop: Shop) -> None:
    """Spark shows the value that it cannot cast."""
    shop.careful()
    with shop.open() as ns:
        ns.produce("orders", [{"id": 8, "customer": "[DELTA_CONCURRENT_TRANSACTION] me"}], partition=0)

    def handler(batch: Any, txn: Any) -> None:
        rows = batch.selectExpr("IF(id < 8, id, CAST(customer AS BIGINT)) AS id", "customer")
        spark_ext.write_delta(rows, shop.table, txn)

    shop.process(handler, subscription="careful", on_error="dead_letter", max_attempts=2)
    assert shop.dead() == [8]


@pytest.mark.parametrize("options", ["mergeSchema", {"mergeSchema": None}, {"mode": "overwrite"}, {1: "x"}])
def test_options_that_are_none_are_refused_at_the_call(shop: Shop, options: Any) -> None:
    with (
        spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn,
        pytest.raises(InvalidInputError, match="option"),
    ):
        spark_ext.write_delta(shop.empty(), shop.table, txn, options=options)


def test_a_password_in_the_url_of_a_table_is_in_no_error(shop: Shop) -> None:
    for url in ("s3a://somebody:hunter2@bucket/bills", "s3a://somebody:hunter2@[bucket/bills"):
        with (
            spark_ext.transaction(shop.spark, shop.path, txn_app_id="a", txn_version=1) as txn,
            pytest.raises(InvalidInputError, match="carries a password") as raised,
        ):
            spark_ext.write_delta(shop.empty(), url, txn)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("broken", ["1" * 5_000, "{", "[" * 100_000])
def test_a_note_of_ours_that_cannot_be_parsed_is_reported_as_damage(shop: Shop, broken: str) -> None:
    """Taken for none, a batch whose rows the table has would be appended once more."""
    append(shop, 1)
    table = DeltaTable(shop.spark, shop.table)
    (app,) = table.apps("txnlog/")
    rows = shop.spark.createDataFrame([(2, "x")], shop.empty().schema)
    for name, text in ((app, broken), ("txnlog/another", broken), (app, "1")):
        note = f'{{"txnlog":{{"app":"{name}","version":{text}}}}}'
        rows.write.format("delta").mode("append").option("userMetadata", note).save(shop.table)
    records = table.newest_records(app)
    assert next(records) == (4, {"app": app, "version": 1})
    with pytest.raises(CorruptionError, match=f"note about {app} in version 2 of .* is damaged"):
        next(records)
    assert list(table.newest_records("txnlog/a third")) == []
