"""PySpark on txnlog: the `txnlog` format, native scans and writes, transactions over many DataFrames."""
