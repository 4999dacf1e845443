"""Brings the ``txnlog`` format: Spark 4 imports every top-level ``pyspark_*`` module when it looks for data sources."""
