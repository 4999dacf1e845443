"""Attacks on the ingestion from Kafka over recorded messages: each test fails where the ingestion is at fault."""

from __future__ import annotations

import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import kafka_batches, positions
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.ingest.kafka_cluster import KafkaCluster
from spark_ext.ingest.kafka_options import kafka_options
from spark_ext.write import frame_jobs
from tests.spark.ingest.recorded_kafka import RecordedCluster
from tests.spark.ingest.story import RUNNING, SCHEMA, Story, story
from txnlog.errors import InvalidInputError, TxnLogError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["story"]  # a fixture

LOSSY = {"failOnDataLoss": "false"}


def unusable(story: Story) -> Path:
    """A checkpoint that Spark refuses where the query starts: what should be its folder is a file."""
    file = story.folder / "file"
    file.write_text("no folder")
    return file / "checkpoint"


def test_a_query_that_is_stopped_while_kafka_is_asked_ends_without_an_error(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIES. ``query.stop()`` at any moment, here while a batch asks Kafka for the ids, as each batch does."""
    cluster = KafkaCluster(story.spark, {"kafka.bootstrap.servers": "nowhere:9092"})
    never = story.spark._jvm.java.util.concurrent.CompletableFuture()
    asked = threading.Event()

    def asking(_: KafkaBatches) -> None:
        asked.set()
        cluster._asked(lambda: cluster._got(never))

    monkeypatch.setattr(KafkaBatches, "_check_sources", asking)
    story.produce(0, 1)
    query = story.start(trigger=RUNNING)
    assert asked.wait(60)
    threading.Event().wait(1)  # Java is in the call by now
    query.stop()
    assert query.exception() is None, str(query.exception())


def test_a_call_that_is_refused_takes_no_rows_from_a_run_that_is_about_to_commit_them(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOSES, LIES. A run lags at the edge of retention; a second call with ``failOnDataLoss=false`` is refused."""
    story.messages = [[]]
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING, options=LOSSY)
    older.processAllAvailable()
    commit, written, go_on = positions.commit_parts, threading.Event(), threading.Event()

    def waiting(*given: Any) -> Any:
        written.set()
        assert go_on.wait(120)
        return commit(*given)

    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_parts", waiting)
        story.produce(0, 3, 4)
        assert written.wait(60)  # the rows of 3 and 4 are in files
        story.recording.write("source", "id-1", [[]], first=4)  # retention takes their messages
        with pytest.raises(InvalidInputError, match="Spark refuses to start the query"):
            story.start(checkpoint=unusable(story), options=LOSSY)
        story.produce(0)
        go_on.set()
        older.processAllAvailable()  # no error: "batch 1: 2 rows of 1 partitions" is logged
    assert story.ids() == [1, 2, 3, 4]


def test_messages_that_an_older_run_ingested_meanwhile_are_not_called_lost(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIES. A second run starts while the first one, at the edge of retention, commits."""
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
    query = story.start(checkpoint=story.folder / "new")  # OffsetOutOfRange: "deleted before they were ingested"
    query.awaitTermination()
    assert story.ids() == [1, 2, 3]


# --- advice that doubles ----------------------------------------------------------------------------------------------


def test_the_advice_for_one_topic_of_several_that_was_made_again_doubles_nothing(story: Story) -> None:
    """LIES, DOUBLES. An ingestion of two Kafka topics, one of which is deleted and created again in Kafka."""
    both = ["source", "other"]
    story.produce(0, 1)
    story.recording.write("other", "id-2", [[7]])
    story.ingest(subscribe=both, name="n")
    story.recording.write("other", "id-3", [[8]])
    with pytest.raises(InvalidInputError) as caught:
        story.ingest(subscribe=both, name="n")
    if "give the ingestion another name (name=...) and a new checkpoint" in str(caught.value):  # as it says
        story.ingest(subscribe=both, name="n-2", checkpoint=story.folder / "new")
    assert story.ids().count(1) == 1


def test_the_advice_for_one_of_several_targets_that_was_dropped_doubles_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIES, DOUBLES. ``topic_by``: one of the topics is dropped while a batch is written; nothing of it is there."""
    story.ns.create_topic("other", SCHEMA)
    routed: dict[str, Any] = {"topic": None, "topic_by": "if(offset % 2 = 0, 'orders', 'other')"}
    story.produce(0, 1, 2)
    story.ingest(name="n", **routed)
    story.produce(0, 3, 4)
    job = frame_jobs.frame_job

    def with_a_drop(*given: Any, **more: Any) -> Any:
        made = job(*given, **more)
        story.ns.drop_topic("other")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "frame_job", with_a_drop)
        with pytest.raises(StreamingQueryException, match="TransactionConflict") as caught:
            story.ingest(name="n", **routed)
    story.ns.create_topic("other", SCHEMA)
    again = "give the ingestion another name (name=...) and a new checkpoint" in str(caught.value)
    story.ingest(name="n-2" if again else "n", checkpoint=story.folder / ("new" if again else "checkpoint"), **routed)
    assert story.ids() == [1, 3]


# --- calls that are refused -------------------------------------------------------------------------------------------


def test_a_call_that_is_refused_does_not_say_where_the_next_one_begins(story: Story) -> None:
    """LOSES. ``latest`` and a checkpoint that Spark refuses; then both are corrected. No query has ever run."""
    story.produce(0, 1, 2)
    with pytest.raises(InvalidInputError, match="Spark refuses to start the query"):
        story.start(checkpoint=unusable(story), options={"startingOffsets": "latest"})
    story.ingest(options={"startingOffsets": "earliest"})
    assert story.ids() == [1, 2]


def test_a_checkpoint_that_is_none_of_an_ingestion_fences_no_run(story: Story) -> None:
    """FENCES. A second call names the checkpoint of another query, which can be read before the epoch is taken."""
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    wrong = story.folder / "wrong"
    for name, text in (
        ("metadata", json.dumps({"id": str(uuid.uuid4())})),
        ("offsets/0", 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n{"logOffset":0}'),
        ("commits/0", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        (wrong / name).parent.mkdir(parents=True, exist_ok=True)
        (wrong / name).write_text(text)
    story.produce(0, 2)
    older.processAllAvailable()
    with pytest.raises((StreamingQueryException, TxnLogError)):
        story.ingest(checkpoint=wrong)
    story.produce(0, 3)
    older.processAllAvailable()
    assert story.ids() == [1, 2, 3]


def test_an_option_reaches_the_source_in_the_form_in_which_it_was_checked() -> None:
    """FENCES. Blanks from a file of settings: our check takes them, and Spark's ``toBoolean`` fails in the query."""
    given = {"kafka.bootstrap.servers": "nowhere:9092", "failOnDataLoss": " false "}
    assert kafka_options("source", given).given["failOnDataLoss"] == "false"


def test_a_batch_that_a_driver_of_before_planned_in_the_new_checkpoint_is_not_called_a_topic_that_was_made_again(
    story: Story,
) -> None:
    """LIES, DOUBLES. The checkpoint is deleted while a driver still runs, and a new run begins in the same folder.

    The older one plans a batch there, at whose number the new one arrives later. Kafka lost nothing, so that a new
    checkpoint is enough; another name brings everything again.
    """
    story.produce(0, 1, 2)
    story.ingest()
    story.produce(0, 3)
    story.ingest()
    offsets = story.checkpoint / "offsets"
    (offsets / "2").write_bytes((offsets / "0").read_bytes())  # as the older driver left it
    story.produce(0, 4)
    with pytest.raises(StreamingQueryException, match="OffsetOutOfRange") as caught:
        story.ingest()
    again = "give the ingestion another name (name=...)" in str(caught.value)
    story.ingest(checkpoint=story.folder / "new", **({"name": "n-2"} if again else {}))
    assert story.ids() == [1, 2, 3, 4]


def test_the_advice_for_a_topic_that_becomes_topic_by_doubles_nothing(story: Story) -> None:
    """LIES, DOUBLES. An ingestion into one topic grows to several; the first topic stays one of them."""
    story.produce(0, 1)
    story.ingest(name="n")
    with pytest.raises(InvalidInputError) as caught:
        story.ingest(name="n", topic=None, topic_by="'orders'")
    if "give this one another name" in str(caught.value):
        story.ingest(name="n-2", checkpoint=story.folder / "new", topic=None, topic_by="'orders'")
    assert story.ids() == [1]
