"""How Spark plans a native scan: jobs, tasks, and the settings of the user's session."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.read import native_scan, scan_session
from spark_ext.support.spark_schemas import spark_schema
from tests.by_hand import append, commit_sparse
from tests.spark.support import assert_same_rows, path_of
from txnlog.errors import CorruptionError, LimitExceeded
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.scans import SCHEMA, flushed, ns, planned, rows

__all__ = ["ns"]  # fixtures


LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def jobs_of(spark: SparkSession, group: str, work: Any) -> int:
    """How many jobs some work starts."""
    spark.sparkContext.setJobGroup(group, "")
    try:
        work()
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    finally:
        spark.sparkContext._jsc.clearJobGroup()


def test_many_files_are_found_without_a_job_that_lists_them(ns: Namespace, spark: SparkSession) -> None:
    commit_sparse(ns, "orders", list(range(0, 400, 10)), [rows(n) for n in range(40)])
    files = [ns._connection.store.url(item.key) for item in planned(ns)]
    assert len(files) == 40
    assert jobs_of(spark, "plain", lambda: spark.read.schema("id BIGINT").parquet(*files)) == 1, "how Spark does it"
    found: list[DataFrame] = []
    assert jobs_of(spark, "ours", lambda: found.append(spark_ext.read_topic(spark, path_of(ns, "orders")))) == 0
    assert found[0].count() == 40


def tasks_of(frame: DataFrame) -> int:
    """How many tasks read a frame's files when it is executed now."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def test_many_small_files_share_few_tasks_whenever_the_query_runs(ns: Namespace, spark: SparkSession) -> None:
    commit_sparse(ns, "orders", list(range(0, 1_000, 5)), [rows(n) for n in range(200)])
    files = [ns._connection.store.url(item.key) for item in planned(ns)]
    assert tasks_of(spark.read.schema("id BIGINT").parquet(*files)) > 5, "how Spark does it"
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
    assert tasks_of(frame) == 1
    assert tasks_of(frame.where("id > 3").select("id", "_offset")) == 1
    assert frame.count() == 200


def test_the_users_session_decides_what_ours_does_not(ns: Namespace, spark: SparkSession) -> None:
    for first in (0, 1_000):
        flushed(ns, p0=tuple(range(first, first + 500))).commit()
    size_bytes = sum(item.size_bytes for item in planned(ns))
    name = "spark.sql.files.maxPartitionBytes"
    for most, tasks in ((size_bytes, 1), (size_bytes // 2 + 100, 2)):
        spark.conf.set(name, str(most))
        try:
            frame = spark_ext.read_topic(spark, path_of(ns, "orders"))
        finally:
            spark.conf.unset(name)
        assert tasks_of(frame) == tasks
        assert frame.count() == 1_000
    assert tasks_of(spark_ext.read_topic(spark, path_of(ns, "orders"))) == 1


SETTINGS = {
    # as builder.config("spark.executor.memory", ...).getOrCreate() leaves it in the session that is there already
    "of the application": ("spark.executor.memory", "3g"),
    "formats by the newer interface": ("spark.sql.sources.useV1SourceList", "csv"),
    "structs as in older versions": ("spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing", "true"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_session_may_have_settings_that_do_not_go_with_a_scan(ns: Namespace, spark: SparkSession, kind: str) -> None:
    ns.create_topic("nested", pa.schema([("id", pa.int64()), ("pair", pa.struct([("a", pa.int64())]))]))
    ns.produce("nested", [{"id": 1, "pair": {"a": 1}}, {"id": 2, "pair": None}])
    ns.alter_topic("nested", widen={"pair": pa.struct([("a", pa.int64()), ("b", pa.int64())])})
    ns.produce("nested", [{"id": 3, "pair": {"a": 1, "b": 2}}])

    def read() -> list[tuple[Any, ...]]:
        frame = spark_ext.read_topic(spark, path_of(ns, "nested"), include_metadata=True)
        found = frame.where("pair IS NOT NULL").select("id", "pair.b", "_offset").sort("id").collect()
        return [tuple(row) for row in found]

    wanted = read()
    assert (3, 2, 2) in wanted
    name, value = SETTINGS[kind]
    settings = spark._jsparkSession.sessionState().conf()
    before = dict(spark.conf.getAll)
    settings.setConfString(name, value)
    try:
        assert read() == wanted
        assert dict(spark.conf.getAll) == {**before, name: value}
    finally:
        settings.unsetConf(name)


def test_metadata_that_another_client_gave_a_column_means_nothing_to_spark(ns: Namespace, spark: SparkSession) -> None:
    """It is free text: Spark would take ``EXISTS_DEFAULT`` for what older files do not have, and so on."""
    plain = spark_schema(ns._connection.topic_record("orders").schema)
    ns.produce("orders", rows(1, 2), partition=0)
    record = ns._connection.topic_record("orders")
    told = {"EXISTS_DEFAULT": "42", "CURRENT_DEFAULT": "42", "parquet.field.id": "x", "comment": "of somebody"}
    pair = schemas.StructType((schemas.StructField("b", "string", True, {"__CHAR_VARCHAR_TYPE_STRING": "char(9)"}),))
    added = (schemas.StructField("more", "long", True, told), schemas.StructField("pair", pair, True, told))
    append(ns, AlterTopic(record.id, schemas.StructType((*record.schema.fields, *added))))
    ns.produce("orders", [{"id": 3, "more": 7, "pair": {"b": "x"}}], partition=0)
    wanted = ns.snapshot().read("orders")
    assert wanted.column("more").to_pylist() == [None, None, 7]
    for frame in (
        spark_ext.read_topic(spark, path_of(ns, "orders")),
        spark.read.format("txnlog").load(path_of(ns, "orders")),
    ):
        assert_same_rows(frame, wanted)
        assert all(not field.metadata for field in frame.schema.fields)
    assert plain.fields == spark_schema(record.schema).fields


def test_a_scan_belongs_to_the_users_session(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(1, 2, 3), partition=0)
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"))
    assert frame.sparkSession is spark
    frame.createOrReplaceTempView("natively_scanned")
    try:
        assert spark.sql("SELECT count(*) n FROM natively_scanned WHERE id > 1").first() == (2,)
        others = spark.createDataFrame([(2, "two")], "id BIGINT, word STRING")
        for joined in (frame.join(others, "id"), others.join(frame, "id")):
            assert [row.word for row in joined.collect()] == ["two"]
        assert frame.cache().count() == 3
        assert frame.unpersist().count() == 3
    finally:
        spark.catalog.dropTempView("natively_scanned")


@pytest.mark.parametrize("before", [None, "7"])
def test_the_sessions_settings_stay_as_they_are_while_files_are_found(
    ns: Namespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    ns.produce("orders", rows(1), partition=0)
    if before is not None:
        spark.conf.set(LISTING, before)
    try:
        settings = dict(spark.conf.getAll)
        inside: list[dict[str, str]] = []
        real = native_scan._check_sizes

        def look(*arguments: Any) -> None:
            inside.append(dict(spark.conf.getAll))
            real(*arguments)

        monkeypatch.setattr(native_scan, "_check_sizes", look)
        threads = [threading.Thread(target=spark_ext.read_topic, args=(spark, path_of(ns, "orders"))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        Path(ns._connection.store.url(planned(ns)[0].key)).unlink()
        with pytest.raises(CorruptionError):
            spark_ext.read_topic(spark, path_of(ns, "orders"))
        assert inside == [settings] * 3
        assert dict(spark.conf.getAll) == settings
    finally:
        spark.conf.unset(LISTING)


def test_extra_sessions_are_few(spark: SparkSession) -> None:
    sizes = [0, 1, 5 << 20, 7 << 20, 9 << 20, 1 << 30]
    sessions = {size: scan_session.session_for_scans(spark, size) for size in sizes}
    assert all(scan_session.session_for_scans(spark, size) is session for size, session in sessions.items())
    assert [sessions[size].conf.get("spark.sql.files.minPartitionNum") for size in sizes] == list("111122")
    assert len({id(session) for session in sessions.values()}) == 2


@pytest.mark.parametrize(("mib", "tasks"), [(0, 1), (7, 1), (8, 2), (15, 2), (799, 128), (800, 200), (1 << 20, 200)])
def test_few_bytes_take_few_tasks_on_many_processors(mib: int, tasks: int) -> None:
    assert scan_session._tasks(mib << 20, 200) == tasks


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["la ke", "[lake]", "50%25 #1?", "läke*{a,b}", "la\nke"])
def test_a_root_may_be_called_what_it_likes(tmp_path: Path, spark: SparkSession, name: str) -> None:
    with txnlog.open(tmp_path / name, namespace="sales", create=True) as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        for number in range(3):
            flushed(ns, p0=(number,), p1=(number + 10,)).commit()
        wanted = ns.snapshot().read("orders", include_metadata=True)
        assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True), wanted)


def test_more_segments_than_can_be_looked_up_are_refused_with_a_way_out(
    ns: Namespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        flushed(ns, p0=(number,), p1=(number,)).commit()
    spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
    monkeypatch.setattr(native_scan, "MAX_LOOKUP_CELLS", 5)
    with pytest.raises(LimitExceeded, match="'orders' has 3 segments") as caught:
        spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
    assert caught.value.advice.endswith("use spark.read.format('txnlog'), which looks nothing up")
    assert spark.read.format("txnlog").option("includeMetadata", "true").load(path_of(ns, "orders")).count() == 6
    assert spark_ext.read_topic(spark, path_of(ns, "orders")).count() == 6, "without metadata nothing is looked up"
    monkeypatch.setattr(native_scan, "MAX_LOOKUP_CELLS", 1)
    with pytest.raises(LimitExceeded):
        spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
