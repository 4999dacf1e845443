"""Native scans of parts of files: ranges of offsets, deleted records, adopted namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from spark_ext.read import native_scan
from tests.spark.support import assert_same_rows, path_of
from txnlog.api.adoption import adopt_namespace
from txnlog.errors import CoordinatorFenced, InvalidInputError, OffsetOutOfRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.scans import LEVELS, SCHEMA, build, busy, delete_before, flushed, ns, planned, rows

__all__ = ["busy", "ns"]  # fixtures


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
