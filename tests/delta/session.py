"""A Spark session that has Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sessions import set_surroundings
from tools import delta_jars
from tools.java_archive import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    **delta_jars.SETTINGS,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def session(folder: Path) -> SparkSession:
    """A small local session with Delta; what it keeps is in a folder."""
    from pyspark.sql import SparkSession

    set_surroundings()
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.jars", ",".join(delta_jars.delta_jars()))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    options = f"-Duser.timezone=UTC -Dderby.system.home={folder} {QUICK}"
    builder = builder.config("spark.driver.extraJavaOptions", options)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made
