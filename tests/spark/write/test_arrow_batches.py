"""Rows on their way to Python: measured by Spark where a batch might get too big, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

import spark_ext
from spark_ext.write import arrow_batches
from spark_ext.write.arrow_batches import MAX_BYTES, MAX_ROWS, NOT_MEASURED
from tests.spark.support import path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

LIMIT = 64 << 20
"""Spark's own, of a batch."""

SHARE = LIMIT // 10_000
"""Of a row in a batch of as many rows as Spark puts into one."""


def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task sees: the limit of its batches, and how many rows each has."""
    context = TaskContext.get()
    assert context is not None
    rows = [batch.num_rows for batch in batches]
    limit = context.getLocalProperty(MAX_BYTES)
    yield pa.record_batch([pa.array([limit]), pa.array([max(rows, default=0)])], names=["max_bytes", "most"])


@contextmanager
def counted_jobs(spark: SparkSession, group: str) -> Iterator[Callable[[], int]]:
    """How many jobs this thread has begun in the block: Spark may fail a job before its Python task has begun."""
    context = spark.sparkContext
    context.setJobGroup(group, "counted by a test")
    try:
        yield lambda: len(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)


def seen(frame: DataFrame, place: str) -> tuple[str | None, int]:
    """The limit that the tasks had, and the rows of the biggest batch."""
    answers = arrow_batches.collect(frame, look, "max_bytes string, most long", mark=f"(mark {place})", place=place)
    (limit,) = {row.max_bytes for row in answers}
    return limit, max(row.most for row in answers)


def plain(spark: SparkSession, rows: int = 20, *, width: int = 10) -> DataFrame:
    """Rows in one task, of which the last one's text has so many bytes."""
    texts = F.when(F.col("id") == rows - 1, F.lit("x" * width)).otherwise(F.lit("short"))
    return spark.range(0, rows, 1, 1).select("id", texts.alias("text"), F.lit(None).cast("binary").alias("empty"))


def measured(limit: str | None) -> bool:
    """A session's own limit comes to a task as well; Spark's default does not."""
    return limit != str(NOT_MEASURED)


def test_rows_that_cannot_fill_a_batch_are_not_measured(spark: SparkSession) -> None:
    assert not measured(seen(plain(spark), "narrow")[0])
    assert not measured(seen(spark.range(10), "numbers")[0])


def test_neither_are_they_behind_a_shuffle_and_a_broadcast(spark: SparkSession) -> None:
    counted = plain(spark).groupBy("text").count()
    assert not measured(seen(counted, "grouped")[0])
    joined = plain(spark).join(F.broadcast(plain(spark).select("id", F.lit("other").alias("more"))), "id")
    assert not measured(seen(joined, "joined")[0])


def test_a_row_that_is_too_wide_has_the_job_run_again_measured_and_the_next_one_at_once(spark: SparkSession) -> None:
    with counted_jobs(spark, "wide") as jobs:
        assert measured(seen(plain(spark, width=SHARE), "wide")[0])
        assert jobs() == 2
        assert measured(seen(plain(spark), "wide")[0])
        assert jobs() == 3
        assert not measured(seen(plain(spark), "elsewhere")[0])
        assert jobs() == 4


def test_texts_count_together_by_their_bytes_and_a_null_counts_nothing(spark: SparkSession) -> None:
    halves = spark.range(1).select(F.lit("ä" * (SHARE // 4)).alias("a"), F.lit(b"x" * (SHARE // 2)).alias("b"))
    assert measured(seen(halves, "halves")[0])
    assert not measured(seen(halves.select("a"), "one half")[0])
    assert not measured(seen(halves.select(F.lit(None).cast("string").alias("n"), "b"), "and a null")[0])


def test_a_batch_of_the_widest_rows_that_are_not_measured_is_within_the_limit(spark: SparkSession) -> None:
    fits = spark.range(0, 10_000, 1, 1).select("id", F.repeat(F.lit("x"), SHARE - 30).alias("text"))
    limit, most = seen(fits, "just fits")
    assert (measured(limit), most) == (False, 10_000)
    assert most * (SHARE - 30 + 8) < LIMIT


@pytest.mark.parametrize("expression", ["array(id)", "struct(id)", "map(id, id)", "interval 1 day"], ids=str.split)
def test_what_has_no_width_at_a_glance_is_measured(spark: SparkSession, expression: str) -> None:
    assert measured(seen(plain(spark).selectExpr("id", f"{expression} AS other"), expression)[0])


def test_rows_of_very_many_texts_are_measured(spark: SparkSession) -> None:
    texts = [f"'text' AS c{position}" for position in range(1_000)]
    assert not measured(seen(spark.range(1).selectExpr(*texts[:100]), "many")[0])
    assert measured(seen(spark.range(1).selectExpr(*texts), "very many")[0])


def test_frames_in_which_python_has_a_part_are_measured(spark: SparkSession) -> None:
    function = F.udf(str.upper, "string", useArrow=True)
    assert measured(seen(plain(spark).withColumn("text", function("text")), "a function")[0])
    mapped = plain(spark).mapInArrow(lambda batches: batches, "id long, text string, empty binary")
    assert measured(seen(mapped, "mapped")[0])


def test_so_are_those_with_a_table_function_of_python(spark: SparkSession) -> None:
    class Twice:
        def eval(self, text: str) -> Iterator[tuple[str]]:
            yield from [(text,), (text,)]

    function: Any = F.udtf(Twice, returnType="more string", useArrow=True)
    spark.udtf.register("arrow_batches_twice", function)
    plain(spark).createOrReplaceTempView("arrow_batches_plain")
    called = spark.sql("SELECT more FROM arrow_batches_plain, LATERAL arrow_batches_twice(text)")
    assert measured(seen(called, "a table function")[0])
    exploded = spark.sql("SELECT explode(array(text, text)) AS more FROM arrow_batches_plain")
    assert not measured(seen(exploded, "one of Spark's")[0])


def test_so_are_those_that_hide_where_they_come_from(spark: SparkSession) -> None:
    grouped = plain(spark).groupBy("text").count()
    assert measured(seen(grouped.localCheckpoint(eager=False), "a checkpoint")[0])


def test_a_limit_of_ones_own_is_kept(spark: SparkSession) -> None:
    spark.conf.set(MAX_BYTES, "1KB")
    try:
        limit, most = seen(plain(spark, 1_000), "own limit")
    finally:
        spark.conf.unset(MAX_BYTES)
    assert (limit, most < 1_000) == ("1KB", True)


def test_more_rows_in_a_batch_have_smaller_shares(spark: SparkSession) -> None:
    before = str(spark.conf.get(MAX_ROWS))
    spark.conf.set(MAX_ROWS, "100000")
    try:
        assert measured(seen(plain(spark, width=SHARE // 2), "shares")[0])
        spark.conf.set(MAX_ROWS, "0")
        assert measured(seen(plain(spark), "no end of rows")[0])
    finally:
        spark.conf.set(MAX_ROWS, before)


def test_other_jobs_are_measured_as_before_also_behind_one_that_failed(spark: SparkSession) -> None:
    context = spark.sparkContext
    broken = plain(spark).withColumn("text", F.when(F.col("id") == 0, F.raise_error(F.lit("broken"))).otherwise("text"))
    with pytest.raises(PySparkException, match="broken"):
        seen(broken, "broken")
    assert context.getLocalProperty(MAX_BYTES) is None
    context.setLocalProperty(MAX_BYTES, "5MB")
    try:
        seen(plain(spark), "another thread's own")
        assert context.getLocalProperty(MAX_BYTES) == "5MB"
    finally:
        context.setLocalProperty(MAX_BYTES, None)


def test_what_a_transaction_writes_is_there_once_however_wide(namespace: Namespace, spark: SparkSession) -> None:
    namespace.create_topic("texts", pa.schema([("id", pa.int64()), ("text", pa.string())]), partitions=2, key="id")
    frame = plain(spark, 1_000, width=SHARE).select("id", "text")
    for _ in range(2):
        with spark_ext.transaction(spark, path_of(namespace)) as txn:
            assert txn.write(frame, "texts") == 1_000
    table = namespace.snapshot().read("texts")
    assert sorted(table["id"].to_pylist()) == sorted([*range(1_000)] * 2)
    assert sum(len(text) > SHARE - 1 for text in table["text"].to_pylist()) == 2


@pytest.mark.parametrize("name", ["plan", "limit"])
def test_where_spark_does_not_show_what_it_did_rows_are_measured_and_written(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Classes inside of Spark, and the spelling of a default, may be others in its next version."""
    if name == "plan":
        monkeypatch.setattr(arrow_batches, "_has_python", lambda spark, *_, **__: spark._jvm.org.apache.spark.No.ONE())
    else:
        monkeypatch.setattr(arrow_batches, "MAX_ROWS", "spark.sql.sources.default")  # whose value is no number
    assert measured(seen(plain(spark), f"not shown: {name}")[0])
