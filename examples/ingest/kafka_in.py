"""Messages of Kafka into a topic, each exactly once, without a checkpoint.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 kafka_in.py /data/lake kafka:9092

The values of the Kafka topic ``orders`` are JSON such as ``{"id": 1, "customer": "ann", "cents": 1250}``.
"""

from __future__ import annotations

import argparse

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_ext
import txnlog

ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("cents", pa.int64()), ("offset", pa.int64())])
PARSED = "from_json(cast(value AS string), 'id BIGINT, customer STRING, cents BIGINT')"


def ingest(spark: SparkSession, lake: str, servers: str) -> StreamingQuery:
    """What is there, and what comes, until somebody stops it; here with a trigger that ends at what is there."""
    return spark_ext.ingest_kafka(
        spark,
        f"{lake}/shop",
        subscribe="orders",
        topic="orders",
        columns={
            "id": f"{PARSED}.id",
            "customer": f"{PARSED}.customer",
            "cents": f"{PARSED}.cents",
            "offset": "offset",
        },
        where=f"{PARSED}.id IS NOT NULL",
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": "100000"},
        trigger={"availableNow": True},
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Bring orders from Kafka.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("servers", help="kafka.bootstrap.servers")
    given = arguments.parse_args()
    with txnlog.open(given.lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", ORDERS, partitions=4, if_not_exists=True)
        spark = SparkSession.builder.appName("kafka-in").getOrCreate()
        ingest(spark, given.lake, given.servers).awaitTermination()
        print(f"{ns.snapshot().read('orders', columns=['id']).num_rows} orders")
        spark.stop()


if __name__ == "__main__":
    main()
