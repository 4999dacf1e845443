"""One Spark session for all tests that need one, and a namespace on the local disk for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import txnlog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.namespace import Namespace


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session: two cores, UTC, few shuffle partitions, no web page."""
    from pyspark.sql import SparkSession

    # Workers must be this Python, with our packages on their path; the machine's name need not resolve.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    repository = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH", "")
    if repository not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{repository}{os.pathsep}{path}" if path else repository
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("txnlog-tests")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", f"-Duser.timezone=UTC -Dderby.system.home={warehouse}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.streaming.schemaInference", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    """A fresh namespace ``sales`` in a root below the test's folder."""
    with txnlog.open(str(tmp_path / "lake"), namespace="sales", create=True) as opened:
        yield opened
