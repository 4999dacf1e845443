"""A job that hands rows to Python, in Arrow batches that Spark need not measure.

Since 4.1 Spark asks the columns of a batch for their sizes behind every row, so that none gets above
``spark.sql.execution.arrow.maxBytesPerBatch``. That takes as long as all else that its side of a write does. Where no
row is wider than its share of that limit, no batch of ``maxRecordsPerBatch`` rows can get above it, and a look at the
widths of a row's texts, which costs next to nothing, takes the place of the measuring.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spark_ext.support.columns import named
from spark_ext.support.python_process import ProcessLock
from spark_ext.support.spark_versions import has_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_logger: Final = logging.getLogger("txnlog.spark")

MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

NOT_MEASURED: Final = (1 << 31) - 1
"""The value of ``MAX_BYTES`` with which Spark does not measure batches."""

_TEXTS: Final = (StringType, BinaryType)
_FLAT: Final = (*_TEXTS, BooleanType, NumericType, DateType, TimestampType, TimestampNTZType)

_FIXED_BYTES: Final = 17
"""The most bytes of another value: 16 of a decimal, and one for whether it is null."""

_TEXT_BYTES: Final = 9
"""Bytes of a string or binary value in addition to its content: its position, and whether it is null."""

_MOST_TEXTS: Final = 100
"""The most such values in a row: summing more widths is slow, and hundreds overflow the stack of Spark's analysis."""

_MOST: Final = 1_000
_wide: Final[OrderedDict[Hashable, None]] = OrderedDict()
"""The places with a row that was too wide: the next job there is measured at once."""

_lock: Final = ProcessLock(_wide.clear)


def collect(
    frame: DataFrame, task: Task, schema: str, *, mark: str, place: Hashable, without_python: bool = False
) -> list[Row]:
    """``frame.mapInArrow(task, schema).collect()``, where Spark measures batches only if one might exceed its limit.

    A row that is too wide fails the job, which is then run again with measuring.

    Args:
        frame: columns without dots in their names.
        task: see ``mapInArrow``.
        schema: the schema of the task's rows.
        mark: a text that nothing else contains.
        place: the target of the rows: once a row was too wide, later jobs to the same place are measured at once.
        without_python: what is before the plan's leaves, which it may hide, is known to be no Python code.
    """
    with _lock:
        known = place in _wide
    share = None if known else _share_if_shown(frame, without_python=without_python)
    if share is not None:
        try:
            with _not_measured(frame.sparkSession):
                return _within(frame, share, mark).mapInArrow(task, schema).collect()
        except PySparkException as error:
            if _too_wide(mark) not in str(error):
                raise
        with _lock:
            _wide[place] = None
            if len(_wide) > _MOST:
                _wide.popitem(last=False)
    return frame.mapInArrow(task, schema).collect()


def _share_if_shown(frame: DataFrame, *, without_python: bool) -> int | None:
    """See :func:`_share`. None, too, where this Spark does not show it: what it asks for is internal to Spark."""
    try:
        return _share(frame, without_python=without_python)
    except Py4JJavaError:
        raise  # what Java raised by itself, such as an interrupt
    except (Py4JError, AttributeError, TypeError, ValueError) as error:  # no such class or method, or another text
        _logger.debug("Spark measures the batches, as this version does not show how wide rows are: %s", error)
        return None


def _share(frame: DataFrame, *, without_python: bool) -> int | None:
    """The most bytes that the texts of a row may have; None where Spark must measure the batches.

    It must if the session sets a limit of its own (or the version has none), if widths of nested values or of very many
    texts would take longer to compute, and if the frame uses other Python code, which gets rows of other widths in the
    same job.
    """
    spark = frame.sparkSession
    if not has_jvm(spark) or spark.conf.get(MAX_BYTES, None) is not None:
        return None
    kinds = [field.dataType for field in frame.schema.fields]
    if not all(isinstance(kind, _FLAT) for kind in kinds):
        return None
    if sum(isinstance(kind, _TEXTS) for kind in kinds) > _MOST_TEXTS:
        return None
    limit = int(str(spark.conf.get(MAX_BYTES)).removesuffix("b"))
    rows = int(str(spark.conf.get(MAX_ROWS)))
    if limit == NOT_MEASURED or rows < 1:  # rows without a limit are as many as a task has
        return None
    if _has_python(spark, frame._jdf.queryExecution(), in_leaves=not without_python):
        return None
    share = limit // rows - sum(_TEXT_BYTES if isinstance(kind, _TEXTS) else _FIXED_BYTES for kind in kinds)
    return share if share >= 0 else None


def _has_python(spark: SparkSession, execution: Any, *, in_leaves: bool) -> bool:
    """Whether rows may pass through other Python code before the format's tasks get them."""
    jvm: Any = spark._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    plan = execution.analyzed()
    if plan.containsPattern(pattern.PYTHON_UDF()):
        return True
    # Only the optimizer distinguishes table functions of Python from others.
    if plan.containsPattern(pattern.GENERATOR()) and execution.optimizedPlan().containsPattern(
        pattern.EVAL_PYTHON_UDTF()
    ):
        return True
    if not in_leaves:
        return False
    leaves = plan.collectLeaves()
    # A checkpoint that is not written yet, or a stream's batch: the plan does not show what is before it.
    return any(leaves.apply(index).nodeName() == "LogicalRDD" for index in range(leaves.size()))


def _too_wide(mark: str) -> str:
    return f"a row is too wide for batches that are not measured: the job runs again {mark}"


def _within(frame: DataFrame, share: int, mark: str) -> DataFrame:
    """The frame; a row with wider texts is an error."""
    texts = [field.name for field in frame.schema.fields if isinstance(field.dataType, _TEXTS)]
    if not texts:
        return frame
    width = sum((F.coalesce(F.octet_length(named(name)), F.lit(0)).cast("bigint") for name in texts), F.lit(0))
    first = named(texts[0])
    # In a column, not in a filter: Spark would compute what a filter needs a second time, below.
    checked = F.when(width > share, F.raise_error(F.lit(_too_wide(mark)))).otherwise(first)
    return frame.withColumn(texts[0], checked)


@contextmanager
def _not_measured(spark: SparkSession) -> Iterator[None]:
    """Jobs of this thread do not measure. The session's settings stay as they are: others use it meanwhile."""
    context = spark.sparkContext
    before = context.getLocalProperty(MAX_BYTES)
    context.setLocalProperty(MAX_BYTES, str(NOT_MEASURED))
    try:
        yield
    finally:
        context.setLocalProperty(MAX_BYTES, before)  # type: ignore[arg-type]  # None takes it away


__all__ = ["MAX_BYTES", "MAX_ROWS", "NOT_MEASURED", "collect"]
