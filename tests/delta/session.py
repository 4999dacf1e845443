"""A Spark session that has Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.sessions import session_with
from tools import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    **delta_jars.SETTINGS,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.log.level": "ERROR",
}


def session(folder: Path) -> SparkSession:
    """A small local session with Delta; what it keeps is in a folder."""
    return session_with(delta_jars.delta_jars(), _SETTINGS, folder)
