"""Kafka with all orders, for ``ingest_kafka``: ``python -m tests.crash.spark.broker FOLDER BATCHES`` fills it.

Kafka's client is in the JVM of a session of its own, which drivers are not to find there.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.crash.spark.workload import ORDERS, ROWS
from tests.kafka.session import Cluster, session
from tools import kafka

_ADDRESS: Final = "kafka-address"


def address_in(folder: Path) -> str:
    """Of the broker of a run."""
    return (folder / _ADDRESS).read_text()


@contextlib.contextmanager
def running_broker(folder: Path, batches: int) -> Iterator[None]:
    """A broker that has so many batches of orders, while the block runs."""
    kafka.broker_jars()
    place = folder / "kafka"
    place.mkdir()
    broker = kafka.Broker(place, heap="512m")
    try:
        (folder / _ADDRESS).write_text(broker.address)
        with open(folder / "filling.log", "wb") as log:
            command = [sys.executable, "-m", __spec__.name, str(folder), str(batches)]
            subprocess.run(command, check=True, stdout=log, stderr=log)
        yield
    finally:
        broker.end()


def main() -> None:
    """The command line."""
    folder, batches = Path(sys.argv[1]), int(sys.argv[2])
    spark = session(folder / "filling")
    cluster = Cluster(spark, address_in(folder))
    cluster.create(ORDERS)
    cluster.produce(ORDERS, range(batches * ROWS))
    cluster.close()
    spark.stop()


if __name__ == "__main__":
    main()


__all__ = ["address_in", "running_broker"]
