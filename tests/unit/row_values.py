"""Moments and types for values to store, and what becomes of them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from txnlog.data.row_buffer import conform

NOON = dt.datetime.fromisoformat("2026-11-21T12:00")
MIDNIGHT = dt.datetime.fromisoformat("2026-11-21T00:00")
UTC_NOON = NOON.replace(tzinfo=dt.UTC)
UTC_TYPE = pa.timestamp("us", "UTC")
DEFAULT = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.map_(pa.string(), pa.binary()))])


def one(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable)])


def stored(value: object, kind: pa.DataType) -> object:
    """What a dict's value becomes."""
    return conform({"x": value}, one(kind), topic="t")["x"][0].as_py()
