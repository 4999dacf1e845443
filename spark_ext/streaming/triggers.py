"""The trigger of a query, as calls of ours take it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from spark_ext.support.spark_errors import first_line
from txnlog.common.names import nearest
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def triggered(writer: DataStreamWriter, trigger: object) -> DataStreamWriter:
    """The writer with a trigger. Raises InvalidInputError for what Spark takes for none."""
    if trigger is None:
        return writer
    example = 'pass a dict like {"processingTime": "10 seconds"} or {"availableNow": True}'
    if not isinstance(trigger, Mapping):
        raise InvalidInputError(f"trigger is a dict of one argument, not {shown(trigger)}", advice=example)
    known = sorted(inspect.signature(writer.trigger).parameters)
    for name in trigger:
        if name not in known:
            raise InvalidInputError(f"Spark has no trigger {shown(name)}", advice=nearest(str(name), known))
    try:
        return writer.trigger(**trigger)
    except PySparkException as error:
        text = f"Spark refuses the trigger {shown(dict(trigger))}: {first_line(error)}"
        raise InvalidInputError(text, advice=example) from error


__all__ = ["triggered"]
