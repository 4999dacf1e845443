"""The kind and version of Spark: a classic session or Spark Connect, and what a version lacks.

A feature that an older version lacks is an error that names the needed version and an alternative; a feature that is
broken in a version is a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

from txnlog.common.validation import type_of
from txnlog.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger: Final = logging.getLogger("txnlog.spark")

_COLUMNAR_INPUT: Final = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def has_jvm(spark: SparkSession) -> bool:
    """Whether a session has Spark's JVM in its driver: otherwise it is a client of Spark Connect.

    Neither the session nor its DataFrames have attributes of the JVM then (``_jsparkSession``, ``sparkContext``,
    ``_jdf``), which is the same in all versions; the classes of sessions are not. Of a DataFrame ask its
    ``sparkSession``: PySpark of one process can have sessions of both kinds.
    """
    return hasattr(spark, "_jsparkSession")


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session was stopped: its calls would fail with an error of Java's."""
    return spark.sparkContext._jsc is None if has_jvm(spark) else bool(spark.is_stopped)  # type: ignore[attr-defined]  # Connect's


def check_session(spark: object) -> None:
    """Raise InvalidInputError for what is no session, and for a session that was stopped."""
    if not hasattr(spark, "conf"):
        raise InvalidInputError(
            f"the first argument is a SparkSession, not {type_of(spark)}", advice="call it with (spark, path, ...)"
        )
    if is_stopped(spark):  # type: ignore[arg-type]
        raise session_stopped()


def session_stopped() -> InvalidInputError:
    """The error for a session that does not answer any more."""
    return InvalidInputError(
        "the Spark session was stopped", advice="make a new one (builder.getOrCreate()), and call again with it"
    )


def check_streaming_source() -> None:
    """Raise UnsupportedFeature where Spark does not pass a batch's start to a source: before 4.2.

    Offsets include the start of their batch: without it nothing could be acknowledged exactly.
    """
    try:
        import pyspark.sql.streaming.datasource  # noqa: F401, PLC0415 - whether it is there is the question
    except ImportError:
        instead = "use spark_ext.process, which reads topics on this version as well"
        raise _lacks("reading a topic as a stream", "4.2", instead) from None


def check_streaming_sink() -> None:
    """Raise UnsupportedFeature where Spark passes rows to a streaming sink one by one, not as Arrow: before 4.1."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise _lacks("the format as a streaming sink", "4.1", "use spark_ext.write_stream: a handler writes each batch")


def warn_of_functions_that_hang(spark: SparkSession) -> None:
    """Log a warning where a handler's plain ``udf`` over columns of Parquet files may never return.

    That is so in Spark 4.2.0 only (SPARK-58241), where the columns of a scan reach the function as they are, as in a
    filter of a batch: the task waits for ever without an error.
    """
    # No default is passed: Spark would return it instead of its own where the setting is not set.
    if pyspark.__version__ == "4.2.0" and spark.conf.get(_COLUMNAR_INPUT) == "true":
        text = "Spark 4.2.0 may wait for ever where a plain Python udf is computed over Parquet files: set %s to false"
        _logger.warning(text, _COLUMNAR_INPUT)


def _lacks(what: str, since: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(f"{what} needs PySpark {since}, this is {pyspark.__version__}", advice=instead)


__all__ = [
    "check_session",
    "check_streaming_sink",
    "check_streaming_source",
    "has_jvm",
    "is_stopped",
    "session_stopped",
    "warn_of_functions_that_hang",
]
