"""Advice of an ingestion's errors: whoever follows it has each message once, also of what the error is not about."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
from spark_ext.ingest import kafka_batches
from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.write import frame_jobs
from tests.spark.ingest.story import RUNNING, SCHEMA, Story, story
from txnlog.errors import InvalidInputError, OffsetOutOfRange

if TYPE_CHECKING:
    from txnlog.errors import TxnLogError

__all__ = ["story"]  # a fixture


BOTH = ["source", "other"]


def offsets_of(story: Story, error: TxnLogError | StreamingQueryException) -> dict[str, str]:
    """What a user gets who makes the call that an error advises; no error has offsets itself."""
    text = str(error).partition("nothing was written")[0]  # Spark shows the plan behind it
    assert "under another one (name=...) with the option 'startingOffsets': offsets" in text
    assert '{"' not in text, "an older run may move on"
    calls = re.findall(
        r"call offsets = spark_ext.end_ingestion\(spark, path, ('[^']*')(?:, from_beginning=(\[[^]]*\]))?\), which",
        text,
    )
    name, topics = calls[0]
    path = f"{story.ns.root}/{story.ns.name}"
    again = ast.literal_eval(topics or "[]")
    return {"startingOffsets": spark_ext.end_ingestion(story.spark, path, ast.literal_eval(name), from_beginning=again)}


def test_one_topic_of_several_that_was_made_again(story: Story) -> None:
    story.produce(0, 1)
    story.recording.write("other", "id-2", [[6, 7]])
    story.ingest(subscribe=BOTH, name="n")
    story.produce(1, 2)
    story.recording.write("other", "id-3", [[8]])
    with pytest.raises(InvalidInputError, match="'other' is not the one") as caught:
        story.ingest(subscribe=BOTH, name="n")
    story.ingest(subscribe=BOTH, name="n-2", options=offsets_of(story, caught.value))
    assert story.ids() == [1, 2, 6, 7, 8]


def test_one_topic_of_several_that_is_made_again_while_a_batch_is_read(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0, 1)
    story.recording.write("other", "id-2", [[6, 7]])
    story.ingest(subscribe=BOTH, name="n")
    story.produce(0, 2)
    write = KafkaBatches._write

    def writing(*given: Any) -> Any:
        written = write(*given)
        story.recording.write("other", "id-3", [[8]])
        return written

    with monkeypatch.context() as patch:
        patch.setattr(KafkaBatches, "_write", writing)
        with pytest.raises(StreamingQueryException) as caught:
            story.ingest(subscribe=BOTH, name="n")
    story.ingest(subscribe=BOTH, name="n-2", options=offsets_of(story, caught.value))
    assert story.ids() == [1, 2, 6, 7, 8]


def test_one_partition_that_lost_messages(story: Story) -> None:
    """Messages 2 and 3 are gone from Kafka, and 4 is at the offset of 2."""
    story.produce(0, 1, 2, 3)
    story.produce(1, 7)
    story.ingest(name="n")
    story.messages = [[1], [7]]
    story.produce(0)
    with pytest.raises(OffsetOutOfRange, match="ends at offset 1, and the log has its messages up to 3") as caught:
        story.ingest(name="n")
    assert "put the offset of its first new message into the offsets, for the partition 0" in str(caught.value)
    story.produce(0, 4)
    offsets = json.loads(offsets_of(story, caught.value)["startingOffsets"])
    assert offsets == {"source": {"0": 3, "1": 1}}
    offsets["source"]["0"] = 1  # what the user has to know
    story.ingest(name="n-2", options={"startingOffsets": json.dumps(offsets)})
    assert story.ids() == [1, 2, 3, 4, 7]


@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_becomes_topic_by(story: Story, again: bool) -> None:
    """An ingestion into one topic grows to several, or the other way; the first topic stays one of them."""
    one: dict[str, Any] = {"topic": "orders"}
    several: dict[str, Any] = {"topic": None, "topic_by": "'orders'"}
    first, second = (several, one) if again else (one, several)
    story.produce(0, 1)
    story.ingest(name="n", **first)
    story.produce(0, 2)
    with pytest.raises(InvalidInputError, match="this call would have them go") as caught:
        story.ingest(name="n", **second)
    story.ingest(name="n-2", options=offsets_of(story, caught.value), **second)
    assert story.ids() == [1, 2]


def test_advice_that_is_followed_while_an_older_run_works_doubles_nothing(story: Story) -> None:
    story.produce(0, 1)
    older = story.start(name="n", trigger=RUNNING)
    older.processAllAvailable()
    routed: dict[str, Any] = {"topic": None, "topic_by": "'orders'"}
    with pytest.raises(InvalidInputError, match="this call would have them go") as caught:
        story.start(name="n", **routed)
    story.produce(0, 2, 3)  # the older run works, as it should: a call that is refused takes over nothing
    older.processAllAvailable()
    offsets = offsets_of(story, caught.value)
    story.produce(0, 4)
    story.ingest(name="n-2", options=offsets, **routed)
    with pytest.raises(StreamingQueryException, match=r"ProducerFenced: .* was fenced by 'end_ingestion'"):
        older.awaitTermination(60)
    assert story.ids() == [1, 2, 3, 4]


def test_advice_about_one_topic_that_is_followed_while_an_older_run_reads_the_other_one_doubles_nothing(
    story: Story,
) -> None:
    story.produce(0, 1)
    story.recording.write("other", "id-2", [[6, 7]])
    story.ingest(subscribe=BOTH, name="n")
    older = story.start(name="n", trigger=RUNNING)
    story.produce(0, 2)
    older.processAllAvailable()
    story.recording.write("other", "id-3", [[8]])
    with pytest.raises(InvalidInputError, match="'other' is not the one") as caught:
        story.start(subscribe=BOTH, name="n")
    story.produce(0, 3)
    older.processAllAvailable()
    story.ingest(subscribe=BOTH, name="n-2", options=offsets_of(story, caught.value))
    assert story.ids() == [1, 2, 3, 6, 7, 8]


@pytest.mark.parametrize("late", [True, False])
def test_one_of_several_targets_that_was_dropped(story: Story, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    """While a batch is written, or at the moment of its commit: nothing of it is there."""
    story.ns.create_topic("other", SCHEMA)
    routed: dict[str, Any] = {"topic": None, "topic_by": "if(offset % 2 = 0, 'orders', 'other')"}
    story.produce(0, 1, 2)
    story.ingest(name="n", **routed)
    story.produce(0, 3, 4)
    job, check = frame_jobs.frame_job, KafkaBatches._check_sources

    def with_a_drop(*given: Any, **more: Any) -> Any:
        made = job(*given, **more)
        story.ns.drop_topic("other")
        return made

    def late_drop(*given: Any) -> None:
        check(*given)
        story.ns.drop_topic("other")

    with monkeypatch.context() as patch:
        if late:
            patch.setattr(KafkaBatches, "_check_sources", late_drop)
        else:
            patch.setattr(kafka_batches, "frame_job", with_a_drop)
        with pytest.raises(StreamingQueryException, match="TransactionConflict") as caught:
            story.ingest(name="n", **routed)
    assert "another name" not in str(caught.value)
    assert "start the ingestion again: it continues where the log is" in str(caught.value)
    story.ns.create_topic("other", SCHEMA)
    story.ingest(name="n", **routed)
    assert story.ids() == [1, 3]
    assert story.ns.snapshot().read("other").column("id").to_pylist() == [4]


def test_the_only_target_that_was_dropped(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one is filled again: what the dropped one had is gone with it."""
    story.produce(0, 1)
    query = story.start(trigger=RUNNING)
    query.processAllAvailable()
    job = frame_jobs.frame_job

    def with_a_drop(*given: Any, **more: Any) -> Any:
        made = job(*given, **more)
        story.ns.drop_topic("orders")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "frame_job", with_a_drop)
        story.produce(0, 2)
        with pytest.raises(StreamingQueryException, match="give the ingestion another name"):
            query.processAllAvailable()
    story.ns.create_topic("orders", SCHEMA, partitions=2)
    story.ingest(name="again")
    assert story.ids() == [1, 2]
