"""Sessions beside the user's, in which the files of native scans are found.

The session in which Spark found the files of a scan is asked for its settings ever after: how it looks at the files,
when they are found; how it cuts them into tasks, each time that a query over them is executed. So a setting that is
restored after a call is gone when the query runs, and one that is not changes all the user's own queries. A session of
our own, with the user's settings and a few of ours, does neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from spark_ext.support.python_process import ProcessLock
from spark_ext.support.spark_versions import has_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

TASK_BYTES: Final = 4 << 20
"""Bytes of a task at least: about a row group, which is read as a whole, so that cutting finer gains nothing."""

_MOST: Final = 16
"""Sessions kept. One that is dropped lives on with the DataFrames that were made in it."""

_MIN_TASKS: Final = "spark.sql.files.minPartitionNum"
_OPEN_COST: Final = "spark.sql.files.openCostInBytes"
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_FIRST_READER: Final = "spark.sql.sources.useV1SourceList"
"""Which formats Spark reads by its first interface to sources: only that one has a relation to take over."""

_NULL_STRUCTS: Final = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
"""With it a struct is null in a file that is older than those of its fields which a query asks for."""

_DECIMALS: Final = "spark.sql.parquet.filterPushdown.decimal"
"""Of a file whose decimals have fewer digits than the column, Spark fails on a comparison that it hands down to it."""

_LISTS: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
"""To a file of shorter whole numbers Spark hands down those of a list without their upper bits: NOT IN loses rows."""

_sessions: Final[dict[tuple[str, int, bool], SparkSession]] = {}
"""By the settings of the user's session (the application's id is one of them), the number of tasks, and whether columns
were altered."""

_lock: Final = ProcessLock(_sessions.clear)


def session_beside(spark: SparkSession, size_bytes: int, *, altered: bool = False) -> SparkSession:
    """A session with the settings that ``spark`` has now, made for scans of so many bytes.

    In it no number of paths starts a job that lists them (above 32, one does: seconds for thousands), and small files
    share tasks, however many they are: Spark counts each as 4 MiB otherwise. ``altered``: some files may have narrower
    columns than others.
    """
    jvm_session = spark._jsparkSession
    settings = str(jvm_session.conf().getAll().mkString("\n"))
    tasks = _tasks(size_bytes, int(spark.conf.get(_MIN_TASKS, None) or jvm_session.leafNodeDefaultParallelism()))
    with _lock:
        found = _sessions.get((settings, tasks, altered))
        if found is None:
            found = _made(spark, tasks, altered=altered)
            if len(_sessions) >= _MOST:
                _sessions.clear()
            _sessions[settings, tasks, altered] = found
    return found


def _tasks(size_bytes: int, processors: int) -> int:
    """As many as there are processors; fewer for few bytes, and then a power of two: few sessions serve all sizes."""
    wanted = max(1, size_bytes // TASK_BYTES)
    return processors if wanted >= processors else 1 << (wanted.bit_length() - 1)


def _made(spark: SparkSession, tasks: int, *, altered: bool) -> SparkSession:
    made = spark.newSession()
    own = dict(made.conf.getAll)
    settings = made._jsparkSession.sessionState().conf()
    for name, value in dict(spark.conf.getAll).items():
        if own.get(name) != value:
            # What a second builder.config(...).getOrCreate() brought may be a setting that conf.set() refuses.
            settings.setConfString(name, value)
    made.conf.set(_LISTING, str((1 << 31) - 1))
    made.conf.set(_OPEN_COST, "0")
    made.conf.set(_MIN_TASKS, str(tasks))
    made.conf.set(_FIRST_READER, "parquet")
    made.conf.set(_NULL_STRUCTS, "false")
    if altered:
        made.conf.set(_DECIMALS, "false")
        made.conf.set(_LISTS, "0")
    return made


def load_files(spark: SparkSession, reader: DataFrameReader, files: Sequence[str]) -> DataFrame:
    """``reader.load(files)``, where the reader is of this session.

    PySpark hands over one path at a time, which takes longer than Spark needs for them.
    """
    if not has_jvm(spark) or any("\n" in file for file in files):
        return reader.load(list(files))
    jvm: Any = spark._jvm
    paths = jvm.java.util.regex.Pattern.compile("\n").split("\n".join(files))
    return DataFrame(reader._jreader.load(paths), spark)


def taken_over(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """A plain scan of files of another session, as a DataFrame of this one."""
    relation = frame._jdf.queryExecution().analyzed().relation()
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)


__all__ = ["TASK_BYTES", "load_files", "session_beside", "taken_over"]
