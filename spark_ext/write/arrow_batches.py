"""A job that hands rows to Python, in Arrow batches that Spark need not measure.

Since 4.1 Spark asks the columns of a batch for their sizes behind every row, so that none gets above
``spark.sql.execution.arrow.maxBytesPerBatch``. That takes as long as all else that its side of a write does. Where no
row is wider than its share of that limit, no batch of ``maxRecordsPerBatch`` rows can get above it, and a look at the
widths of a row's texts, which costs next to nothing, takes the place of the measuring.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

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

MAX_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
MAX_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

NOT_MEASURED: Final = (1 << 31) - 1
"""The one value of ``MAX_BYTES`` with which Spark measures nothing."""

_TEXTS: Final = (StringType, BinaryType)
_FLAT: Final = (*_TEXTS, BooleanType, NumericType, DateType, TimestampType, TimestampNTZType)

_FIXED_BYTES: Final = 17
"""Of a value: a decimal has 16, none has more; a byte stands for what says whether it is null."""

_TEXT_BYTES: Final = 9
"""Of a text or a binary, beside its bytes: where it begins, and whether it is null."""

_MOST_TEXTS: Final = 100
"""Of a row: the sum of more widths takes its time, and from some hundreds on Spark's analysis has no stack for it."""

_MOST: Final = 1_000
_wide: Final[OrderedDict[Hashable, None]] = OrderedDict()
"""What had a row that was too wide: whoever writes there again does not try first."""

_lock: Final = ProcessLock(_wide.clear)


def collect(frame: DataFrame, task: Task, schema: str, *, mark: str, place: Hashable) -> list[Row]:
    """``frame.mapInArrow(task, schema).collect()``, measured by Spark only where a batch might get above its limit.

    A row that is too wide fails the job, which then runs again, measured.

    Args:
        frame: columns without dots in their names.
        task: see ``mapInArrow``.
        schema: of what it yields.
        mark: a text that nothing else contains.
        place: where such rows go: a second job that goes there is measured at once, once a row was too wide.
    """
    with _lock:
        known = place in _wide
    share = None if known else _share(frame)
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


def _share(frame: DataFrame) -> int | None:
    """How many bytes the texts of a row may have; None where Spark's own measuring stays.

    So it does where the session was given a limit of its own (or the version has none), where the widths of nested
    values or of very many texts would take longer to compute, and where Python has a part in the frame: it gets rows of
    other widths, in the same job.
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
    if _has_python(spark, frame._jdf.queryExecution()):
        return None
    share = limit // rows - sum(_TEXT_BYTES if isinstance(kind, _TEXTS) else _FIXED_BYTES for kind in kinds)
    return share if share >= 0 else None


def _has_python(spark: SparkSession, execution: Any) -> bool:
    """Whether rows may go to Python before they come to us."""
    jvm: Any = spark._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    plan = execution.analyzed()
    if plan.containsPattern(pattern.PYTHON_UDF()):
        return True
    # Only the optimizer tells table functions of Python from others.
    if plan.containsPattern(pattern.GENERATOR()) and execution.optimizedPlan().containsPattern(
        pattern.EVAL_PYTHON_UDTF()
    ):
        return True
    leaves = plan.collectLeaves()
    # A checkpoint that is yet to be made, or a stream's batch: what is before it is in no plan.
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
