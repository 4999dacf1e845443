"""The Spark session of every process of the demo: small, quiet, and at home nowhere but in the demo's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def start_spark(folder: Path, name: str) -> SparkSession:
    """Start Spark on two cores; everything it writes for itself goes below ``folder``."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[2]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        # A batch here has some 20,000 rows: more tasks than cores would only cost their start.
        .config("spark.sql.shuffle.partitions", "2")
        # Processes that live for seconds: a quick start is worth more than code that is fast later.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")
        .getOrCreate()
    )


__all__ = ["start_spark"]
