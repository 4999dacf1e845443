"""A Spark session that has Delta, which a process cannot have beside one without: its classes are the JVM's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.delta.session import session
from tests.sessions import jvm_of_its_own, namespace  # noqa: F401 - the latter is a fixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session with Delta; its JVM ends with the last test here."""
    with jvm_of_its_own("Delta"):
        made = session(tmp_path_factory.mktemp("session"))
        yield made
        made.stop()
