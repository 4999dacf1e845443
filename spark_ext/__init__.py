"""PySpark on txnlog: the `txnlog` format, native scans and writes, transactions over many DataFrames.

Names are loaded at their first use, so that an executor that only reads needs none of a client's packages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_ext.delta_writes import write_delta
    from spark_ext.handles import use
    from spark_ext.native import read_topic, visible
    from spark_ext.processing import process
    from spark_ext.processing_run import Processed
    from spark_ext.stream_handler import write_stream
    from spark_ext.transactions import DataFrameTransaction, transaction

_HOMES = {
    "DataFrameTransaction": "spark_ext.transactions",
    "Processed": "spark_ext.processing_run",
    "process": "spark_ext.processing",
    "read_topic": "spark_ext.native",
    "transaction": "spark_ext.transactions",
    "use": "spark_ext.handles",
    "visible": "spark_ext.native",
    "write_delta": "spark_ext.delta_writes",
    "write_stream": "spark_ext.stream_handler",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'spark_ext' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


__all__ = [
    "DataFrameTransaction",
    "Processed",
    "process",
    "read_topic",
    "transaction",
    "use",
    "visible",
    "write_delta",
    "write_stream",
]
