"""What native scans refuse, and what they say of files that are missing or damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
import txnlog
from spark_ext.read import native_scan
from tests.spark.support import path_of
from txnlog.errors import (
    CorruptionError,
    InvalidInputError,
    NamespaceNotFound,
    TopicNotFound,
    TxnLogError,
    VersionNotAvailable,
)
from txnlog.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace
from tests.spark.scans import SCHEMA, flushed, ns, planned, rows

__all__ = ["ns"]  # fixtures


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
