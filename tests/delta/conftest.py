"""A Spark session that has Delta, which a process cannot have beside one without: its classes are the JVM's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.delta.session import session
from tests.sessions import namespace  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session with Delta; its JVM ends with the last test here."""
    from pyspark import SparkContext

    context: Any = SparkContext
    assert context._gateway is None, "this process has a JVM without Delta: run tests/delta by itself"
    made = session(tmp_path_factory.mktemp("session"))
    yield made
    made.stop()
    gateway: Any = vars(context)["_gateway"]
    process = gateway.proc
    gateway.shutdown()
    context._gateway = None
    context._jvm = None
    process.stdin.close()  # what tells the JVM to end
    process.wait(60)
