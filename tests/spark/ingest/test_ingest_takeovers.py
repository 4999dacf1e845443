"""A run of an ingestion takes over from another one: not before it commits, and nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, plan_folder, position_commits
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.ingest.kafka_cluster import KafkaCluster
from tests.spark.ingest.recorded_kafka import RecordedCluster
from tests.spark.ingest.story import COLUMNS, RUNNING, SCHEMA, Story, story
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, StoreError

__all__ = ["story"]  # a fixture


LOSSY = {"failOnDataLoss": "false"}


@pytest.mark.parametrize("place", ["before the bounds", "behind them", "before the query", "before the epoch"])
def test_a_run_takes_over_from_one_that_commits_meanwhile(
    story: Story, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The older one commits once more, at a place in the call or in the first batch of the newer one."""
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    run, allowed = KafkaBatches._run, threading.Semaphore(0)

    def held(batches: KafkaBatches, *given: Any) -> None:
        if batches.query is not None and batches.query.id == older.id:
            assert allowed.acquire(timeout=60)
        run(batches, *given)

    def commit() -> None:
        monkeypatch.undo()
        story.take_place(monkeypatch)
        story.produce(0, 3)
        allowed.release()
        while len(story.ids()) == 2:
            time.sleep(0.1)
        story.produce(0, 6)  # behind what it committed, and maybe in one batch of the newer one with that

    with pytest.MonkeyPatch.context() as patch, ExitStack() as at_end:
        at_end.callback(allowed.release, 10)  # a query that waits cannot be stopped, also where this test fails
        patch.setattr(KafkaBatches, "_run", held)
        if place == "before the bounds":
            monkeypatch.setattr(RecordedCluster, "bounds", in_front(RecordedCluster.bounds, commit))
        elif place == "behind them":
            monkeypatch.setattr(RecordedCluster, "bounds", behind(RecordedCluster.bounds, commit))
        elif place == "before the query":
            monkeypatch.setattr(module, "make_folder", in_front(plan_folder.make_folder, commit))
        else:
            monkeypatch.setattr(kafka_batches, "epoch_of", in_front(kafka_batches.epoch_of, commit))
            story.produce(1, 5)
        newer = story.start(trigger=RUNNING)
        if place != "before the epoch":
            story.produce(1, 5)
        newer.processAllAvailable()
        assert story.ids() == [1, 2, 3, 5, 6]
        story.produce(0, 4)
        newer.processAllAvailable()
        allowed.release(10)
        with pytest.raises(StreamingQueryException, match="ProducerFenced"):
            older.awaitTermination(60)
    assert story.ids() == [1, 2, 3, 4, 5, 6]


def test_a_run_that_has_nothing_to_ingest_ends_no_other_one(story: Story) -> None:
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    story.ingest()
    story.produce(0, 2)
    older.processAllAvailable()
    assert story.ids() == [1, 2]


def test_a_run_whose_first_batch_fails_ends_no_other_one(story: Story) -> None:
    """An expression that only a message shows to be wrong."""
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    story.ns.create_topic("other", SCHEMA)
    wrong = {**COLUMNS, "id": "if(offset < 1, 1, raise_error('wrong'))"}
    story.produce(0, 2)
    hold = threading.Event()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as at_end:
        at_end.callback(hold.set)
        patch.setattr(KafkaBatches, "_check_sources", lambda *_: hold.wait(60))
        story.produce(0, 3)
        newer = story.start(trigger=RUNNING, columns=wrong)
        with pytest.raises(StreamingQueryException, match="wrong"):
            newer.awaitTermination(60)
        hold.set()
    older.processAllAvailable()
    assert story.ids() == [1, 2, 3]


def test_a_run_whose_first_commit_fails_has_ended_the_older_one_and_either_can_be_started_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took over just before. The older one says what happened."""
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    held = threading.Event()

    def refused(*_: Any, **_more: Any) -> Any:
        raise StoreError("the store refuses", durable=Durable.NOTHING)

    run = KafkaBatches._run

    def running(batches: KafkaBatches, *given: Any) -> None:
        if batches.query is not None and batches.query.id == older.id:
            assert held.wait(60)
        run(batches, *given)

    with monkeypatch.context() as patch, ExitStack() as at_end:
        at_end.callback(held.set)
        patch.setattr(KafkaBatches, "_run", running)
        patch.setattr(kafka_batches, "commit_batch", refused)
        story.produce(0, 2)
        with pytest.raises(StreamingQueryException, match="the store refuses"):
            story.ingest()
        held.set()
        with pytest.raises(StreamingQueryException, match="ProducerFenced"):
            older.awaitTermination(60)
    assert story.ids() == [1]
    story.ingest()
    assert story.ids() == [1, 2]


def test_the_error_of_a_run_that_an_administrator_fenced_names_the_administrator(story: Story) -> None:
    """There is none. It has not taken over yet: it waits for its first message."""
    story.produce(0, 1)
    story.ingest()
    waiting = story.start(trigger=RUNNING)
    waiting.processAllAvailable()
    story.ns.fence("kafka:orders", by="alice")
    story.produce(0, 2)
    with pytest.raises(StreamingQueryException, match="was fenced by 'alice'") as caught:
        waiting.processAllAvailable()
    assert "another run" not in str(caught.value).partition("Caused by")[0]


def test_a_run_from_which_a_newer_one_has_taken_over_before_its_first_batch_does_not_take_over_from_it(
    story: Story,
) -> None:
    """It began first, and hung: what began behind it and works is not to end."""
    story.messages = [[]]
    story.produce(0, 1)
    story.ingest()
    hanging = story.start(trigger=RUNNING)
    older, newer = threading.Event(), threading.Event()
    run = KafkaBatches._run

    def holding(batches: KafkaBatches, *given: Any) -> None:
        if batches.query is not None and batches.query.id == hanging.id:
            older.set()
            assert newer.wait(60)
        run(batches, *given)

    with pytest.MonkeyPatch.context() as patch, ExitStack() as at_end:
        at_end.callback(newer.set)
        patch.setattr(KafkaBatches, "_run", holding)
        story.produce(0, 2)
        assert older.wait(60)
        healthy = story.start(trigger=RUNNING)
        healthy.processAllAvailable()
        newer.set()
        with pytest.raises(StreamingQueryException, match="ProducerFenced"):
            hanging.awaitTermination(60)
    story.produce(0, 3)
    healthy.processAllAvailable()
    assert story.ids() == [1, 2, 3]


def test_a_query_that_cannot_take_over_ends(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.produce(0, 1)

    def refuses(*_: object) -> int:
        raise OutcomeUnknown("the store does not answer")

    monkeypatch.setattr(kafka_batches, "epoch_of", refuses)
    with pytest.raises(StreamingQueryException, match="OutcomeUnknown"):
        story.ingest()
    assert not story.spark.streams.active
    assert story.ids() == []


def test_a_query_that_cannot_note_where_it_begins_is_stopped(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.produce(0, 1)

    def refuses(*_: object) -> None:
        raise OutcomeUnknown("the store does not answer")

    monkeypatch.setattr(kafka_batches, "note_starts", refuses)
    with pytest.raises(OutcomeUnknown):
        story.start(trigger=RUNNING)
    assert not story.spark.streams.active
    assert story.ids() == []


def test_messages_that_an_older_run_ingested_meanwhile_are_not_called_lost(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run starts while the first one, at the edge of retention, commits."""
    story.messages = [[]]
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    bounds = RecordedCluster.bounds

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(RecordedCluster, "bounds", bounds)
        story.produce(0, 3)
        older.processAllAvailable()
        story.recording.write("source", "id-1", [[]], first=3)
        return bounds(*given)

    monkeypatch.setattr(RecordedCluster, "bounds", meanwhile)
    query = story.start()
    query.awaitTermination()
    assert story.ids() == [1, 2, 3]


def test_a_query_that_is_stopped_while_kafka_is_asked_ends_without_an_error(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``query.stop()`` at any moment, here while a batch asks Kafka for the ids, as each batch does."""
    cluster = KafkaCluster(story.spark, {"kafka.bootstrap.servers": "nowhere:9092"})
    never = story.spark._jvm.java.util.concurrent.CompletableFuture()
    asked = threading.Event()

    def asking(*_: object) -> None:
        asked.set()
        cluster._asked(lambda: cluster._got(never))

    monkeypatch.setattr(KafkaBatches, "_check_sources", asking)
    story.produce(0, 1)
    query = story.start(trigger=RUNNING)
    assert asked.wait(60)
    threading.Event().wait(1)  # Java is in the call by now
    query.stop()
    assert query.exception() is None, str(query.exception())


# --- calls that are refused -------------------------------------------------------------------------------------------


def test_what_spark_refuses_at_the_start_ends_no_run_that_is_at_work(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING, query_name="orders")
    older.processAllAvailable()
    refused: list[dict[str, Any]] = [
        {"trigger": {"continuous": "1 second"}},
        {"trigger": {"realTime": "5 minutes"}},
        {"query_name": "orders"},
        {"options": {"maxOffsetsPerTrigger": "many"}},
        {"options": {"maxTriggerDelay": "soon"}},
    ]
    for given in refused:
        with pytest.raises(InvalidInputError):
            story.start(**given)
    with monkeypatch.context() as patch:  # whatever else Spark refuses there, such as a name that was taken meanwhile
        patch.setattr(module, "check_query_name", lambda *_: None)
        with pytest.raises(InvalidInputError, match=r"Spark refuses to start the query: .*already active"):
            story.start(query_name="orders")
    story.produce(0, 3)
    older.processAllAvailable()
    assert story.ids() == [1, 2, 3]


@pytest.mark.parametrize("refused", [True, False])
def test_a_call_takes_no_rows_in_silence_from_a_run_that_is_about_to_commit_them(
    story: Story, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """A run lags at the edge of retention; a second one accepts the loss, and is refused, or takes over."""
    story.messages = [[]]
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING, options=LOSSY, query_name="orders")
    older.processAllAvailable()
    commit, written, go_on = position_commits.commit_batch, threading.Event(), threading.Event()

    def waiting(*given: Any, **more: Any) -> Any:
        written.set()
        assert go_on.wait(60)
        return commit(*given, **more)

    with monkeypatch.context() as patch, ExitStack() as at_end:
        at_end.callback(go_on.set)
        patch.setattr(kafka_batches, "commit_batch", waiting)
        patch.setattr(module, "check_query_name", lambda *_: None)
        story.produce(0, 3, 4)
        assert written.wait(60)  # the rows of 3 and 4 are in files
        story.recording.write("source", "id-1", [[]], first=4)  # retention takes their messages
        if refused:
            with pytest.raises(InvalidInputError, match="Spark refuses to start the query"):
                story.start(options=LOSSY, query_name="orders")
            story.produce(0)
            go_on.set()
            older.processAllAvailable()
            assert story.ids() == [1, 2, 3, 4]
        else:
            patch.setattr(kafka_batches, "commit_batch", commit)
            story.ingest(options=LOSSY)
            go_on.set()
            with pytest.raises(StreamingQueryException, match="ProducerFenced"):
                older.awaitTermination(60)
            assert story.stream(0).batch == 4
            assert story.ids() == [1, 2]


def in_front(call: Callable[..., Any], what: Callable[[], None]) -> Callable[..., Any]:
    """A call, and something in front of it."""

    def both(*given: Any) -> Any:
        what()
        return call(*given)

    return both


def behind(call: Callable[..., Any], what: Callable[[], None]) -> Callable[..., Any]:
    """A call, and something behind it."""

    def both(*given: Any) -> Any:
        result = call(*given)
        what()
        return result

    return both
