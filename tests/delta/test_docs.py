"""What docs/spark.md shows of Delta tables, and of names in SQL, runs as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import delta
import pyarrow as pa
import pytest

import spark_ext
import txnlog
from tests.pages import blocks, page, section
from tools import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

PAGE = page("docs/spark.md")
SETUP = "\ndf.write.format('txnlog').mode('append').save('/tmp/lake/shop/orders')"


def test_the_sections_that_need_delta_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (beginning,) = blocks(section(PAGE, "A topic of a DataFrame's columns"))
    building, charging, welcoming = blocks(section(PAGE, "Exactly once into a Delta table"))
    (naming,) = blocks(section(PAGE, "Topics under names in SQL"))
    monkeypatch.setattr(delta, "configure_spark_with_delta_pip", lambda builder: builder)  # the jars are here
    given: dict[str, Any] = {}
    exec(building, given)
    assert given["spark"].sparkContext is spark.sparkContext
    for name, value in delta_jars.SETTINGS.items():
        assert f'config("{name}", "{value}")' in building
    for code in (beginning + SETUP, charging, welcoming, naming):
        exec(code.replace("/tmp/", f"{tmp_path}/"), given)
    assert spark.read.format("delta").load(f"{tmp_path}/bills").collect() == [("ann", 3)]
    assert spark.read.format("delta").load(f"{tmp_path}/welcomed").count() == 3
    with txnlog.open(str(tmp_path / "lake"), namespace="shop", mode="r") as ns:
        assert ns.snapshot().read("counts").to_pylist() == [{"customer": "ann", "count": 3}]
        assert ns.snapshot().read("returns").num_rows == 1
        assert sum(item.behind_messages for name in ("charging", "welcome") for item in ns.lag("orders", name)) == 0
    assert given["names"]["orders"] == "shop_orders"
    for name in given["names"].values():
        spark.catalog.dropTempView(name)


def test_what_the_page_says_of_views_and_of_transactions_with_a_table_alone_is_so(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.create_topic("orders", pa.schema([("id", pa.int64())]))
    path = f"{namespace.root}/sales"
    view = f"TEMPORARY VIEW seen USING txnlog OPTIONS (path '{path}/orders')"
    spark.sql(f"CREATE {view}")
    counts = []
    for step in ("INSERT INTO seen VALUES (1)", "REFRESH TABLE seen", f"CREATE OR REPLACE {view}"):
        counts.append(spark.table("seen").count())
        spark.sql(step)
    assert [*counts, spark.table("seen").count()] == [0, 0, 0, 1]
    spark.catalog.dropTempView("seen")
    table = str(tmp_path / "bills")
    spark.createDataFrame([], "id bigint").write.format("delta").save(table)
    for _ in range(2):
        with spark_ext.transaction(spark, path, txn_app_id="nightly", txn_version=1) as txn:
            assert not txn.skipped
            spark_ext.write_delta(spark.range(2), table, txn)
    assert spark.read.format("delta").load(table).count() == 2
