"""``spark.readStream.format("txnlog")``: committed rows once, in whole transactions, over restarts as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructType

import txnlog
from spark_ext.streaming.format_source import TopicStreamReader
from spark_ext.support.options import read_options
from tests.spark.runs import Offset, Options, Row, Run, ids_of, stored
from tests.spark.support import forget_commit, path_of
from txnlog.errors import (
    ConsumerBusy,
    ConsumerFenced,
    CorruptionError,
    InvalidInputError,
    OffsetOutOfRange,
    SchemaMismatch,
    SubscriptionNotFound,
    TopicNotFound,
)
from txnlog.format.actions import DeleteRecords
from txnlog.log.commands import Simple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    namespace.create_topic("audit", SCHEMA)
    return namespace


def produce(ns: Namespace, *ids: int, topic: str = "orders", partition: int | None = None) -> int:
    """Rows in one transaction; its version."""
    return ns.produce(topic, [{"id": i} for i in ids], partition=partition).version


def delete_before(ns: Namespace, partition: int, offset: int) -> None:
    action = DeleteRecords(ns._connection.topic_record("orders").id, ((partition, offset),))
    ns._connection.appender.call(Simple(lambda _draft, _at: [action], lambda *_: None))


def committed(ns: Namespace, topic: str = "orders") -> list[Row]:
    return ns.snapshot().read(topic, include_metadata=True).to_pylist()


# --- which rows -------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-99", "P-102")
@pytest.mark.parametrize("limit", [None, 1, 7, 1_000])
def test_batches_hold_every_committed_row_once_in_whole_transactions(ns: Namespace, limit: int | None) -> None:
    for first in range(0, 40, 4):
        with ns.begin() as txn:
            txn.produce("orders", [{"id": first}, {"id": first + 1}])
            txn.produce("audit", [{"id": first + 2}, {"id": first + 3}])
        if first == 20:
            aborted = ns.begin()
            aborted.produce("orders", [{"id": 999}])
            aborted.flush()
            aborted.abort()
    options: Options = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    run = Run(ns, "", subscribe="orders,audit", **options)
    batches = run.batches()
    assert len(batches) == {None: 1, 1: 10, 7: 10, 1_000: 1}[limit]
    assert [row["id"] for rows in batches for row in sorted(rows, key=lambda row: row["id"])] == list(range(40))
    for offset in run.log[1:]:
        snapshot = ns.snapshot(offset["version"])
        for topic, ends in offset["offsets"].items():
            assert {int(p): end for p, end in ends.items()} == snapshot.end_offsets(topic), "a batch ends at a version"


def test_rows_and_metadata_are_those_of_a_batch_read(ns: Namespace) -> None:
    for first in (0, 10, 20):
        produce(ns, *range(first, first + 10))
    rows = Run(ns, maxOffsetsPerTrigger=10, minPartitions=3).all()
    assert sorted(map(str, rows)) == sorted(map(str, committed(ns)))
    assert Run(ns, columns="id", includeMetadata="false").all()[0].keys() == {"id"}


def test_a_limit_is_soft_and_takes_as_many_whole_transactions_as_fit(ns: Namespace) -> None:
    for first, count in ((0, 3), (10, 4), (20, 9), (30, 2), (40, 1), (50, 1)):
        produce(ns, *range(first, first + count))
    run = Run(ns, maxOffsetsPerTrigger=7)
    assert run.reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert [len(rows) for rows in run.batches()] == [7, 9, 4]
    assert isinstance(Run(ns).reader.getDefaultReadLimit(), ReadAllAvailable)


@pytest.mark.clause("P-102")
def test_an_open_transaction_delays_nobody_and_comes_when_it_is_committed(ns: Namespace) -> None:
    opened, aborted = ns.begin(), ns.begin()
    for txn, number in ((opened, 1), (aborted, 2)):
        txn.produce("orders", [{"id": number}])
        txn.flush()
    produce(ns, 3)
    run = Run(ns)
    assert ids_of(run.all()) == [3]
    aborted.abort()
    assert run.batch() is None
    opened.commit()
    produce(ns, 4)
    assert ids_of(run.all()) == [1, 4]


def test_a_batch_that_is_read_again_gives_the_same_rows(ns: Namespace) -> None:
    produce(ns, *range(10))
    run = Run(ns, startingOffsets="latest")
    assert run.batch() is None
    produce(ns, *range(10, 20))
    first = run.batch()
    produce(ns, *range(20, 30))
    again = Run(ns, startingOffsets="latest")
    start = stored(again.reader.initialOffset())
    assert start != run.log[0], "Spark asks anew where batch 0 begins, and latest is elsewhere by now"
    assert ids_of(again.rows(start, run.log[1])) == ids_of(first) == list(range(10, 20))
    assert again.rows(run.log[1], run.log[1]) == [], "another source of the query had something new"


def test_a_restart_goes_on_where_the_checkpoint_ends(ns: Namespace) -> None:
    produce(ns, *range(5))
    log: list[Offset] = []
    assert ids_of(Run(ns, log=log).all()) == list(range(5))
    produce(ns, *range(5, 8))
    produce(ns, 100, topic="audit")
    # An option that is not about what is read may change, and so may the number of topics grow.
    more = Run(ns, "", log=log, subscribe="orders,audit", maxOffsetsPerTrigger=1, startingOffsets="latest")
    assert ids_of(more.all()) == [5, 6, 7, 100]
    assert more.batch() is None


def test_available_now_ends_at_what_was_there_when_it_began(ns: Namespace) -> None:
    limits: tuple[Options, ...] = ({}, {"maxOffsetsPerTrigger": 2})
    for limit in limits:
        produce(ns, 1, 2)
        log: list[Offset] = []
        run = Run(ns, log=log, now=True, **limit)
        first = run.batch()
        produce(ns, 3, 4)
        rest = run.all()
        later = Run(ns, log=log, now=True, **limit).all()
        assert ids_of(first + rest + later) == ids_of(committed(ns))
        assert ids_of(later) == [3, 4]


# --- where to begin ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starting", "wanted"),
    [
        (None, [0, 1, 2, 10, 11, 12]),
        ("earliest", [0, 1, 2, 10, 11, 12]),
        ("latest", []),
        ('{"orders": {"0": 1, "1": -1}}', [1, 2]),
        ('{"orders": {"0": -2, "1": 3}}', [0, 1, 2]),
    ],
)
def test_a_query_without_a_checkpoint_begins_where_its_options_say(
    ns: Namespace, starting: str | None, wanted: list[int]
) -> None:
    produce(ns, 0, 1, 2, partition=0)
    produce(ns, 10, 11, 12, partition=1)
    options: Options = {} if starting is None else {"startingOffsets": starting}
    run = Run(ns, **options)
    assert ids_of(run.all()) == wanted
    produce(ns, 50)
    assert ids_of(run.all()) == [50]


@pytest.mark.parametrize(
    ("starting", "kind", "problem"),
    [
        ('{"orders": {"0": 0}}', InvalidInputError, r"leaves out partition 1 .*partitions 0 to 1"),
        ('{"order": {"0": 0, "1": 0}}', InvalidInputError, r"'order', which is not read .*did you mean 'orders'"),
        (
            '{"orders": {"0": 4, "1": 0}}',
            OffsetOutOfRange,
            r"partition 0 of 'orders': the start 4 is beyond .* a start from 0 to 3",
        ),
        ('{"orders": {"0": 0, "1": 0}}', OffsetOutOfRange, r"partition 1 .*offsets 1 to 2; 0 to 2.*failOnDataLoss"),
    ],
)
def test_a_beginning_that_is_not_there_is_refused_at_once(
    ns: Namespace, starting: str, kind: type[Exception], problem: str
) -> None:
    produce(ns, 0, 1, 2, partition=0)
    produce(ns, 10, 11, partition=1)
    delete_before(ns, 1, 1)
    queries: tuple[Options, ...] = ({}, {"subscription": "billing"})
    for options in queries:
        with pytest.raises(kind, match=problem):
            Run(ns, startingOffsets=starting, **options).reader.initialOffset()
    ns._connection.follower.refresh()
    assert ns.subscriptions("orders") == ()


# --- what a checkpoint must agree with --------------------------------------------------------------------------------


def _drop_and_make_again(ns: Namespace) -> None:
    ns.drop_topic("orders")
    ns.create_topic("orders", SCHEMA, partitions=2)
    produce(ns, 7)


@pytest.mark.parametrize(
    ("change", "topic", "options", "problem"),
    [
        (
            None,
            "orders",
            {"subscription": "billing"},
            r"without a subscription, but .* with the subscription 'billing'",
        ),
        (None, "audit", {}, r"of the topic 'orders', but it now reads the topics audit"),
        (_drop_and_make_again, "orders", {}, r"of a topic 'orders' that was dropped, but .* a new topic of that name"),
    ],
)
def test_a_query_that_reads_something_else_than_its_checkpoint_is_refused(
    ns: Namespace, change: Callable[[Any], None] | None, topic: str, options: Options, problem: str
) -> None:
    produce(ns, 1)
    log: list[Offset] = []
    Run(ns, log=log).all()
    if change is not None:
        change(ns)
    run = Run(ns, topic, log=log, **options)
    for call in (run.batch, lambda: run.rows(log[0], log[1])):
        with pytest.raises(InvalidInputError, match=rf"{problem}.*with a new checkpointLocation"):
            call()


def test_a_checkpoint_of_another_namespace_or_source_or_format_is_refused(ns: Namespace) -> None:
    produce(ns, 1)
    log: list[Offset] = []
    Run(ns, log=log).all()
    with txnlog.open(ns.root, namespace="other", create=True) as other:
        other.create_topic("orders", SCHEMA, partitions=2)
        with pytest.raises(InvalidInputError, match="of another namespace 'sales', but it now reads the namespace 'ot"):
            Run(other, log=log).batch()
    for changes, problem in (
        ({"format": 2}, "have the format 2, this version knows 1"),
        ({"offsets": [1]}, "a damaged offset"),
        ({"version": None}, "a damaged offset"),
    ):
        with pytest.raises(InvalidInputError, match=problem):
            Run(ns, log=[{**log[-1], **changes}]).batch()
    with pytest.raises(InvalidInputError, match="an offset of another source"):
        Run(ns, log=[{"orders": {"0": 1}}]).batch()


def test_a_checkpoint_goes_with_its_log_and_not_with_another_one_that_is_like_it(ns: Namespace, tmp_path: Path) -> None:
    produce(ns, 1, 2)
    log: list[Offset] = []
    Run(ns, log=log).all()
    with txnlog.open(tmp_path / "twin", namespace=ns.name, create=True) as twin:
        twin.create_topic("orders", SCHEMA, partitions=2)
        assert twin.topic("orders").id == ns.topic("orders").id, "only the logs tell them apart"
        produce(twin, 11, 12, 13, 14, 15)
        for look in (lambda run: run.batch(), lambda run: run.rows(log[-2], log[-1])):
            with pytest.raises(InvalidInputError, match=r"of another namespace 'sales' \(in another root, or"):
                look(Run(twin, log=list(log)))
    earlier = [{name: value for name, value in offset.items() if name != "log"} for offset in log]
    produce(ns, 3)
    assert ids_of(Run(ns, log=earlier).all()) == [3], "offsets of the version before this one say nothing of the log"


def test_a_topic_that_is_dropped_stops_the_query(ns: Namespace) -> None:
    produce(ns, 1)
    run = Run(ns)
    run.all()
    ns.drop_topic("orders")
    with pytest.raises(TopicNotFound, match="no topic 'orders'"):
        run.batch()


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 2}])
def test_rows_that_were_deleted_before_they_were_read_stop_the_query_unless_that_is_accepted(
    ns: Namespace, limit: Options, caplog: pytest.LogCaptureFixture
) -> None:
    produce(ns, 0, 1, partition=0)
    log: list[Offset] = []
    Run(ns, log=log, **limit).all()
    produce(ns, 2, 3, 4, partition=0)
    produce(ns, 9, partition=1)
    delete_before(ns, 0, 4)
    with pytest.raises(OffsetOutOfRange, match=r"partition 0 of 'orders' holds offsets 4 to 5; 2 to 5.*failOnDataLoss"):
        Run(ns, log=list(log), **limit).all()
    assert ids_of(Run(ns, log=log, failOnDataLoss="false", **limit).all()) == [4, 9]
    assert "2 messages do not exist and are left out" in caplog.text


@pytest.mark.clause("P-106")
def test_a_damaged_segment_stops_the_query_and_gives_no_row(ns: Namespace) -> None:
    produce(ns, *range(100), partition=0)
    (file,) = Path(path_of(ns, "orders")).rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    run = Run(ns)
    start = run.reader.initialOffset()
    end = run.reader.latestOffset(start, ReadAllAvailable())
    (partition,) = run.reader.partitions(start, end)
    with pytest.raises(CorruptionError, match=file.name):
        next(run.reader.read(partition))


def test_a_schema_and_options_that_do_not_fit_are_refused(ns: Namespace) -> None:
    given = {"path": path_of(ns, "orders")}
    with pytest.raises(SchemaMismatch, match=r"'ids', which the topic does not have .*did you mean 'id'"):
        TopicStreamReader(read_options(given, streaming=True), StructType().add("ids", LongType()))
    for option in ("versionAsOf", "endingOffsets", "isolationLevel"):
        misplaced: Options = {option: "1"}
        with pytest.raises(InvalidInputError, match=f"'{option}' belongs to spark.read "):
            Run(ns, **misplaced)


@pytest.mark.clause("P-123")
def test_a_stream_without_a_subscription_writes_nothing(ns: Namespace) -> None:
    produce(ns, 1)
    version = ns.snapshot().version
    before = sorted(Path(ns.root).rglob("*"))
    run = Run(ns)
    assert ids_of(run.all()) == [1]
    run.reader.commit(run.log[-1])
    run.reader.reportLatestOffset()
    assert ns.snapshot().version == version
    assert sorted(Path(ns.root).rglob("*")) == before


# --- subscriptions ----------------------------------------------------------------------------------------------------


def cursors(ns: Namespace, topic: str = "orders") -> list[int]:
    return [item.cursor for item in ns.subscription(topic, "billing").cursors]


def test_a_subscription_is_where_a_query_begins_and_what_it_moves_one_batch_late(ns: Namespace) -> None:
    produce(ns, 0, 1, 2, partition=0)
    produce(ns, 10, partition=1)
    ns.create_subscription("orders", "billing", start={0: 1, 1: 0})
    run = Run(ns, subscription="billing", startingOffsets="latest", maxOffsetsPerTrigger=2)
    assert [ids_of(rows) for rows in (run.batch(), run.batch())] == [[1, 2], [10]]
    assert cursors(ns) == [3, 0], "Spark tells of a batch when the next one begins"
    produce(ns, 11, partition=1)
    again = Run(ns, log=run.log, subscription="billing")
    assert ids_of(again.all()) == [11]
    assert cursors(ns) == [3, 1]
    fresh = Run(ns, subscription="billing", startingOffsets="earliest")
    assert ids_of(fresh.all()) == [11], "without its checkpoint it begins at the cursor: at least once"


def test_a_subscription_that_is_missing_is_created_where_startingoffsets_says(ns: Namespace) -> None:
    produce(ns, 0, 1, partition=0)
    produce(ns, 5, topic="audit")
    run = Run(ns, "", subscribe="orders,audit", subscription="billing", startingOffsets="latest")
    assert run.batch() is None
    produce(ns, 2, partition=0)
    assert ids_of(run.all()) == [2]
    assert (cursors(ns), cursors(ns, "audit")) == ([2, 0], [1])


def test_a_newer_run_takes_the_subscription_over_from_an_older_one(ns: Namespace) -> None:
    produce(ns, 1, partition=0)
    older = Run(ns, subscription="billing")
    older.all()
    older.reader.commit(older.log[-1])
    produce(ns, 2, partition=0)
    newer = Run(ns, log=list(older.log), subscription="billing")
    assert ids_of(newer.all()) == ids_of(older.all()) == [2]
    newer.reader.commit(newer.log[-1])
    produce(ns, 3, partition=0)
    assert (ids_of(newer.all()), ids_of(older.all())) == ([3], [3])
    with pytest.raises(ConsumerFenced, match="'billing'"):
        older.reader.commit(older.log[-1])
    newer.reader.commit(newer.log[-1])
    assert cursors(ns) == [3, 0]


@pytest.mark.clause("P-77")
def test_a_restart_of_the_query_is_the_same_name_and_another_query_is_not(ns: Namespace) -> None:
    ns.create_subscription("orders", "billing", takeover="same_name")
    produce(ns, 1, partition=0)
    first = Run(ns, subscription="billing")
    first.all()
    first.reader.commit(first.log[-1])
    assert cursors(ns) == [1, 0], "nobody had it"
    produce(ns, 2, partition=0)
    restart = Run(ns, log=list(first.log), subscription="billing")
    restart.all()
    restart.reader.commit(restart.log[-1])
    assert cursors(ns) == [2, 0]
    produce(ns, 3, partition=0)
    named = Run(ns, subscription="billing", txnAppId="nightly")
    for other in (Run(ns, subscription="billing"), named):
        other.all()
        with pytest.raises(ConsumerBusy, match=r"the subscription 'billing' belongs to .*same_name.*txnAppId"):
            other.reader.commit(other.log[-1])
    with pytest.raises(ConsumerBusy):
        ns.consumer("orders", "billing", name="nightly", takeover=True)
    assert cursors(ns) == [2, 0]


@pytest.mark.clause("P-77")
def test_a_query_takes_over_from_the_consumer_whose_name_is_its_app_id(ns: Namespace) -> None:
    ns.create_subscription("orders", "billing", takeover="same_name")
    ns.consumer("orders", "billing", name="nightly", takeover=True)
    produce(ns, 1, partition=0)
    for name in ("daily", "nightly", "nightly"):
        run = Run(ns, subscription="billing", txnAppId=name)
        run.all()
        if name == "daily":
            with pytest.raises(ConsumerBusy, match="belongs to the consumer 'nightly', not to 'daily'"):
                run.reader.commit(run.log[-1])
            continue
        run.reader.commit(run.log[-1])
        produce(ns, 2, partition=0)
    assert cursors(ns) == [2, 0]
    ns.consumer("orders", "billing", name="nightly", takeover=True)


def test_a_subscription_that_somebody_moved_or_dropped_stops_the_query(ns: Namespace) -> None:
    produce(ns, 0, 1, 2, partition=0)
    run = Run(ns, subscription="billing", maxOffsetsPerTrigger=1)
    run.batch()
    produce(ns, 3, 4, partition=0)
    with ns.consumer("orders", subscription="billing", takeover=True) as consumer:
        consumer.seek({0: 5})
    with pytest.raises(
        InvalidInputError, match=r"continues at offset 3, but the cursor .* is at 5 .*new checkpoint.*seek back only"
    ):
        run.batch()
    ns.drop_subscription("orders", "billing")
    with pytest.raises(SubscriptionNotFound, match="'billing' of the topic 'orders' was dropped"):
        run.batch()


# --- queries of Spark -------------------------------------------------------------------------------------------------


class Query:
    """A query whose batches are kept: each run goes to the end of what is there."""

    def __init__(self, spark: SparkSession, ns: Namespace, checkpoint: Path) -> None:
        self._spark, self._ns, self.checkpoint = spark, ns, checkpoint
        self.seen: list[tuple[int, list[Row]]] = []
        self.during: Callable[[], object] = lambda: None

    def run(self, topic: str = "orders", **options: Any) -> Any:
        def keep(df: DataFrame, batch: int) -> None:
            self.seen.append((batch, df.toArrow().to_pylist()))
            self.during()

        df = self._spark.readStream.format("txnlog").options(**{"includeMetadata": "true", **options})
        writer = df.load(path_of(self._ns, topic)).writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return query


@pytest.fixture
def query(spark: SparkSession, ns: Namespace, tmp_path: Path) -> Query:
    return Query(spark, ns, tmp_path / "checkpoint")


@pytest.mark.clause("P-99", "P-102")
def test_a_query_of_spark_sees_each_committed_row_once_over_restarts_and_a_crash(query: Query, ns: Namespace) -> None:
    opened, aborted = ns.begin(), ns.begin()
    for txn, number in ((opened, 1_000), (aborted, 2_000)):
        txn.produce("orders", [{"id": number}])
        txn.flush()
    for first in range(0, 12, 4):
        produce(ns, *range(first, first + 4))
    query.during = lambda: produce(ns, 500 + len(query.seen))
    progress = query.run(maxOffsetsPerTrigger="4").lastProgress
    query.during = lambda: None
    assert [ids_of(rows) for _, rows in query.seen] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert progress["sources"][0]["numInputRows"] == 4
    assert json.loads(progress["sources"][0]["latestOffset"])["offsets"].keys() == {"orders"}
    forget_commit(query.checkpoint, 2)
    aborted.abort()
    opened.commit()
    query.run()
    assert query.seen[3] == query.seen[2], "the batch that Spark did not note as done came again as it was"
    rows = [row for number, rows in query.seen[:3] + query.seen[4:] for row in rows]
    assert sorted(map(str, rows)) == sorted(map(str, committed(ns)))
    assert ids_of(query.seen[-1][1]) == [501, 502, 503, 1_000]
    count = len(query.seen)
    query.run()
    assert len(query.seen) == count, "nothing new, no batch"


def test_errors_come_out_of_a_query_of_spark_with_their_class_and_the_way_out(query: Query, ns: Namespace) -> None:
    produce(ns, 1)
    query.run()
    with pytest.raises(
        StreamingQueryException,
        match=r"\A[^\n]*: txnlog\.errors\.InvalidInputError: .*the subscription 'b'.*checkpoint",
    ):
        query.run(subscription="b")
    with pytest.raises(
        StreamingQueryException, match=r"\A[^\n]*: txnlog\.errors\.InvalidInputError: the option 'versionAsOf'"
    ):
        query.run(versionAsOf="1")
    assert [ids_of(rows) for _, rows in query.seen] == [[1]]


def test_a_running_query_takes_what_comes_and_stops_when_its_topic_is_dropped(
    spark: SparkSession, ns: Namespace, tmp_path: Path
) -> None:
    df = spark.readStream.format("txnlog").option("subscription", "billing").load(path_of(ns, "orders"))
    writer = df.writeStream.format("memory").queryName("stream_read").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        for number in range(3):
            produce(ns, number, partition=0)
            query.processAllAvailable()
            assert [row["id"] for row in spark.table("stream_read").orderBy("id").collect()] == list(range(number + 1))
        assert cursors(ns)[0] >= 2
        ns.drop_topic("orders")
        with pytest.raises(StreamingQueryException, match=r"TopicNotFound: no topic 'orders'"):
            query.awaitTermination(60)
    finally:
        query.stop()
        spark.catalog.dropTempView("stream_read")
