"""Errors of Spark, Java and Py4J, as a call of an ingestion shows them: without a session."""

from __future__ import annotations

import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException

from spark_ext.ingest.kafka_cluster import KafkaCluster
from spark_ext.support.spark_errors import unless_refused
from txnlog.errors import InvalidInputError, TxnLogError, UnsupportedFeature


def test_of_what_spark_refuses_only_the_first_line_is_shown() -> None:
    def refuses() -> None:
        raise AnalysisException("[UNRESOLVED_COLUMN] no column `nope`\nRelation kafka [ssl.keystore.key=hush]")

    with pytest.raises(InvalidInputError, match=r"refused: .*no column `nope`") as caught:
        unless_refused(refuses, "refused", "correct it")
    assert "hush" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None, "what a debugger shows"


@pytest.mark.parametrize(
    ("error", "is_stopped", "kind", "why"),
    [
        (Py4JError("listOffsets does not exist"), False, UnsupportedFeature, "client of the session lacks a call"),
        (Py4JError("there is no object"), True, InvalidInputError, "the Spark session was stopped"),
        (Py4JNetworkError("no answer"), False, InvalidInputError, "the Spark session was stopped"),
    ],
    ids=str,
)
def test_an_error_of_py4j_is_a_stopped_session_only_where_it_was_stopped(
    error: Exception, is_stopped: bool, kind: type[TxnLogError], why: str
) -> None:
    context = SimpleNamespace(_gateway=None, _jsc=None if is_stopped else "it")
    spark: Any = SimpleNamespace(_jvm=None, _jsparkSession=None, sparkContext=context)
    cluster = KafkaCluster(spark, {"kafka.bootstrap.servers": "nowhere:9092"})

    def asking() -> None:
        raise error

    with pytest.raises(kind, match=why):
        cluster._asked(asking)
