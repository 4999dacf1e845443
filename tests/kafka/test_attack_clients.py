"""What a call that was refused leaves behind. The test fails."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

import spark_ext
from tests.kafka.lake import COLUMNS, SCHEMA
from txnlog.errors import RetriableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def test_a_call_that_is_refused_leaves_no_client_that_knocks_on(spark: SparkSession, namespace: Namespace) -> None:
    """A server that ends each connection, as one does that is not Kafka, or refuses a password."""
    namespace.create_topic("orders", SCHEMA)
    came: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                came.append(time.monotonic())
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(RetriableError):
            spark_ext.ingest_kafka(
                spark,
                f"{namespace.root}/{namespace.name}",
                subscribe="orders",
                topic="orders",
                columns=COLUMNS,
                options={
                    "kafka.bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}",
                    "kafka.request.timeout.ms": "1000",
                    "kafka.default.api.timeout.ms": "2000",
                },
            )
        time.sleep(3)  # what was under way has ended
        before = len(came)
        time.sleep(10)
        later = len(came) - before
    names = [str(thread.getName()) for thread in spark._jvm.Thread.getAllStackTraces().keySet()]  # type: ignore[union-attr]
    print(
        f"{before} connections until then, {later} in the next 10 s;", [name for name in names if "kafka-admin" in name]
    )
    assert later == 0
