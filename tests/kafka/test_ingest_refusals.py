"""What a call is refused for that only Spark's own Kafka source and Kafka's clients know; and no error has a secret."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
from tests.kafka.lake import COLUMNS, SCHEMA, Lake, lake
from txnlog.errors import InvalidInputError, TxnLogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace

__all__ = ["lake"]  # a fixture

SECRET = "hush-hush"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{SECRET}";'
NOWHERE = {
    "kafka.bootstrap.servers": "127.0.0.1:9",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": JAAS,
}


def refused(spark: SparkSession, ns: Namespace, **given: Any) -> Exception:
    """The error of a call that needs no broker to be refused."""
    ns.create_topic("orders", SCHEMA)
    options = {**NOWHERE, **given.pop("options", {})}
    arguments: dict[str, Any] = {"columns": COLUMNS, **given}
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of which kind is the question
        spark_ext.ingest_kafka(
            spark, f"{ns.root}/{ns.name}", subscribe="source", topic="orders", options=options, **arguments
        )
    assert SECRET not in "".join(traceback.format_exception(caught.value)), "a log has the causes as well"
    return caught.value


WRONG: list[dict[str, Any]] = [
    {"where": "nope > 1"},
    {"columns": {"id": "nope"}},
    {"where": "partition"},
    {"where": "upper(value, 1)"},
]


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_the_error_of_a_wrong_expression_has_no_password(
    spark: SparkSession, namespace: Namespace, given: dict[str, Any]
) -> None:
    error = refused(spark, namespace, **given)
    assert isinstance(error, InvalidInputError)
    assert SECRET not in str(error)


def test_the_error_of_a_wrong_expression_has_no_private_key(spark: SparkSession, namespace: Namespace) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
    error = refused(spark, namespace, where="nope > 1", options={"kafka.ssl.keystore.key": key})
    assert SECRET not in str(error)


@pytest.mark.parametrize("options", [{"minPartitions": "0"}, {"kafka.auto.offset.reset": "earliest"}], ids=str)
def test_an_option_that_the_source_refuses_is_an_error_of_txnlog(
    spark: SparkSession, namespace: Namespace, options: dict[str, str]
) -> None:
    assert isinstance(refused(spark, namespace, options=options), TxnLogError)


def test_a_setting_that_the_client_refuses_shows_no_password(spark: SparkSession, namespace: Namespace) -> None:
    """A quote in the password ends its text, and what is behind it is in the error of Kafka's parser."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="pre"hush-hush";'
    error = refused(spark, namespace, options={"kafka.sasl.jaas.config": jaas})
    assert "hush" not in str(error)


def test_an_isolation_level_that_kafka_lacks_is_named(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    with pytest.raises(InvalidInputError) as caught:
        lake.start({"kafka.isolation.level": "committed"})
    assert "session was stopped" not in str(caught.value)
    with pytest.raises(InvalidInputError, match=r"'kafka.isolation.level': .*committed"):
        lake.start({"KAFKA.isolation.level": "committed"})


def test_a_setting_of_consumers_is_refused_before_another_run_is_fenced(lake: Lake) -> None:
    """Only the tasks of a batch have a consumer."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(trigger={"processingTime": "100 milliseconds"})
    older.processAllAvailable()
    with pytest.raises(InvalidInputError, match=r"'kafka.max.poll.records': .*many"):
        lake.ingest({"kafka.max.poll.records": "many"})
    lake.cluster.produce(lake.source, range(3, 6))
    older.processAllAvailable()
    assert lake.ids() == list(range(6))


REFUSED: list[dict[str, str]] = [
    {"maxOffsetsPerTrigger": "many"},
    {"maxOffsetsPerTrigger": "9999999999999999999"},
    {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
    {"kafka.interceptor.classes": "com.example.Nope"},
    {"kafka.ssl.truststore.location": "/nowhere", "kafka.security.protocol": "SSL"},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_an_option_that_only_the_query_refuses_is_refused_by_the_call_and_ends_no_run(
    lake: Lake, options: dict[str, str]
) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    older = lake.start(trigger={"processingTime": "100 milliseconds"})
    older.processAllAvailable()
    with pytest.raises(InvalidInputError):
        lake.start(options)
    lake.cluster.produce(lake.source, range(3, 6))
    older.processAllAvailable()
    assert lake.ids() == list(range(6))


def test_an_option_with_blanks_is_taken_without_them(lake: Lake) -> None:
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, range(3))
    lake.ingest({"failOnDataLoss": " false ", "maxOffsetsPerTrigger": " 2", "maxTriggerDelay": " 1s "})
    assert lake.ids() == list(range(3))


def test_the_error_of_a_query_has_no_password(lake: Lake) -> None:
    """A value does not fit; the driver's log has the exception as Java shows it, with the plan."""
    lake.cluster.create(lake.source)
    lake.cluster.produce(lake.source, ["no number"])
    query = lake.start({"kafka.ssl.key.password": SECRET, "kafka.ssl.keystore.key": SECRET})
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    shown = str(query._jsq.exception().get().toString())
    plan = str(query._jsq.explainInternal(True))
    assert "no number" in str(caught.value) or "Plan" in shown
    assert SECRET not in str(caught.value) + shown + plan + repr(query.lastProgress) + repr(query.status)
