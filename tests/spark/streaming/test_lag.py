"""How far queries are behind, without a JVM: what the log says, what a source says, and what a monitor makes of it."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.streaming import lag as lags
from spark_ext.streaming import monitor as monitors
from spark_ext.streaming.lag_lines import LagLines
from spark_ext.streaming.lag_openmetrics import OF_QUERIES, lag_text
from spark_ext.streaming.monitor import Monitor, watched_run
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.support import namespace_cache
from tests.client.support import wait_for
from tests.open_metrics import parsed
from tests.spark.runs import Run
from txnlog.api.reader_lag import behind_cursors, behind_positions
from txnlog.errors import InvalidInputError, InvalidTransactionState, StoreError

if TYPE_CHECKING:
    from spark_ext.streaming.lag import TopicLag
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Iterator[Namespace]:
    namespace.create_topic("orders", SCHEMA, partitions=2)
    yield namespace
    namespace_cache._handles.clear()


def produce(ns: Namespace, count: int, partition: int = 0) -> int:
    return ns.produce("orders", [{"id": i} for i in range(count)], partition=partition).version


def end_of(run: Run) -> StreamOffset:
    return StreamOffset.from_dict(run.log[-1])


def lag(ns: Namespace, run: Run) -> TopicLag:
    """How far a run of a query is behind that has finished its last batch."""
    ns.snapshot()
    (found,) = lags.lags_of(ns._connection, end_of(run))
    return found


# --- what the log says ------------------------------------------------------------------------------------------------


def test_a_query_that_takes_less_than_comes_falls_behind_and_one_that_takes_more_catches_up(ns: Namespace) -> None:
    run = Run(ns, maxOffsetsPerTrigger=10)
    seen = []
    produce(ns, 5)
    produce(ns, 5)
    for _ in range(3):
        for partition in (0, 1, 1):
            produce(ns, 5, partition)
        assert run.batch() is not None
        seen.append(lag(ns, run).behind_messages)
    while run.batch() is not None:
        seen.append(lag(ns, run).behind_messages)
    assert seen == [15, 20, 25, 15, 5, 0]
    last = lag(ns, run)
    assert (last.behind_versions, last.behind_ms, last.max_offsets_behind_latest) == (0, None, 0)


def test_the_numbers_by_partition_are_those_of_sparks_kafka_source(ns: Namespace) -> None:
    produce(ns, 4)
    run = Run(ns)
    assert run.batch() is not None
    first = produce(ns, 1)
    produce(ns, 30)
    produce(ns, 6, partition=1)
    found = lag(ns, run)
    assert found.metrics == {
        "avgOffsetsBehindLatest": 18.5,
        "maxOffsetsBehindLatest": 31,
        "minOffsetsBehindLatest": 6,
        "messagesBehindLatest": 37,
        "versionsBehindLatest": ns.snapshot().version - first + 1,
        "msBehindLatest": found.behind_ms,
    }
    assert (found.namespace, found.topic, found.subscription) == ("sales", "orders", None)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_versions_and_age_are_of_the_oldest_message_whatever_was_merged(ns: Namespace, checkpointed: bool) -> None:
    produce(ns, 3)
    run = Run(ns)
    assert run.batch() is not None
    first = produce(ns, 3)
    for _ in range(4):
        produce(ns, 3, partition=1)
    time.sleep(0.05)
    before = lag(ns, run)
    ns.optimize("orders")
    if checkpointed:
        ns.checkpoint()
    after = lag(ns, run)
    newest = ns.snapshot().version
    assert newest - after.behind_versions + 1 == first
    assert before.behind_ms is not None
    assert after.behind_ms is not None
    assert 50 <= before.behind_ms <= after.behind_ms
    assert after.behind_messages == before.behind_messages == 15
    with txnlog.open(ns.root, ns.name, mode="r") as other:
        assert lags.lags_of(other._connection, end_of(run))[0].behind_versions == after.behind_versions


def test_a_transaction_that_is_not_committed_is_not_behind(ns: Namespace) -> None:
    produce(ns, 1)
    run = Run(ns)
    assert run.batch() is not None
    txn = ns.begin()
    txn.produce("orders", [{"id": 1}] * 7)
    txn.flush()
    assert lag(ns, run).behind_messages == 0
    txn.commit()
    assert lag(ns, run).behind_messages == 7


def test_messages_that_were_deleted_are_offsets_and_no_messages(ns: Namespace) -> None:
    produce(ns, 10)
    run = Run(ns, maxOffsetsPerTrigger=10)
    assert run.batch() is not None
    produce(ns, 10)
    ns.delete_records("orders", before={0: 16})
    found = lag(ns, run)
    assert (found.behind_messages, found.max_offsets_behind_latest) == (4, 10)


def test_entries_of_others_put_a_query_behind_that_has_something_to_read_and_no_other(ns: Namespace) -> None:
    produce(ns, 1)
    run = Run(ns)
    assert run.batch() is not None
    for number in range(5):
        ns.create_topic(f"other{number}", SCHEMA)
    assert lag(ns, run).behind_versions == 0
    produce(ns, 1)
    assert lag(ns, run).behind_versions == 1
    ns.create_topic("more", SCHEMA)
    assert lag(ns, run).behind_versions == 2


def test_a_topic_that_was_dropped_is_left_out(ns: Namespace) -> None:
    number = ns.topic("orders").id
    ns.drop_topic("orders")
    assert behind_positions(ns._connection, {number: {0: 0}}) == {}
    assert behind_cursors(ns._connection, [77]) == {}


def test_cursors_are_behind_by_what_ns_lag_says(ns: Namespace) -> None:
    ns.create_subscription("orders", "billing", type="shared")
    produce(ns, 10)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(max_messages=10)
    produce(ns, 4, partition=1)
    with ns.begin() as txn:
        txn.acknowledge(messages[[0, 1, 5]])
    ns.snapshot()
    record = ns._connection.subscription_record(ns.topic("orders").id, "billing")
    assert record is not None
    found = behind_cursors(ns._connection, [record.id])[record.id]
    assert found.messages == sum(item.behind_messages for item in ns.lag("orders", "billing")) == 11
    assert found.offsets == (8, 4)
    assert found.ms == pytest.approx(max(item.behind_ms for item in ns.lag("orders", "billing")), abs=1000)


# --- what a source says itself ----------------------------------------------------------------------------------------


def test_a_source_says_in_latest_offset_how_far_the_batch_is_behind(ns: Namespace) -> None:
    for _ in range(3):
        produce(ns, 10)
    run = Run(ns, maxOffsetsPerTrigger=10)
    assert "behind" not in run.reader.reportLatestOffset(), "no batch was planned"
    behind, reported = [], dict[str, Any]()
    while run.batch() is not None:
        reported = json.loads(json.dumps(run.reader.reportLatestOffset()))
        behind.append(reported["behind"]["orders"]["messagesBehindLatest"])
    assert behind == [20, 10, 0]
    assert reported["path"] == f"{ns.root}/sales"
    assert reported["offsets"] == {"orders": {"0": 30, "1": 0}}
    assert reported["behind"]["orders"] == lag(ns, run).metrics
    assert {"start", "query", "epochs"}.isdisjoint(reported)


def test_a_source_whose_lag_is_unknown_goes_on(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failed(*_: Any) -> None:
        raise StoreError("a part of the checkpoint cannot be read")

    produce(ns, 10)
    run = Run(ns)
    monkeypatch.setattr("spark_ext.streaming.source_plan.lags_of", failed)
    assert run.batch() is not None
    for _ in range(3):
        assert run.reader.reportLatestOffset()["offsets"] == {"orders": {"0": 10, "1": 0}}
    assert [record.levelname for record in caplog.records if record.name == "txnlog.spark"] == ["WARNING"]


# --- lines of the log -------------------------------------------------------------------------------------------------


def value(messages: int, query: str = "totals", **more: Any) -> TopicLag:
    given = {"source": 0, "namespace": "sales", "topic": "orders", "subscription": None, "behind_versions": 1}
    numbers = {"min_offsets_behind_latest": 0, "max_offsets_behind_latest": messages, "behind_ms": 1500}
    return lags.TopicLag(
        **{
            "query": query,
            "behind_messages": messages,
            "avg_offsets_behind_latest": messages / 2,
            **given,
            **numbers,
            **more,
        }
    )


def test_a_batch_is_a_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "txnlog.spark.lag"):
        LagLines(5).note([value(4)], 7)
    (record,) = caplog.records
    assert json.loads(record.getMessage()) == {
        "query": "totals",
        "source": 0,
        "batch": 7,
        "namespace": "sales",
        "topic": "orders",
        "subscription": None,
        **value(4).metrics,
    }
    assert record.levelno == logging.INFO


def test_falling_behind_in_so_many_batches_in_a_row_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    lines = LagLines(3)
    warned = []
    for batch, messages in enumerate([5, 6, 7, 8, 9, 10, 11, 11, 12, 13, 0, 1, 2, 3]):
        caplog.clear()
        lines.note([value(messages), value(100 - messages, query="other")], batch)
        warned += [
            batch for record in caplog.records if record.levelno == logging.WARNING and "totals" in record.message
        ]
    assert warned == [3, 6, 13], "as often again, and not where it did not grow three times in a row"


def test_what_is_remembered_of_queries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ext.streaming.lag_lines._MOST", 3)
    lines = LagLines(1)
    lines.note([value(1, query=str(number)) for number in range(10)], 0)
    assert len(lines._last) <= 3


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_the_metrics_are_valid_and_have_all_names() -> None:
    text = lag_text([value(4), value(6, query="b", subscription="billing", behind_ms=None), value(9)], 2, 1_000)
    found = parsed(text)
    assert found.keys() == OF_QUERIES.keys()
    assert found["txnlog_query_lag_messages"].value(query="totals") == 9, "the later one, where there are two"
    assert found["txnlog_query_lag_messages"].value(query="b", subscription="billing", topic="orders") == 6
    assert found["txnlog_query_lag_seconds"].value(query="totals", source="0", namespace="sales") == 1.5
    assert found["txnlog_query_lag_seconds"].value(query="b") == 0
    assert found["txnlog_query_avg_offsets_behind_latest"].value(query="totals") == 4.5
    assert found["txnlog_query_lag_failures"].total() == 2
    assert found["txnlog_query_lag_failures"].value("_created") == 1
    assert parsed(lag_text([], 0, 1_000))["txnlog_query_lag_messages"].samples == {}


# --- a monitor --------------------------------------------------------------------------------------------------------


class Session:
    """A session of Spark Connect, as far as a monitor asks for it."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(getAll={})
        self.is_stopped = False
        self.session_id = uuid.uuid4().hex
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(
            addListener=self.listeners.append, removeListener=self.listeners.remove, active=[]
        )

    def progress(self, *sources: dict[str, Any], batch: int = 0, run: str = "r1", name: str = "totals") -> Any:
        """What Spark says of a batch that has ended; to all listeners, as Spark does."""
        found = SimpleNamespace(id="q1", runId=run, name=name, batchId=batch, stateOperators=[])
        found.sources = [SimpleNamespace(endOffset=None, latestOffset=None)] + [
            SimpleNamespace(endOffset=json.dumps(item["end"]), latestOffset=json.dumps(item.get("latest")))
            for item in sources
        ]
        for listener in self.listeners:
            listener.onQueryProgress(SimpleNamespace(progress=found))
        return found

    def end(self, run: str = "r1") -> None:
        for listener in self.listeners:
            listener.onQueryTerminated(SimpleNamespace(runId=run))


@pytest.fixture
def session() -> Any:
    return Session()


@pytest.fixture
def monitor(session: Any) -> Iterator[Monitor]:
    with spark_ext.monitor(session, warn_after=2) as made:
        yield made
    assert monitors._monitors == {}


def messages(monitor: Monitor) -> list[tuple[str, str, int]]:
    return [(item.query, item.topic, item.behind_messages) for item in monitor.lag()]


def quiet(monitor: Monitor) -> None:
    """Wait until the monitor's thread has nothing to do."""
    wait_for(lambda: not monitor._at_work and not monitor._due)


def test_a_session_has_one_monitor_and_one_listener(session: Any) -> None:
    first = spark_ext.monitor(session)
    assert spark_ext.monitor(session) is first
    assert len(session.listeners) == 1
    with pytest.raises(InvalidInputError, match="has a monitor with other arguments"):
        spark_ext.monitor(session, warn_after=9)
    first.close()
    first.close()
    assert session.listeners == []
    with spark_ext.monitor(session, warn_after=9) as second:
        assert second is not first
        assert "0 running queries" in repr(second)


def test_a_monitor_that_was_closed_says_so(session: Any, ns: Namespace) -> None:
    monitor = spark_ext.monitor(session)
    listener = session.listeners[0]
    monitor.close()
    for call in (monitor.lag, monitor.metrics):
        with pytest.raises(InvalidTransactionState, match="the monitor was closed"):
            call()
    produce(ns, 1)
    run = Run(ns)
    run.batch()
    session.listeners.append(listener)  # an event that was under way
    session.progress({"end": run.log[-1]})
    assert monitor._running == {}


def test_a_session_that_was_stopped_has_no_monitor(session: Any) -> None:
    monitor = spark_ext.monitor(session)
    session.is_stopped = True
    with pytest.raises(InvalidInputError, match="session was stopped"):
        spark_ext.monitor(session)
    for call in (monitor.lag, monitor.metrics):
        with pytest.raises(InvalidInputError, match="session of the monitor was stopped"):
            call()
    monitor.close()
    assert session.listeners, "nothing was asked of a session that was stopped"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"warn_after": 0}, "warn_after"), ({"storage_options": "key"}, "storage_options"), ({"warn_after": "5"}, "warn")],
)
def test_arguments_that_are_none_are_refused(session: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        spark_ext.monitor(session, **arguments)
    with pytest.raises(InvalidInputError, match="the first argument is a SparkSession"):
        spark_ext.monitor("spark")  # type: ignore[arg-type]
    assert session.listeners == []


def test_a_running_query_is_behind_by_what_the_log_says_when_it_is_asked(
    ns: Namespace, session: Any, monitor: Monitor
) -> None:
    produce(ns, 10)
    run = Run(ns, subscription="billing")
    run.batch()
    assert monitor.lag() == ()
    progress = session.progress({"end": run.log[-1], "latest": run.reader.reportLatestOffset()})
    assert messages(monitor) == [("totals", "orders", 0)]
    produce(ns, 8)
    (found,) = monitor.lag()
    assert (found.behind_messages, found.subscription, found.source) == (8, "billing", 1)
    assert parsed(monitor.metrics())["txnlog_query_lag_messages"].value(query="totals", topic="orders") == 8
    session.end()
    assert monitor.lag() == ()
    (ended,) = monitor.lag(SimpleNamespace(lastProgress=progress))  # type: ignore[arg-type]
    assert dataclasses.replace(ended, behind_ms=found.behind_ms) == found
    assert monitor.lag(SimpleNamespace(lastProgress=None)) == ()  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="query is a streaming query, not str"):
        monitor.lag("totals")  # type: ignore[arg-type]


def test_sources_of_others_are_passed_over(session: Any, monitor: Monitor) -> None:
    session.progress({"end": {"orders": {"0": 5}}}, {"end": 7})
    assert (monitor.lag(), monitor._failures) == ((), 0)


def test_a_process_without_a_handle_opens_one_at_the_path_that_the_source_says(
    ns: Namespace, session: Any, monitor: Monitor
) -> None:
    produce(ns, 10)
    run = Run(ns)
    run.batch()
    latest = run.reader.reportLatestOffset()
    namespace_cache._handles.clear()
    session.progress({"end": run.log[-1]}, name="nowhere")
    assert messages(monitor) == [], "where the log lies was not said"
    session.progress({"end": run.log[-1], "latest": latest})
    produce(ns, 3)
    assert messages(monitor) == [("totals", "orders", 3)]
    (key,) = namespace_cache._handles
    assert key[2] == "r"
    assert monitor._failures == 0


def test_the_handle_that_the_process_has_is_used_again(ns: Namespace, session: Any, monitor: Monitor) -> None:
    produce(ns, 10)
    run = Run(ns)
    run.batch()
    namespace_cache._handles.clear()
    namespace_cache.use(ns)
    session.progress({"end": run.log[-1]})
    assert messages(monitor) == [("totals", "orders", 0)]
    assert [kept.namespace for kept in namespace_cache._handles.values()] == [ns]
    latest = run.reader.reportLatestOffset()
    other = txnlog.open(ns.root, ns.name)
    namespace_cache.use(other)
    other.close()
    session.progress({"end": run.log[-1], "latest": latest})
    assert messages(monitor) == [("totals", "orders", 0)], "one that was closed is passed over"
    assert monitor._failures == 0


def test_a_log_that_cannot_be_read_is_logged_once_and_counted_and_the_source_is_believed(
    ns: Namespace, session: Any, monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    produce(ns, 10)
    produce(ns, 7)
    run = Run(ns, maxOffsetsPerTrigger=10)
    run.batch()
    latest = {**run.reader.reportLatestOffset(), "path": f"{ns.root}/nothing/there"}
    namespace_cache._handles.clear()
    session.progress({"end": run.log[-1], "latest": latest})
    quiet(monitor)
    assert messages(monitor) == [("totals", "orders", 7)]
    assert monitor._failures == 2
    assert parsed(monitor.metrics())["txnlog_query_lag_failures"].total() == 3
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("how far 'totals' is behind is unknown")


def test_an_offset_that_is_damaged_stops_nobody(session: Any, monitor: Monitor) -> None:
    damaged = {"format": 1, "namespace": "sales", "coordinator": 0, "offsets": 3}
    session.progress({"end": damaged})
    assert (monitor.lag(), monitor._failures) == ((), 1)


def test_lines_and_warnings_come_with_batches(
    ns: Namespace, session: Any, monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    produce(ns, 10)
    run = Run(ns, maxOffsetsPerTrigger=10)
    with caplog.at_level("INFO", "txnlog.spark.lag"):
        for batch in range(3):
            produce(ns, 10)
            produce(ns, 10)
            run.batch()
            session.progress({"end": run.log[-1]}, batch=batch)
            quiet(monitor)
    lines = [json.loads(item.getMessage()) for item in caplog.records if item.levelno == logging.INFO]
    assert [(line["batch"], line["messagesBehindLatest"]) for line in lines] == [(0, 20), (1, 30), (2, 40)]
    (warning,) = [item.getMessage() for item in caplog.records if item.levelno == logging.WARNING]
    assert "'totals' falls behind in the topic 'orders': each of its last 2 batches" in warning


def test_a_store_that_does_not_answer_keeps_no_thread_of_sparks(
    ns: Namespace, session: Any, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    asked: list[int] = []

    def waits(progress: Any) -> list[Any]:
        asked.append(progress.batch)
        assert answers.wait(30)
        return []

    produce(ns, 1)
    run = Run(ns)
    run.batch()
    monkeypatch.setattr(monitor, "_lags", waits)
    for batch in range(5):  # this thread stands for Spark's
        session.progress({"end": run.log[-1]}, batch=batch)
    session.end()
    answers.set()
    quiet(monitor)
    assert asked[-1] == 4
    assert len(asked) <= 2, "what became old meanwhile is left out"
    assert "txnlog-spark-lag" not in [thread.name for thread in threading.enumerate()]


def test_a_handler_of_the_logger_that_fails_ends_no_thread(
    ns: Namespace, session: Any, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise ValueError

    produce(ns, 1)
    run = Run(ns)
    run.batch()
    monkeypatch.setattr(monitor._lines, "note", fails)
    for batch in range(2):
        session.progress({"end": run.log[-1]}, batch=batch)
        quiet(monitor)
    assert monitor._failures == 2


def test_runs_of_process_are_in_it_while_they_run(monitor: Monitor) -> None:
    def fails() -> list[TopicLag]:
        raise StoreError("no answer")

    with watched_run("loop", lambda: [value(5, query="loop")]), watched_run("bad", fails):
        assert messages(monitor) == [("loop", "orders", 5)]
        assert parsed(monitor.metrics())["txnlog_query_lag_failures"].total() == 2
    assert monitor.lag() == ()


def test_behind_connect_a_listener_is_not_removed_while_queries_run(session: Any) -> None:
    """PySpark would wait for ever where an event comes meanwhile."""
    monitor = spark_ext.monitor(session)
    session.streams.active = ["a query"]
    monitor.close()
    assert len(session.listeners) == 1
    session.progress({"end": 7})
    with spark_ext.monitor(session):
        session.streams.active = []
