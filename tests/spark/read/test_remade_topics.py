"""A topic that is dropped and made again under a running stream: the stream stops, at either of its ends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructType

from spark_ext.streaming.format_sink import StreamTaskWritten, TopicStreamWriter
from spark_ext.streaming.write_stream import _Batches
from spark_ext.support import namespace_cache
from spark_ext.support.namespace_cache import target_at
from spark_ext.support.options import write_options
from spark_ext.write.task_writer import TaskIdentity, write_batches
from tests.spark.runs import Run
from tests.spark.support import Frame, Query, ids, path_of
from txnlog.errors import InvalidInputError, TransactionConflict

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ns(namespace: Namespace) -> Namespace:
    for topic in ("orders", "copy", "other"):
        namespace.create_topic(topic, SCHEMA)
    namespace_cache.use(namespace)
    return namespace


def make_again(ns: Namespace, topic: str, *rows: int) -> None:
    ns.drop_topic(topic)
    ns.create_topic(topic, SCHEMA)
    produce(ns, topic, *rows)


def produce(ns: Namespace, topic: str, *rows: int) -> None:
    for row in rows:
        ns.produce(topic, [{"id": row}])


# --- a source ---------------------------------------------------------------------------------------------------------


def _batch(run: Run) -> None:
    run.batch()


def _rows(run: Run) -> None:
    run.rows(run.log[0], run.log[1])


def _acknowledged(run: Run) -> None:
    run.reader.commit(run.log[1])


def _reported(run: Run) -> None:
    run.reader.reportLatestOffset()


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": 2}], ids=["no limit", "limit"])
@pytest.mark.parametrize("call", [_batch, _rows, _acknowledged, _reported])
def test_a_source_stops_whatever_it_is_asked_next(ns: Namespace, call: Callable[[Run], None], options: Any) -> None:
    produce(ns, "orders", 1, 2)
    run = Run(ns, subscription="billing", **options)
    run.batch()
    make_again(ns, "orders", 10, 11, 12, 13)
    ns.create_subscription("orders", "billing", start="earliest")
    with pytest.raises(InvalidInputError, match=r"'orders' was dropped and made again.* with a new checkpointLocation"):
        call(run)
    assert [item.cursor for item in ns.subscription("orders", "billing").cursors] == [0]


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(2)], ids=["no limit", "limit"])
@pytest.mark.parametrize("now", [False, True], ids=["", "availableNow"])
def test_a_source_whose_topic_is_made_again_while_its_query_begins_reads_neither(
    ns: Namespace, now: bool, limit: Any
) -> None:
    produce(ns, "orders", 1, 2)
    run = Run(ns, now=now)
    make_again(ns, "orders", 10, 11, 12, 13)
    with pytest.raises(InvalidInputError, match="'orders' was dropped"):
        run.reader.latestOffset(run.reader.initialOffset(), limit)


@pytest.mark.parametrize(
    "options", [{"subscribe": "orders,other"}, {"subscribePattern": "o.*"}], ids=["names", "pattern"]
)
def test_one_of_several_topics_is_enough(ns: Namespace, options: Any) -> None:
    produce(ns, "orders", 1)
    run = Run(ns, "", **options)
    assert len(run.all()) == 1
    make_again(ns, "other", 2)
    with pytest.raises(InvalidInputError, match="'other' was dropped"):
        run.batch()


# --- a sink -----------------------------------------------------------------------------------------------------------


class Sink:
    """A query's sink as Spark calls it: a writer that goes to the tasks, and another one that commits."""

    def __init__(self, ns: Namespace, monkeypatch: pytest.MonkeyPatch, topic: str = "copy") -> None:
        attempts = iter(range(1_000))
        monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
        self._path = path_of(ns, topic)
        self._routes = not topic
        self._batches = iter(range(1_000))

    def _writer(self) -> TopicStreamWriter:
        given = {"path": self._path, "txnAppId": "copier"}
        schema = StructType().add("id", LongType())
        return TopicStreamWriter(
            write_options(given, streaming=True), schema.add("topic", StringType()) if self._routes else schema, False
        )

    def batch(self, *rows: int, into: str = "copy", during: Callable[[], object] = lambda: None) -> None:
        """One micro-batch; ``during`` is called between its tasks and its commit."""
        spec = pickle.loads(pickle.dumps(self._writer()))._spec
        columns: dict[str, Any] = {"id": pa.array(rows, pa.int64())}
        if self._routes:
            columns["topic"] = pa.array([into] * len(rows), pa.string())
        written = tuple(write_batches(iter([pa.record_batch(columns)] if rows else []), spec))
        during()
        self._writer().commit([StreamTaskWritten(spec.numbers, "run", written, "")], next(self._batches))


@pytest.mark.parametrize("topic", ["copy", ""], ids=["one topic", "routed"])
def test_a_sink_does_not_go_on_into_the_topic_that_has_the_name_now(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    sink = Sink(ns, monkeypatch, topic)
    sink.batch(1, 2)
    make_again(ns, "copy")
    version = ns.snapshot().version
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"'copy' that .*'copier' wrote to was dropped.*checkpointLocation"):
            sink.batch(3)
    assert ids(ns, "copy") == []
    assert not ns.transactions("OPEN")
    assert ns.snapshot().version <= version + 2, "but for numbers, nothing was logged"


def test_a_sink_goes_on_into_a_topic_that_is_new_or_was_made_again_before_it_began(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_again(ns, "copy")
    sink = Sink(ns, monkeypatch, "")
    sink.batch(1)
    make_again(ns, "other")
    ns.create_topic("late", SCHEMA)
    sink.batch(2)
    sink.batch(3, into="late")
    sink.batch()
    assert (ids(ns, "copy"), ids(ns, "late")) == ([1, 2], [3])


@pytest.mark.clause("P-97", "P-217")
@pytest.mark.parametrize("again", [False, True], ids=["dropped", "made again"])
def test_rows_of_a_batch_that_were_written_for_a_topic_that_is_gone_are_not_passed_over(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    sink = Sink(ns, monkeypatch, "")
    sink.batch(1)

    def lose() -> None:
        make_again(ns, "copy") if again else ns.drop_topic("copy")

    with pytest.raises(TransactionConflict, match=r"the topic 'copy' was dropped while batch 1 .* was written"):
        sink.batch(2, during=lose)
    record = ns._connection.stream("copier")
    assert record is not None
    assert record.batch == 0, "the batch comes again, and none of it is taken for done"


# --- a handler --------------------------------------------------------------------------------------------------------


def test_in_a_handler_a_name_means_the_topic_that_has_it_then_and_what_is_left_out_is_reported(
    ns: Namespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = iter(range(1_000))
    monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
    checkpoint = Query(tmp_path / "checkpoint")
    for number in range(3):
        checkpoint.write(number, str(number))
    batches = _Batches(
        target_at(path_of(ns), {}), str(checkpoint.folder), lambda df, txn: txn.write(df, "copy"), None, None, "run"
    )

    frames: list[Any] = [Frame(), Frame(), Frame(lambda: ns.drop_topic("copy"))]
    batches.run(frames[0], 0)
    make_again(ns, "copy")
    batches.run(frames[1], 1)
    assert ids(ns, "copy") == [1, 2, 3], "those of the second batch"
    assert "left out" not in caplog.text
    batches.run(frames[2], 2)
    assert (
        "batch 2 of '8aba74d1-2b49-4518-8ea2-51b06a0e81ac': left out, since it was dropped meanwhile: copy"
        in caplog.text
    )
