"""Brings the ``txnlog`` format: Spark 4 imports every top-level ``pyspark_*`` module when it looks for data sources."""

from spark_ext.source import TxnLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
