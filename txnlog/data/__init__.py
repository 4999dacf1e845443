"""Rows and the Parquet files of segments. Pure but for reading."""
