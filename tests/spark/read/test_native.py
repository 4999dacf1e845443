"""Native scans against txnlog's own read."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
from spark_ext.read.scan import metadata_fields
from spark_ext.read.segment_constants import Places
from spark_ext.support.spark_schemas import spark_schema
from tests.by_hand import append, commit_sparse, compact, lay
from tests.spark.support import assert_same_rows, executed, partition_filters, path_of
from txnlog.data.segment_file import EncodedSegment
from txnlog.errors import InvalidInputError, VersionNotAvailable
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic, Begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.scans import LEVELS, SCHEMA, busy, delete_before, flushed, ns, planned, rows

__all__ = ["busy", "ns"]  # fixtures


STEPS = (
    "empty",
    "one produce",
    "many transactions in a segment",
    "nothing decided",
    "of several partitions",
    "decided",
    "before compaction",
    "compacted",
    "newest",
)


# --- the rows ---------------------------------------------------------------------------------------------------------


def test_the_topic_that_is_compared_has_segments_of_every_kind(busy: Any) -> None:
    ns, steps = busy
    assert tuple(steps) == STEPS
    segments = planned(ns, "read_uncommitted")
    kinds = {(item.stores_txn, item.stores_partition, item.compacted) for item in segments}
    assert kinds == {(True, True, False), (False, True, False), (False, False, False), (True, False, True)}
    assert {item.state for item in segments} == {"COMMITTED", "OPEN", "ABORTED"}
    table = ns.snapshot().read("orders", include_metadata=True)
    shared = [item for item in segments if item.stores_txn and not item.compacted]
    most = max(len({row["_txn_id"] for row in table.to_pylist() if row["_version"] == item.version}) for item in shared)
    assert most > 20, "transactions share a segment"


@pytest.mark.some(4)
@pytest.mark.clause("P-99", "P-100", "P-101", "P-102", "P-144")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", STEPS)
def test_rows_and_metadata_are_those_of_txnlogs_own_read(busy: Any, spark: SparkSession, step: str, level: str) -> None:
    ns, steps = busy
    version = steps[step]
    wanted = ns.snapshot(version).read("orders", isolation_level=level, include_metadata=True)
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"), version, level, include_metadata=True)
    assert_same_rows(frame, wanted)
    if step != "empty":
        assert wanted.num_rows > 0
    plain = spark_ext.read_topic(spark, path_of(ns, "orders"), version, isolation_level=level)
    assert_same_rows(plain, wanted.select(SCHEMA.names))


@pytest.mark.parametrize("level", LEVELS)
def test_the_schema_is_the_topics_with_or_without_rows(busy: Any, spark: SparkSession, level: str) -> None:
    ns, steps = busy
    user = [(f.name, f.dataType) for f in spark_schema(ns._connection.topic_record("orders").schema).fields]
    metadata = [(f.name, f.dataType) for f in metadata_fields(level)]
    for version in (steps["empty"], steps["newest"]):
        for include, expected in ((False, user), (True, user + metadata)):
            frame = spark_ext.read_topic(spark, path_of(ns, "orders"), version, level, include_metadata=include)
            assert [(f.name, f.dataType) for f in frame.schema.fields] == expected
            assert all(field.nullable for field in frame.schema.fields if not field.name.startswith("_"))


@pytest.mark.clause("P-234")
def test_merged_rows_that_are_not_visible_are_those_of_their_own_transaction(
    ns: Namespace, spark: SparkSession
) -> None:
    for ids in ((1, 2), (3,)):
        ns.produce("orders", rows(*ids), partition=0)
    compact(ns, "orders", [item.number for item in planned(ns)], 0)
    (merged,) = planned(ns)
    copy = EncodedSegment(ns._connection.store.get(merged.key), merged.rows, merged.checksum, {})
    number, txn = ns._connection.reserve_block(2)[:2]
    append(ns, Begin(txn), lay(ns, "orders", number, copy, txn, {0: merged.rows}, compacted=True))
    newest = ns.produce("orders", rows(4), partition=0).version
    wanted = ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True)
    own = [row for row in wanted.to_pylist() if row["_txn_id"] == ns._connection.txn_id(txn).to_bytes()]
    assert [(row["_version"], row["_timestamp"], row["_txn_state"]) for row in own] == [(None, None, "OPEN")] * 3
    frame = spark_ext.read_topic(
        spark, path_of(ns, "orders"), isolation_level="read_uncommitted", include_metadata=True
    )
    assert_same_rows(frame, wanted)
    assert frame.where("_version IS NULL").count() == 3
    assert frame.where(f"_version < {newest}").count() == 3


def test_the_newest_version_is_fixed_when_the_frame_is_made(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(1, 2), partition=0)
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"))
    ns.produce("orders", rows(3), partition=0)
    assert frame.count() == 2
    assert spark_ext.read_topic(spark, path_of(ns, "orders")).count() == 3


def test_a_time_means_the_newest_version_that_is_not_younger(ns: Namespace, spark: SparkSession) -> None:
    first = ns.produce("orders", rows(1, 2), partition=0).version
    at_ms = ns._connection.follower.log.entry(first).header.timestamp_ms
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    while ns._connection.runtime.now_ms() <= at_ms:
        time.sleep(0.001)
    ns.produce("orders", rows(3), partition=0)
    for timestamp in (at, at.isoformat(), at_ms):
        assert spark_ext.read_topic(spark, path_of(ns, "orders"), timestamp=timestamp).count() == 2
    with pytest.raises(VersionNotAvailable, match="the log begins after 2020-01-01T00:00:00Z "):
        spark_ext.read_topic(spark, path_of(ns, "orders"), timestamp="2020-01-01T00:00:00Z")
    with pytest.raises(InvalidInputError, match="a version or a timestamp, not both"):
        spark_ext.read_topic(spark, path_of(ns, "orders"), version=first, timestamp=at)


def test_columns_metadata_and_aggregates_are_chosen_freely(busy: Any, spark: SparkSession) -> None:
    ns, _ = busy
    wanted = ns.snapshot().read("orders", include_metadata=True)
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
    assert_same_rows(frame.select("_offset", "`a.name`"), wanted.select(["_offset", "a.name"]))
    assert_same_rows(frame.select("_txn_id"), wanted.select(["_txn_id"]))
    assert frame.count() == wanted.num_rows
    assert frame.where("_partition = 3 AND _offset >= 5").count() == sum(
        row["_partition"] == 3 and row["_offset"] >= 5 for row in wanted.to_pylist()
    )
    versions = {row["_version"]: row["n"] for row in frame.groupBy("_version").agg(F.count("*").alias("n")).collect()}
    assert versions == {
        version: wanted.column("_version").to_pylist().count(version)
        for version in set(wanted.column("_version").to_pylist())
    }


def test_only_the_wanted_columns_are_read_from_the_files(busy: Any, spark: SparkSession) -> None:
    ns, _ = busy
    frame = spark_ext.read_topic(spark, path_of(ns, "orders")).select("id")
    assert list(executed(frame).requiredSchema().fieldNames()) == ["id"]


TYPES = pa.schema(
    [
        ("data", pa.binary()),
        ("yes", pa.bool_()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("date", pa.date32()),
        ("local", pa.timestamp("us")),
        ("small", pa.decimal128(4, 2)),
        ("list", pa.list_(pa.field("element", pa.int64()))),
        ("map", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
    ]
)


def test_types_nulls_and_days_before_the_gregorian_calendar_come_through(ns: Namespace, spark: SparkSession) -> None:
    ns.create_topic("types", TYPES, delta="off")
    full = [
        b"\x00",
        True,
        -1,
        0.5,
        dt.date(1066, 10, 14),
        dt.datetime(1066, 10, 14, 1, tzinfo=dt.UTC).replace(tzinfo=None),
        Decimal("1.25"),
        [1],
        {"k": {}},
    ]
    ns.produce("types", pa.Table.from_pylist([dict(zip(TYPES.names, full, strict=True)), {}], schema=TYPES))
    assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "types")), ns.snapshot().read("types"))


def test_a_column_that_older_files_do_not_have_is_null_in_them(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(1, 2), partition=0)
    before = ns.snapshot().version
    wider = schemas.from_arrow(SCHEMA.append(pa.field("more", pa.int32())))
    append(ns, AlterTopic(ns.topic("orders").id, wider))
    ns.produce("orders", rows(3).append_column("more", pa.array([7], pa.int32())), partition=1)
    for version in (before, ns.snapshot().version):
        wanted = ns.snapshot(version).read("orders", include_metadata=True)
        assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "orders"), version, include_metadata=True), wanted)


def test_many_partitions(ns: Namespace, spark: SparkSession) -> None:
    ns.create_topic("wide", SCHEMA, partitions=300)
    for _ in range(2):
        txn = ns.begin()
        for partition in range(0, 300, 3):
            txn.produce("wide", rows(partition, partition + 1), partition=partition)
        txn.flush()
        txn.commit()
    wanted = ns.snapshot().read("wide", include_metadata=True)
    assert wanted.num_rows == 400
    assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "wide"), include_metadata=True), wanted)


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param([3, 70_000, 1 << 35], id="one level"),
        pytest.param([(7919 * n * n) % 1_000_003 for n in range(150)], id="two levels"),
    ],
)
def test_sparse_segment_numbers(ns: Namespace, spark: SparkSession, positions: list[int]) -> None:
    tables = [rows(*range(10 * n, 10 * n + 1 + n % 3)) for n in range(len(positions))]
    numbers = commit_sparse(ns, "orders", positions, tables)
    assert len(Places.of(numbers).offsets) == (1 if len(positions) == 3 else pytest.approx(157, abs=10))
    wanted = ns.snapshot().read("orders", include_metadata=True)
    assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True), wanted)


def test_what_sparks_own_jobs_wrote(ns: Namespace, spark: SparkSession) -> None:
    ns.create_topic("jobs", pa.schema([("id", pa.int64()), ("name", pa.string())]), partitions=3)
    for _ in range(2):
        with spark_ext.transaction(spark, f"{ns.root}/{ns.name}") as txn:
            txn.write(spark.range(0, 300, 1, 5).selectExpr("id", "concat('c', id) name"), "jobs")
    wanted = ns.snapshot().read("jobs", include_metadata=True)
    assert wanted.num_rows == 600
    assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "jobs"), include_metadata=True), wanted)


# --- the predicate ----------------------------------------------------------------------------------------------------


def own_scan(ns: Namespace, spark: SparkSession) -> DataFrame:
    """Somebody's own scan of the folder: everything in it, whatever became of it."""
    return spark.read.schema("id BIGINT").parquet(path_of(ns, "orders"))


@pytest.mark.some(3)
@pytest.mark.parametrize("step", STEPS[1:])
def test_visible_selects_the_rows_of_a_version_from_ones_own_scan(busy: Any, spark: SparkSession, step: str) -> None:
    ns, steps = busy
    wanted = ns.snapshot(steps[step]).read("orders").column("id").to_pylist()
    found = own_scan(ns, spark).where(spark_ext.visible(spark, path_of(ns, "orders"), steps[step])).collect()
    assert sorted(row.id for row in found) == sorted(wanted)
    others = own_scan(ns, spark).where(~spark_ext.visible(spark, path_of(ns, "orders"), steps[step])).collect()
    assert len(found) + len(others) == own_scan(ns, spark).count() > len(wanted)


def test_visible_at_a_version_without_rows_selects_none(busy: Any, spark: SparkSession) -> None:
    ns, steps = busy
    assert own_scan(ns, spark).where(spark_ext.visible(spark, path_of(ns, "orders"), steps["empty"])).count() == 0


def test_visible_takes_offsets_at_which_segments_begin_and_end(ns: Namespace, spark: SparkSession) -> None:
    for first in range(0, 50, 10):
        flushed(ns, p0=tuple(range(first, first + 5))).commit()
    both = flushed(ns, p0=(60,), p1=(61, 62)).commit()
    path = path_of(ns, "orders")
    scan = own_scan(ns, spark)
    chosen = scan.where(spark_ext.visible(spark, path, offsets={0: (10, 20)})).collect()
    assert sorted(row.id for row in chosen) == [*range(20, 25), *range(30, 35)]
    assert scan.where(spark_ext.visible(spark, path, offsets={0: (25, 26), 1: (0, 2)})).count() == 3
    assert scan.where(spark_ext.visible(spark, path, offsets={})).count() == 0
    for offsets in ({0: (10, 19)}, {0: (9, 20)}, {0: (25, 26)}):
        with pytest.raises(InvalidInputError, match=r"cut the segment \d+, which has \d+ to") as caught:
            spark_ext.visible(spark, path, offsets=offsets)
        assert "read_topic" in caught.value.advice
    delete_before(ns, {0: 12})
    left = scan.where(spark_ext.visible(spark, path, offsets={0: (12, 25)})).collect()
    assert sorted(row.id for row in left) == [*range(20, 25), *range(30, 35), *range(40, 45)], "its beginning, too"
    at_ms = ns._connection.follower.log.entry(both.version).header.timestamp_ms
    assert scan.where(spark_ext.visible(spark, path, timestamp=at_ms)).count() == 18


def test_the_plan_shows_the_predicate_as_a_partition_filter(busy: Any, spark: SparkSession) -> None:
    ns, _ = busy
    numbers = [item.number for item in planned(ns)]
    frames = (
        spark_ext.read_topic(spark, path_of(ns, "orders")),
        spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True),
        own_scan(ns, spark).where(spark_ext.visible(spark, path_of(ns, "orders"))),
    )
    for frame in frames:
        filters = partition_filters(frame)
        assert "_txnlog_segment" in filters
        assert all(str(edge) in filters for edge in (min(numbers), max(numbers)))
        assert executed(frame).dataFilters().isEmpty(), "no row is looked at"
        assert "PartitionFilters: [" in frame._jdf.queryExecution().toString()


def test_files_that_are_not_visible_are_not_opened(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(1, 2, 3), partition=0)
    flushed(ns, p0=(4, 5)).abort()
    flushed(ns, p1=(6,))
    for item in planned(ns, "read_uncommitted"):
        if item.state != "COMMITTED":
            Path(ns._connection.store.url(item.key)).write_bytes(b"not a Parquet file, and nobody may look")
    mine = own_scan(ns, spark).where(spark_ext.visible(spark, path_of(ns, "orders")))
    assert sorted(row.id for row in mine.collect()) == [1, 2, 3]
    assert spark_ext.read_topic(spark, path_of(ns, "orders")).count() == 3
    with pytest.raises(Exception, match="not a Parquet file"):
        own_scan(ns, spark).collect()
