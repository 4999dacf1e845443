"""A Kafka broker on loopback, and a Spark session that has its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.kafka.session import Cluster, session
from tests.sessions import jvm_of_its_own, namespace  # noqa: F401 - the latter is a fixture
from tools import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker of Kafka 4.1 in KRaft mode; retention and compaction look for work every second."""
    kafka.broker_jars()
    settings = "log.retention.check.interval.ms=1000\nlog.cleaner.backoff.ms=1000\n"
    made = kafka.Broker(tmp_path_factory.mktemp("broker"), settings, heap="512m")
    yield made
    made.end()


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session with the Kafka source; its JVM ends with the last test here."""
    with jvm_of_its_own("Kafka"):
        made = session(tmp_path_factory.mktemp("session"))
        yield made
        made.stop()


@pytest.fixture(scope="package")
def cluster(spark: SparkSession, broker: kafka.Broker) -> Iterator[Cluster]:
    """The broker, as a cluster to produce to."""
    made = Cluster(spark, broker.address)
    yield made
    made.close()
