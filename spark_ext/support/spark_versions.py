"""What kind of Spark this is: a driver's or Connect's, and which version.

What an older one lacks is an error that names its version, and the way out; what is broken in one is told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql import datasource

from txnlog.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger: Final = logging.getLogger("txnlog.spark")

_COLUMNAR_INPUT: Final = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def has_jvm(spark: SparkSession) -> bool:
    """Whether a session has Spark's JVM beside it: else it is a client of Spark Connect, with a protocol and no more.

    Neither the session nor its DataFrames have attributes of the JVM then (``_jsparkSession``, ``sparkContext``,
    ``_jdf``), which is the same in all versions; the classes of sessions are not. Of a DataFrame ask its
    ``sparkSession``: PySpark of one process can have sessions of both kinds.
    """
    return hasattr(spark, "_jsparkSession")


def is_stopped(spark: SparkSession) -> bool:
    """Whether a session was stopped: what it is asked for then ends in an error of Java's."""
    return spark.sparkContext._jsc is None if has_jvm(spark) else bool(spark.is_stopped)  # type: ignore[attr-defined]  # Connect's


def check_streaming_source() -> None:
    """Raise UnsupportedFeature where Spark does not tell a source where a batch begins: before 4.2.

    The offsets of a batch say where it began: without that nothing could be acknowledged exactly.
    """
    try:
        import pyspark.sql.streaming.datasource  # noqa: F401, PLC0415 - whether it is there is the question
    except ImportError:
        instead = "use spark_ext.process, which reads topics on this version as well"
        raise _lacks("reading a topic as a stream", "4.2", instead) from None


def check_streaming_sink() -> None:
    """Raise UnsupportedFeature where Spark hands a streaming sink rows one by one, not Arrow: before 4.1."""
    if not hasattr(datasource, "DataSourceStreamArrowWriter"):
        raise _lacks("the format as a streaming sink", "4.1", "use spark_ext.write_stream: a handler writes each batch")


def warn_of_functions_that_hang(spark: SparkSession) -> None:
    """Tell who is about to hand Parquet's columns to a handler that a plain ``udf`` over them never returns.

    In Spark 4.2.0 only, whatever reads the Parquet files (SPARK-58241). Nothing fails there: the task waits for ever.
    """
    # Without a default of ours: with one Spark gives that instead of its own, where nobody set anything.
    if pyspark.__version__ == "4.2.0" and spark.conf.get(_COLUMNAR_INPUT) == "true":
        text = "Spark 4.2.0 waits for ever where a plain Python udf is computed over Parquet files: set %s to false"
        _logger.warning(text, _COLUMNAR_INPUT)


def _lacks(what: str, since: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(f"{what} needs PySpark {since}, this is {pyspark.__version__}", advice=instead)


__all__ = ["check_streaming_sink", "check_streaming_source", "has_jvm", "is_stopped", "warn_of_functions_that_hang"]
