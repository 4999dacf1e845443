"""What an older Spark lacks is an error that names both versions; the same error there is what its tests see."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession, datasource
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.types import StructType

from spark_ext.source import TxnLogDataSource
from spark_ext.support.spark_versions import has_jvm, is_stopped, warn_of_functions_that_hang
from txnlog.errors import InvalidInputError, UnsupportedFeature


@pytest.fixture
def source() -> TxnLogDataSource:
    """The format, without a path: what it has is looked at first."""
    return TxnLogDataSource({})


def test_a_stream_of_a_topic_needs_a_spark_that_says_where_a_batch_begins(
    source: TxnLogDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with pytest.raises(
        UnsupportedFeature, match=r"as a stream needs PySpark 4\.2, this is 4\.1\.4.*spark_ext\.process"
    ):
        source.streamReader(StructType()).initialOffset()


def test_a_streaming_sink_needs_a_spark_that_passes_it_arrow(
    source: TxnLogDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    with pytest.raises(UnsupportedFeature, match=r"sink needs PySpark 4\.1, this is 4\.0\.5.*spark_ext\.write_stream"):
        source.streamWriter(StructType(), overwrite=False)


@pytest.mark.parametrize(("kind", "answer"), [(SparkSession, True), (ConnectSession, False)])
def test_a_session_of_connect_is_distinguished_from_one_with_a_jvm(kind: Any, answer: bool) -> None:
    session = object.__new__(kind)  # there is no server
    if answer:
        session._jsparkSession = object()  # as its making sets it
    assert has_jvm(session) is answer


@pytest.mark.parametrize("stopped", [True, False])
def test_a_stopped_session_is_known_with_and_without_a_jvm(stopped: bool) -> None:
    driver: Any = SimpleNamespace(
        _jsparkSession=object(), sparkContext=SimpleNamespace(_jsc=None if stopped else object())
    )
    client: Any = object.__new__(ConnectSession)
    client._client = SimpleNamespace(is_closed=stopped)
    assert is_stopped(driver) is is_stopped(client) is stopped


def test_what_this_spark_has_is_refused_for_nothing_but_its_options(source: TxnLogDataSource) -> None:
    with pytest.raises(InvalidInputError, match="the path is missing"):
        source.streamReader(StructType()).initialOffset()
    with pytest.raises(InvalidInputError, match="the path is missing"):
        source.streamWriter(StructType(), overwrite=False)


COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


@pytest.mark.parametrize(
    ("version", "setting", "told"),
    [("4.2.0", "true", 1), ("4.2.0", "false", 0), ("4.2.1", "true", 0), ("4.0.5", None, 0)],
)
def test_who_passes_columns_to_a_handler_is_warned_of_functions_that_hang(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, setting: str | None, told: int
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    session: Any = SimpleNamespace(conf={} if setting is None else {COLUMNAR_INPUT: setting})
    warn_of_functions_that_hang(session)
    said = [record.getMessage().endswith(f"set {COLUMNAR_INPUT} to false") for record in caplog.records]
    assert said == [True] * told


def test_who_set_nothing_is_warned_as_well(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """What Spark does by itself is what it does in most sessions."""
    before = spark.conf.get(COLUMNAR_INPUT, None)
    spark.conf.unset(COLUMNAR_INPUT)
    try:
        warn_of_functions_that_hang(spark)
    finally:
        if before is not None:
            spark.conf.set(COLUMNAR_INPUT, before)
    assert len(caplog.records) == (pyspark.__version__ == "4.2.0")
