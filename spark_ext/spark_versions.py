"""What an older Spark lacks is an error that names its version, and the way out."""

from __future__ import annotations

import pyspark
from pyspark.sql import datasource

from txnlog.errors import UnsupportedFeature


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


def _lacks(what: str, since: str, instead: str) -> UnsupportedFeature:
    return UnsupportedFeature(f"{what} needs PySpark {since}, this is {pyspark.__version__}", advice=instead)


__all__ = ["check_streaming_sink", "check_streaming_source"]
