"""The trigger and the name of a query, as calls of ours take them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spark_ext.support.spark_errors import unless_refused
from txnlog.common.names import nearest
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_WITHOUT_BATCHES: Final = frozenset({"continuous", "realTime"})
"""Triggers that Spark takes, and then refuses where the query starts: what we write is a micro-batch."""


def triggered(writer: DataStreamWriter, trigger: object) -> DataStreamWriter:
    """The writer with a trigger. Raises InvalidInputError for what is none, or has no micro-batches."""
    if trigger is None:
        return writer
    example = 'pass a dict like {"processingTime": "10 seconds"} or {"availableNow": True}'
    if not isinstance(trigger, Mapping):
        raise InvalidInputError(f"trigger is a dict of one argument, not {shown(trigger)}", advice=example)
    known = sorted(inspect.signature(writer.trigger).parameters)
    for name in trigger:
        if name not in known:
            raise InvalidInputError(f"Spark has no trigger {shown(name)}", advice=nearest(str(name), known))
        if name in _WITHOUT_BATCHES:
            raise InvalidInputError(f"the trigger {name!r} has no micro-batches", advice=example)
    text = f"Spark refuses the trigger {shown(dict(trigger))}"
    return unless_refused(lambda: writer.trigger(**trigger), text, example)


def check_query_name(spark: SparkSession, name: object) -> None:
    """Raise InvalidInputError for a name that is no text, or that a running query of the session has."""
    if name is None:
        return
    if not isinstance(name, str):
        raise InvalidInputError(f"query_name is text, not {shown(name)}", advice="leave it out, or name the query")
    if any(query.name == name for query in spark.streams.active):
        raise InvalidInputError(
            f"a query with the name {name!r} is running in this session", advice="stop it, or name this one otherwise"
        )


__all__ = ["check_query_name", "triggered"]
