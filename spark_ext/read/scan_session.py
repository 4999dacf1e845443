"""Separate Spark sessions, with settings of their own, in which the files of native scans are listed.

Spark reads the settings of the session that listed a scan's files at two times: when it lists the files, and when it
cuts them into tasks, each time that a query over them is executed. So a setting that is restored after the call has no
effect when the query runs, and one that is not restored changes all of the user's own queries. A separate session, with
the user's settings and a few more, avoids both.
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
"""The fewest bytes of a task: about a row group, which is read as a whole, so that smaller tasks gain nothing."""

_MOST: Final = 16
"""The most sessions kept for reuse. One that is dropped lives on with the DataFrames made in it."""

_MIN_TASKS: Final = "spark.sql.files.minPartitionNum"
_OPEN_COST: Final = "spark.sql.files.openCostInBytes"
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_FIRST_READER: Final = "spark.sql.sources.useV1SourceList"
"""The formats that Spark reads by the first version of its source interface: only that has a relation to reuse."""

_NULL_STRUCTS: Final = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"
"""If it is set, a struct is null in files that are older than all of its fields that a query selects."""

_DECIMALS: Final = "spark.sql.parquet.filterPushdown.decimal"
"""Spark fails on a pushed-down comparison in files whose decimals have fewer digits than the column."""

_LISTS: Final = "spark.sql.parquet.pushdown.inFilterThreshold"
"""In files with narrower integers, Spark cuts the upper bits off a pushed-down list: NOT IN loses rows."""

_sessions: Final[dict[tuple[str, int, bool], SparkSession]] = {}
"""By the settings of the user's session (the application's id is one of them), the number of tasks, and whether columns
were altered."""

_lock: Final = ProcessLock(_sessions.clear)


def session_for_scans(spark: SparkSession, size_bytes: int, *, altered: bool = False) -> SparkSession:
    """A session with the current settings of ``spark``, for scans of so many bytes.

    In it Spark never starts a job to list paths (otherwise it does above 32, which takes seconds for thousands), and
    any number of small files shares a task (otherwise each counts as 4 MiB). ``altered``: some files may have narrower
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
    """The number of tasks: that of processors, or for few bytes a smaller power of two, to need few sessions."""
    wanted = max(1, size_bytes // TASK_BYTES)
    return processors if wanted >= processors else 1 << (wanted.bit_length() - 1)


def _made(spark: SparkSession, tasks: int, *, altered: bool) -> SparkSession:
    made = spark.newSession()
    own = dict(made.conf.getAll)
    settings = made._jsparkSession.sessionState().conf()
    for name, value in dict(spark.conf.getAll).items():
        if own.get(name) != value:
            # A second builder.config(...).getOrCreate() may have set what conf.set() refuses.
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
    """``reader.load(files)`` for a reader of this session.

    PySpark passes one path at a time to Java, which takes longer than Spark needs for the files.
    """
    if not has_jvm(spark) or any("\n" in file for file in files):
        return reader.load(list(files))
    jvm: Any = spark._jvm
    paths = jvm.java.util.regex.Pattern.compile("\n").split("\n".join(files))
    return DataFrame(reader._jreader.load(paths), spark)


def taken_over(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """A plain file scan of another session as a DataFrame of this one."""
    relation = frame._jdf.queryExecution().analyzed().relation()
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(relation), spark)


__all__ = ["TASK_BYTES", "load_files", "session_for_scans", "taken_over"]
