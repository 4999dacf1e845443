"""Native scans against txnlog's own read."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import spark_ext
import txnlog
from spark_ext.read import native_scan, scan_session
from spark_ext.read.scan import metadata_fields, spark_schema
from spark_ext.read.segment_constants import Places
from tests.by_hand import append, commit_sparse, compact, lay
from tests.spark.support import assert_same_rows, executed, partition_filters, path_of
from txnlog.api.adoption import adopt_namespace
from txnlog.data.segment_file import EncodedSegment
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    InvalidInputError,
    LimitExceeded,
    NamespaceNotFound,
    OffsetOutOfRange,
    TopicNotFound,
    TxnLogError,
    VersionNotAvailable,
)
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic, Begin, Commit, DeleteRecords, Prepare
from txnlog.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.data.segment_rows import PlannedSegment

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a.name", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
LEVELS = ("read_committed", "read_uncommitted")


def rows(*ids: int) -> pa.Table:
    """Rows that are told apart by their id; every third has nulls."""
    start = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "a.name": None if number % 3 == 0 else f"n{number}",
                "at": None if number % 3 == 1 else start + dt.timedelta(microseconds=number),
            }
            for number in ids
        ],
        schema=SCHEMA,
    )


def flushed(ns: Namespace, **by_partition: tuple[int, ...]) -> Any:
    """A transaction with rows ``p0=(1, 2)`` that has a file of its own."""
    txn = ns.begin(timeout_ms=600_000)
    for name, ids in by_partition.items():
        txn.produce("orders", rows(*ids), partition=int(name[1:]))
    txn.flush()
    return txn


def build(root: Path) -> tuple[Namespace, dict[str, int]]:
    """A topic with segments of every kind, transactions in every state, and the versions on the way."""
    ns = txnlog.open(root, namespace="sales", create=True, min_commit_interval_ms=200)
    ns.create_topic("orders", SCHEMA, partitions=4)
    steps = {"empty": ns.snapshot().version}
    steps["one produce"] = ns.produce("orders", rows(1, 2, 3), partition=1).version

    begun = []
    for number in range(40):
        txn = ns.begin()
        txn.produce("orders", rows(*range(100 + 3 * number, 103 + 3 * number)), partition=number % 3)
        begun.append(txn)
    for future in [txn.commit_async() for txn in begun]:
        steps["many transactions in a segment"] = future.result().version

    open_one = flushed(ns, p0=(301, 302), p3=(303,))
    aborted = flushed(ns, p0=(311,), p1=(312, 313))
    prepared = flushed(ns, p2=(321, 322))
    append(ns, Prepare(prepared.id.number, ""))
    steps["nothing decided"] = ns.snapshot().version
    flushed(ns, p0=(331, 332, 333)).commit()
    steps["of several partitions"] = flushed(ns, p1=(341,), p0=(342, 343), p3=(344, 345)).commit().version
    aborted.abort()
    steps["decided"] = append(ns, Commit(prepared.id.number))
    chosen = []
    for first in (400, 410, 420):
        version = flushed(ns, p3=tuple(range(first, first + 5))).commit().version
        chosen += [item.number for item in planned(ns) if item.version == version]
    steps["before compaction"] = ns.snapshot().version
    steps["compacted"] = compact(ns, "orders", chosen, 3)
    steps["newest"] = ns.produce("orders", rows(500, 501), partition=0).version
    assert open_one.state == "OPEN"
    return ns, steps


def planned(ns: Namespace, level: str = "read_committed") -> tuple[PlannedSegment, ...]:
    return ns.snapshot().plan("orders", isolation_level=level).segments


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Namespace, dict[str, int]]]:
    ns, steps = build(tmp_path_factory.mktemp("busy"))
    yield ns, steps
    ns.close()


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=4)
    return namespace


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


# --- parts of files ---------------------------------------------------------------------------------------------------


def delete_before(ns: Namespace, before: dict[int, int]) -> None:
    append(ns, DeleteRecords(ns.topic("orders").id, tuple(sorted(before.items()))))


@pytest.mark.clause("P-35", "P-99")
@pytest.mark.clause("P-231")
def test_an_adopted_namespace_shows_each_row_with_the_id_that_its_transaction_had(
    ns: Namespace, spark: SparkSession
) -> None:
    ns.create_topic("adopted", SCHEMA)

    def write(first: int) -> None:
        for number in range(first, first + 3):
            with ns.begin() as txn:
                txn.produce("adopted", [{"id": number, "a.name": "x", "at": None}])
                txn.flush()
        ns.produce("adopted", [{"id": first + 3, "a.name": "y", "at": None}])

    write(0)
    assert adopt_namespace(ns.root, ns.name, force=True)[1] == 1
    ns.snapshot()
    with pytest.raises(CoordinatorFenced):
        ns.produce("adopted", [{"id": 99, "a.name": "z", "at": None}])
    write(10)
    for merge in (False, True):
        if merge:
            assert ns.optimize("adopted").written_segments == 1
            write(20)
        wanted = ns.snapshot().read("adopted", include_metadata=True)
        heads = {value[:2] for value in wanted.column("_txn_id").to_pylist()}
        assert heads == {b"\x00\x00", b"\x00\x01"}
        path = path_of(ns, "adopted")
        assert_same_rows(spark_ext.read_topic(spark, path, include_metadata=True), wanted)
        frame = spark.read.format("txnlog").option("includeMetadata", "true").load(path)
        assert_same_rows(frame, wanted)


def test_records_that_were_deleted_do_not_come_back(tmp_path: Path, spark: SparkSession) -> None:
    ns, steps = build(tmp_path)
    ends = ns.snapshot().end_offsets("orders")
    for before in ({0: 1}, {1: 5, 3: 8}, {0: 30, 2: ends[2]}, {1: ends[1] - 1}):
        delete_before(ns, before)
        for version in (steps["many transactions in a segment"], ns.snapshot().version):
            for level in LEVELS:
                wanted = ns.snapshot(version).read("orders", isolation_level=level, include_metadata=True)
                frame = spark_ext.read_topic(spark, path_of(ns, "orders"), version, level, include_metadata=True)
                assert_same_rows(frame, wanted)
        plain = spark_ext.read_topic(spark, path_of(ns, "orders"))
        assert_same_rows(plain, ns.snapshot().read("orders", columns=SCHEMA.names))
    ns.close()


@pytest.mark.clause("P-99")
def test_a_partition_that_is_gone_does_not_borrow_the_offsets_of_another_file(
    ns: Namespace, spark: SparkSession
) -> None:
    """Partition 0 is deleted wholly; the file before begins partition 1 far above all that partition 0 ever had."""
    flushed(ns, p1=tuple(range(1_000, 1_050))).commit()
    for first in (10, 20, 30):
        flushed(ns, p0=(first, first + 1), p1=(first + 2, first + 3), p3=(first + 4,)).commit()
    delete_before(ns, {0: 6, 3: 2})
    wanted = ns.snapshot().read("orders", include_metadata=True)
    assert set(wanted.column("_partition").to_pylist()) == {1, 3}
    assert_same_rows(spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True), wanted)


def thirds(ns: Namespace, version: int) -> list[dict[int, tuple[int, int]]]:
    """Ranges of offsets that begin and end within files: of every partition, of some, an empty one, none."""
    ends = ns.snapshot(version).end_offsets("orders")
    return [
        {p: (end // 3, end - end // 3) for p, end in ends.items()},
        {p: (end // 2, end) for p, end in ends.items() if p in {0, 2}},
        {p: (0, end // 2) for p, end in ends.items() if p != 1} | {1: (ends[1] // 2, ends[1] // 2)},
        {},
    ]


@pytest.mark.some(1)
@pytest.mark.clause("P-99")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", ["many transactions in a segment", "newest"])
def test_ranges_of_offsets_give_the_rows_of_txnlogs_own_read(
    busy: Any, spark: SparkSession, step: str, level: str
) -> None:
    ns, steps = busy
    version = steps[step]
    path = path_of(ns, "orders")
    read = ns.snapshot(version).read
    sizes = []
    for offsets in thirds(ns, version):
        wanted = read("orders", offsets=offsets, isolation_level=level, include_metadata=True)
        frame = spark_ext.read_topic(spark, path, version, level, include_metadata=True, offsets=offsets)
        assert_same_rows(frame, wanted)
        sizes.append(wanted.num_rows)
    assert min(sizes[:3]) > 0 == sizes[3]
    offsets = thirds(ns, version)[0]
    plain = spark_ext.read_topic(spark, path, version, level, offsets=offsets)
    assert_same_rows(plain, read("orders", columns=SCHEMA.names, offsets=offsets, isolation_level=level))


@pytest.mark.parametrize("level", LEVELS)
def test_a_plan_that_others_made_is_read_as_it_stands(busy: Any, spark: SparkSession, level: str) -> None:
    ns, steps = busy
    snapshot = ns.snapshot(steps["decided"])
    offsets = thirds(ns, snapshot.version)[0]
    plan = snapshot.plan("orders", offsets=offsets, isolation_level=level)
    wanted = snapshot.read("orders", offsets=offsets, isolation_level=level, include_metadata=True)
    assert_same_rows(native_scan.read_plan(spark, ns, plan, include_metadata=True), wanted)
    assert_same_rows(native_scan.read_plan(spark, ns, plan), wanted.select(SCHEMA.names))


@pytest.mark.clause("P-35", "P-99")
def test_ranges_of_offsets_above_what_was_deleted(ns: Namespace, spark: SparkSession) -> None:
    for first in range(0, 60, 10):
        flushed(ns, p0=tuple(range(first, first + 7)), p3=(first + 7, first + 8)).commit()
    delete_before(ns, {0: 9, 3: 1})
    for offsets in ({0: (9, 40), 3: (2, 5)}, {0: (10, 13)}, {3: (1, 12)}):
        wanted = ns.snapshot().read("orders", offsets=offsets, include_metadata=True)
        frame = spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True, offsets=offsets)
        assert_same_rows(frame, wanted)
        assert wanted.num_rows == sum(end - start for start, end in offsets.values())


def test_files_without_a_wanted_offset_are_not_opened(ns: Namespace, spark: SparkSession) -> None:
    for first in range(0, 50, 10):
        flushed(ns, p0=tuple(range(first, first + 5))).commit()
    for item in (planned(ns)[0], planned(ns)[3], planned(ns)[4]):
        Path(ns._connection.store.url(item.key)).write_bytes(b"not a Parquet file, and nobody may look")
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"), offsets={0: (7, 12)})
    assert sorted(row.id for row in frame.collect()) == [12, 13, 14, 20, 21]


def test_offsets_that_are_not_there_or_of_the_wrong_form_are_refused(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(*range(10)), partition=1)
    delete_before(ns, {1: 2})
    for call in (spark_ext.read_topic, spark_ext.visible):
        for offsets in ({4: (0, 0)}, {1: (1, 5)}, {1: (2, 11)}, {1: (5, 4)}):
            with pytest.raises(OffsetOutOfRange):
                call(spark, path_of(ns, "orders"), offsets=offsets)
        wrong: Any
        for wrong in ([(0, 1)], {"one": (0, 1)}, {1: 5}):
            with pytest.raises(InvalidInputError, match=r"offsets (are|is)"):
                call(spark, path_of(ns, "orders"), offsets=wrong)


def test_a_topic_of_which_everything_was_deleted_is_empty(ns: Namespace, spark: SparkSession) -> None:
    ns.produce("orders", rows(1, 2), partition=0)
    delete_before(ns, {0: 2})
    assert spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True).collect() == []


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


# --- planning ---------------------------------------------------------------------------------------------------------

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


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [spark_ext.read_topic, spark_ext.visible])
def test_wrong_calls_give_typed_errors_before_anything_is_read(ns: Namespace, spark: SparkSession, call: Any) -> None:
    def refused(kind: type[TxnLogError], path: str, **options: Any) -> TxnLogError:
        with pytest.raises(kind) as caught:
            call(spark, path, **options)
        assert type(caught.value) is kind
        assert caught.value.advice
        return caught.value

    root = str(ns.root)
    assert "orders" in refused(TopicNotFound, f"{root}/sales/order").advice
    assert "orders" in refused(InvalidInputError, f"{root}/sales").advice
    refused(NamespaceNotFound, f"{root}/sale/orders")
    refused(NamespaceNotFound, f"{root}-/sales/orders")
    assert "os.path.abspath" in refused(InvalidInputError, "lake/sales/orders").advice
    for offsets in ([0, 1], '{"0": [0, 1]}', {0: 1}):
        error = refused(InvalidInputError, path_of(ns, "orders"), offsets=offsets)
        assert str(error).startswith("offsets is a dict {partition: (start, end)}, not ")
        assert "written" not in str(error), "it only reads"
    newest = ns.snapshot().version
    for version in (newest + 1, -1):
        refused(VersionNotAvailable, path_of(ns, "orders"), version=version)


def test_a_path_in_the_sessions_place_is_refused(ns: Namespace, spark: SparkSession) -> None:
    swapped: Any = (path_of(ns, "orders"), spark)
    calls: tuple[Any, ...] = (spark_ext.read_topic, spark_ext.visible, spark_ext.transaction)
    for call in calls:
        with pytest.raises(InvalidInputError, match=r"is a SparkSession, not str \(call it with \(spark, path,"):
            call(*swapped)


def test_a_session_that_was_stopped_is_named_as_such(
    ns: Namespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = spark.readStream.format("rate").load()
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)  # all that `stop` leaves of it
    calls: tuple[Callable[[], object], ...] = (
        lambda: spark_ext.read_topic(spark, path_of(ns, "orders")),
        lambda: spark_ext.visible(spark, path_of(ns, "orders")),
        lambda: spark_ext.transaction(spark, path_of(ns)).__enter__(),
        lambda: spark_ext.process(
            spark, path_of(ns), topics="orders", subscription="billing", handler=lambda batch, txn: None
        ),
        lambda: spark_ext.write_stream(stream, path_of(ns), checkpoint="/c", handler=lambda batch, txn: None),
    )
    for call in calls:
        with pytest.raises(InvalidInputError, match="the Spark session was stopped"):
            call()


def test_an_unknown_isolation_level_is_refused(ns: Namespace, spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="isolation level") as caught:
        spark_ext.read_topic(spark, path_of(ns, "orders"), isolation_level="read_comitted")
    assert "read_committed" in caught.value.advice


@pytest.mark.clause("P-103")
def test_a_missing_segment_is_corruption_at_once_and_an_error_of_the_query_later(
    ns: Namespace, spark: SparkSession
) -> None:
    for number in range(3):
        flushed(ns, p0=(number,)).commit()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = spark_ext.read_topic(spark, path_of(ns, "orders"))
        key = planned(ns)[1].key
        Path(ns._connection.store.url(key)).unlink()
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            frame.collect()
        with pytest.raises(CorruptionError, match="missing") as caught:
            spark_ext.read_topic(spark, path_of(ns, "orders"))
        assert key.rpartition("/")[2] in str(caught.value)
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


HARM = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"PAR1",
    "garbage": lambda data: b"x" * len(data),
}


@pytest.fixture
def harmed(ns: Namespace, spark: SparkSession) -> Iterator[Any]:
    """Three segments, and a function that harms the one in the middle; the session would pass over bad files."""
    for number in range(3):
        flushed(ns, p0=(number,)).commit()
    key = planned(ns)[1].key
    file = Path(ns._connection.store.url(key))

    def harm(name: str) -> str:
        file.write_bytes(HARM[name](file.read_bytes()))
        return key

    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    yield harm
    spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.mark.clause("P-150")
def test_a_file_that_a_vacuum_took_is_no_corruption(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came between the plan and Spark's look at the files."""
    clock = ManualClock(1_767_225_600_000)
    with txnlog.open(tmp_path / "lake", namespace="sales", create=True, clock=clock) as ns:
        ns.create_topic("orders", SCHEMA)
        for number in range(3):
            flushed(ns, p0=(number,)).commit()
        version = ns.snapshot().version
        real = native_scan._scan

        def look(*arguments: Any) -> DataFrame:
            merged = ns.optimize("orders").version
            clock.advance(30 * 86_400_000)
            assert ns.vacuum().oldest_readable == merged
            return real(*arguments)

        monkeypatch.setattr(native_scan, "_scan", look)
        with pytest.raises(VersionNotAvailable, match=f"version {version} cannot be read"):
            spark_ext.read_topic(spark, path_of(ns, "orders"))
        monkeypatch.undo()
        assert spark_ext.read_topic(spark, path_of(ns, "orders")).count() == 3


@pytest.mark.clause("P-106")
@pytest.mark.parametrize("harm", [name for name in HARM if name != "garbage"])
def test_a_file_of_another_size_is_corruption_at_once(
    ns: Namespace, spark: SparkSession, harmed: Any, harm: str
) -> None:
    key = harmed(harm)
    with pytest.raises(CorruptionError, match=f"{key} has .* bytes, the log recorded"):
        spark_ext.read_topic(spark, path_of(ns, "orders"))


@pytest.mark.parametrize("harm", HARM)
def test_a_file_that_is_no_segment_any_more_is_an_error_of_the_query(
    ns: Namespace, spark: SparkSession, harmed: Any, harm: str
) -> None:
    frame = spark_ext.read_topic(spark, path_of(ns, "orders"))
    harmed(harm)
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        frame.collect()


@pytest.mark.clause("P-106")
def test_without_sparks_own_objects_the_store_is_asked_for_the_sizes(ns: Namespace, spark: SparkSession) -> None:
    for number in range(3):
        flushed(ns, p0=(number,)).commit()
    plan = ns.snapshot().plan("orders")
    frame: Any = SimpleNamespace(sparkSession=object())  # as of Spark Connect: it has none
    native_scan._check_sizes(frame, ns, plan)
    Path(ns._connection.store.url(plan.segments[2].key)).write_bytes(b"")
    with pytest.raises(CorruptionError, match=f"{plan.segments[2].key} has 0 bytes"):
        native_scan._check_sizes(frame, ns, plan)


def test_no_secret_is_in_a_plan_an_error_or_a_repr(
    ns: Namespace, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local root takes no options: where it would be told of them, they are looked at and left out."""
    ns.produce("orders", rows(1), partition=0)
    seen: list[object] = []
    for name in ("namespace_at", "location_of"):
        real = getattr(native_scan, name)

        def spy(*arguments: Any, real: Any = real) -> Any:
            seen.append(arguments[-1])
            return real(*arguments[:-1])

        monkeypatch.setattr(native_scan, name, spy)
    spark.conf.set("spark.txnlog.storage.secret", "hunter2-is-my-secret")
    try:
        frame = spark_ext.read_topic(spark, path_of(ns, "orders"), include_metadata=True)
        shown = [
            repr(frame),
            frame._jdf.queryExecution().toString(),
            repr(spark_ext.visible(spark, path_of(ns, "orders"))),
        ]
        for path in (f"{ns.root}/sales/order", f"{ns.root}/nothing/orders"):
            with pytest.raises(TxnLogError) as caught:
                spark_ext.read_topic(spark, path)
            shown += [str(caught.value), repr(caught.value), caught.value.advice]
        settings, seen = seen, []
        given: Any = {"storage_options": {"secret": "hunter2-is-given"}}
        shown.append(repr(spark_ext.read_topic(spark, path_of(ns, "orders"), **given)))
        shown.append(repr(spark_ext.visible(spark, path_of(ns, "orders"), **given)))
        monkeypatch.undo()
        with pytest.raises(InvalidInputError) as refused:
            spark_ext.read_topic(spark, path_of(ns, "orders"))
        shown.append(str(refused.value))
        calls: tuple[Any, ...] = (spark_ext.read_topic, spark_ext.visible)
        for call in calls:
            assert call(spark, path_of(ns, "orders"), storage_options={}) is not None, "the settings stand back"
            with pytest.raises(InvalidInputError, match="storage_options is a dict, not str") as refused:
                call(spark, path_of(ns, "orders"), storage_options="hunter2")
            shown.append(str(refused.value))
    finally:
        spark.conf.unset("spark.txnlog.storage.secret")
    assert len(settings) == 7
    assert all(options == {"secret": "hunter2-is-my-secret"} for options in settings), "they reach who opens the store"
    assert seen == [{"secret": "hunter2-is-given"}] * 4
    assert not [text for text in shown if "hunter2" in text]
