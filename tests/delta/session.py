"""A Spark session that has Delta."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    repository = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH", "")
    if repository not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{repository}{os.pathsep}{path}" if path else repository
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.jars", ",".join(delta_jars.delta_jars()))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    options = f"-Duser.timezone=UTC -Dderby.system.home={folder} {QUICK}"
    builder = builder.config("spark.driver.extraJavaOptions", options)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made
