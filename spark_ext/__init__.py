"""PySpark on txnlog: the `txnlog` format, native scans and writes, transactions over many DataFrames.

Names are loaded at their first use, so that an executor that only reads needs none of a client's packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_ext.ingest.end_ingestion import end_ingestion
    from spark_ext.ingest.ingest_kafka import ingest_kafka
    from spark_ext.ingest.ingested_offsets import IngestedPartition, ingested_offsets
    from spark_ext.processing.process import process
    from spark_ext.processing.run import Processed
    from spark_ext.read.metadata import metadata
    from spark_ext.read.native_scan import read_topic, visible
    from spark_ext.streaming.lag import TopicLag
    from spark_ext.streaming.monitor import Monitor, monitor
    from spark_ext.streaming.write_stream import write_stream
    from spark_ext.support.namespace_cache import use
    from spark_ext.write.dataframe_transaction import DataFrameTransaction, transaction
    from spark_ext.write.write_delta import write_delta

_HOMES = {
    "DataFrameTransaction": "spark_ext.write.dataframe_transaction",
    "IngestedPartition": "spark_ext.ingest.ingested_offsets",
    "Monitor": "spark_ext.streaming.monitor",
    "Processed": "spark_ext.processing.run",
    "TopicLag": "spark_ext.streaming.lag",
    "end_ingestion": "spark_ext.ingest.end_ingestion",
    "ingest_kafka": "spark_ext.ingest.ingest_kafka",
    "ingested_offsets": "spark_ext.ingest.ingested_offsets",
    "metadata": "spark_ext.read.metadata",
    "monitor": "spark_ext.streaming.monitor",
    "process": "spark_ext.processing.process",
    "read_topic": "spark_ext.read.native_scan",
    "transaction": "spark_ext.write.dataframe_transaction",
    "use": "spark_ext.support.namespace_cache",
    "visible": "spark_ext.read.native_scan",
    "write_delta": "spark_ext.write.write_delta",
    "write_stream": "spark_ext.streaming.write_stream",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'spark_ext' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        message = f"spark_ext.{name} needs PySpark, which is not installed: pip install 'txnlog[spark]'"
        raise ModuleNotFoundError(message, name="pyspark") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "DataFrameTransaction",
    "IngestedPartition",
    "Monitor",
    "Processed",
    "TopicLag",
    "end_ingestion",
    "ingest_kafka",
    "ingested_offsets",
    "metadata",
    "monitor",
    "process",
    "read_topic",
    "transaction",
    "use",
    "visible",
    "write_delta",
    "write_stream",
]
