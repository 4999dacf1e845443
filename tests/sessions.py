"""What all sessions of Spark in tests have: their surroundings, and a namespace on the local disk."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import txnlog
from tools.java_archive import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

_SMALL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def set_surroundings() -> None:
    """Workers must be this Python, with our packages on their path; the machine's name need not resolve."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    repository = str(Path(__file__).parents[1])
    path = os.environ.get("PYTHONPATH", "")
    if repository not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = f"{repository}{os.pathsep}{path}" if path else repository


def session_with(jars: Iterable[object], settings: Mapping[str, str], folder: Path) -> SparkSession:
    """A small local session with jars of its own; what it keeps is in a folder."""
    from pyspark.sql import SparkSession

    set_surroundings()
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    options = f"-Duser.timezone=UTC -Dderby.system.home={folder} {QUICK}"
    builder = builder.config("spark.driver.extraJavaOptions", options)
    for name, value in {**_SMALL, **settings}.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


@contextlib.contextmanager
def jvm_of_its_own(what: str) -> Iterator[None]:
    """Around a session that a process cannot have next to one without those jars: its JVM ends with the block.

    ``what``: the jars, whose name is that of the tests' folder as well.
    """
    from pyspark import SparkContext

    context: Any = SparkContext
    message = f"this process has a JVM without {what}: run tests/{what.lower()} by itself"
    assert context._gateway is None, message
    yield
    gateway: Any = vars(context)["_gateway"]
    process = gateway.proc
    gateway.shutdown()
    context._gateway = None
    context._jvm = None
    process.stdin.close()  # at its end the JVM ends
    process.wait(60)


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    """A fresh namespace ``sales`` in a root below the test's folder."""
    with txnlog.open(str(tmp_path / "lake"), namespace="sales", create=True) as opened:
        yield opened
