"""What docs/spark.md shows of Delta tables, and of names in SQL, runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import txnlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
SETUP = "\ndf.write.format('txnlog').mode('append').save('/tmp/lake/shop/orders')"


def blocks(title: str) -> list[str]:
    """The Python blocks of a section."""
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_sections_that_need_delta_run(spark: SparkSession, tmp_path: Path) -> None:
    (beginning,) = blocks("A topic of a DataFrame's columns")
    charging, welcoming = blocks("Exactly once into a Delta table")
    (naming,) = blocks("Topics under names in SQL")
    given: dict[str, Any] = {"spark": spark}
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
