"""Messages of a topic to Kafka, at least once, each with an id by which its readers can drop what comes twice.

spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 kafka_out.py /data/lake kafka:9092
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def send(spark: SparkSession, lake: str, servers: str) -> StreamingQuery:
    """What is there, to the Kafka topic ``orders-out``; the header ``id`` is the same whenever a message is sent."""
    orders = spark.readStream.format("txnlog").option("includeMetadata", "true").load(f"{lake}/shop/orders")
    return (
        orders.selectExpr(
            "cast(id AS string) AS key",
            "to_json(struct(id, customer)) AS value",
            "array(struct('id' AS key, "
            "cast(concat('orders/', _partition, '/', _offset) AS binary) AS value)) AS headers",
        )
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "orders-out")
        .option("includeHeaders", "true")
        .option("checkpointLocation", f"{lake}-checkpoints/orders-out")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description="Send orders to Kafka.")
    arguments.add_argument("lake", help="the lake of kafka_in.py, or of files_in.py")
    arguments.add_argument("servers", help="kafka.bootstrap.servers")
    given = arguments.parse_args()
    spark = SparkSession.builder.appName("kafka-out").getOrCreate()
    send(spark, given.lake, given.servers).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
