"""The programs of examples/ingest that need Kafka do what docs/ingest.md says of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import txnlog
from examples.ingest import kafka_in, kafka_out
from tests.spark.support import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka.session import Cluster


def test_orders_come_from_kafka_and_go_back_and_what_is_sent_twice_has_the_same_id(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    lake, checkpoints = f"{tmp_path}/lake", tmp_path / "lake-checkpoints"
    cluster.create("orders", partitions=2)
    cluster.create("orders-out")
    with txnlog.open(lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", kafka_in.ORDERS, partitions=2)
        for first in (0, 5):
            orders = [json.dumps({"id": i, "customer": "ann", "cents": 100 * i}) for i in range(first, first + 5)]
            cluster.produce("orders", [*orders, "no JSON"], partition=first // 5)
            kafka_in.ingest(spark, lake, cluster.address).awaitTermination()
        rows = ns.snapshot().read("orders").to_pylist()
        assert sorted((row["id"], row["cents"], row["offset"]) for row in rows) == [
            (i, 100 * i, i % 5) for i in range(10)
        ]
    kafka_out.send(spark, lake, cluster.address).awaitTermination()
    forget_commit(checkpoints / "orders-out", 0)  # as if the driver had died behind the batch
    kafka_out.send(spark, lake, cluster.address).awaitTermination()
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", cluster.address)
    sent = source.option("subscribe", "orders-out").option("includeHeaders", "true").load()
    found = [(bytes(row["key"]), bytes(row["headers"][0]["value"]), bytes(row["value"])) for row in sent.collect()]
    assert set(Counter(found).values()) == {2}, "at least once: Spark repeats the batch"
    assert len({number for _, number, _ in found}) == len(set(found)) == 10
