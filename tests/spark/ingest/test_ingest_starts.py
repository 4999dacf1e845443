"""Where an ingestion from Kafka begins: logged for all partitions at once, before its first batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, position_commits
from spark_ext.ingest.positions import Ingestion, TopicPartition
from tests.spark.ingest.story import RUNNING, Story, story
from txnlog.errors import InvalidInputError, OffsetOutOfRange

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

__all__ = ["story"]  # a fixture


LATEST = {"startingOffsets": "latest"}


def test_latest_is_where_the_first_run_began_also_in_an_empty_topic(story: Story) -> None:
    story.produce(0)
    story.ingest(options=LATEST)
    story.produce(0, 1, 2)
    story.ingest(options=LATEST)
    assert story.ids() == [1, 2]


def test_a_run_that_began_in_an_empty_topic_and_died_before_its_first_commit_is_gone_on_with(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_batch", lambda *_, **_more: (_ for _ in ()).throw(RuntimeError("dies")))
        query = story.start(options=LATEST, trigger=RUNNING)
        query.processAllAvailable()
        story.produce(0, 1, 2)
        with pytest.raises(StreamingQueryException, match="dies"):
            query.processAllAvailable()
    story.ingest(options=LATEST)
    assert story.ids() == [1, 2]


def test_retention_before_the_first_message_of_a_partition_is_an_error(story: Story) -> None:
    """Partition 1 was empty when the ingestion began; its messages 0 to 3 came and went while nobody ingested."""
    story.produce(0, 1, 2, 3, 4)
    story.ingest()
    story.recording.write("source", "id-1", [[5], [6]], first=4)
    with pytest.raises(OffsetOutOfRange):
        story.ingest()


def test_retention_before_the_first_batch_is_an_error(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run says where it begins (offset 0), and dies before its first commit."""
    story.produce(0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_batch", lambda *_, **_more: (_ for _ in ()).throw(RuntimeError("dies")))
        with pytest.raises(StreamingQueryException):
            story.ingest()
    story.recording.write("source", "id-1", [[3], []], first=2)
    with pytest.raises(OffsetOutOfRange):
        story.ingest()


def test_where_an_ingestion_begins_is_logged_for_all_partitions_or_for_none(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies while it notes that. With a commit for each, partition 1 would begin behind its message 5."""
    story.produce(0, 1, 2)
    story.produce(1, 3, 4)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "note_starts", behind(position_commits.note_starts, dies))
        with pytest.raises(RuntimeError, match="the driver dies"):
            story.start(options=LATEST)
    first, second = (story.stream(partition) for partition in (0, 1))
    assert (first.batch, second.batch) == (2, 2)
    assert first.version == second.version, "one entry has all of them"
    story.produce(1, 5)
    story.ingest(options={"startingOffsets": "earliest"})
    assert story.ids() == [5]


def test_of_two_first_runs_the_one_that_is_logged_first_says_where_both_begin(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one began at the earliest offsets, and has not ingested anything yet."""
    story.produce(0, 1, 2)

    def second(ns: Namespace, ingestion: Ingestion, starts: Mapping[TopicPartition, int]) -> None:
        position_commits.note_starts(ns, ingestion, dict.fromkeys(starts, 0))
        position_commits.note_starts(ns, ingestion, starts)

    monkeypatch.setattr(kafka_batches, "note_starts", second)
    query = story.start(options=LATEST)
    assert [active.id for active in story.spark.streams.active if active.id != query.id] == []
    query.awaitTermination()
    assert story.ids() == [1, 2]


def test_of_two_first_runs_the_one_that_began_at_lower_offsets_brings_what_the_other_one_leaves_to_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one began at the latest offsets, and was first."""
    story.produce(0, 1, 2)

    def second(ns: Namespace, ingestion: Ingestion, starts: Mapping[TopicPartition, int]) -> None:
        position_commits.note_starts(ns, ingestion, {TopicPartition("source", 0): 1, TopicPartition("source", 1): 0})
        position_commits.note_starts(ns, ingestion, starts)

    monkeypatch.setattr(kafka_batches, "note_starts", second)
    story.ingest()
    assert story.ids() == [2]


def test_a_call_that_is_refused_does_not_say_where_the_next_one_begins(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``latest``, and what only Spark refuses, here a name that another query took meanwhile. No query has run."""
    story.produce(0, 1, 2)
    other = story.start(name="other", trigger=RUNNING, query_name="orders")
    other.processAllAvailable()
    version = story.ns.snapshot().version
    with monkeypatch.context() as patch:
        patch.setattr(module, "check_query_name", lambda *_: None)
        with pytest.raises(InvalidInputError, match="Spark refuses to start the query"):
            story.start(options=LATEST, query_name="orders")
    assert story.ns.snapshot().version == version
    story.ingest(options={"startingOffsets": "earliest"})
    assert story.ids() == [1, 1, 2, 2]


def test_offsets_that_are_given_and_do_not_count_are_warned_of(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        story.ingest(options={"startingOffsets": '{"source": {"0": 2, "1": -2}}'})
        assert not caplog.messages, "the log says the same"
        story.ingest(options={"startingOffsets": '{"source": {"0": 1, "1": -2}}'})
    (message,) = caplog.messages
    assert "partition 0 of the Kafka topic 'source' continues at 2" in message
    assert story.ids() == [1, 2]


def test_offsets_for_a_partition_that_is_not_there_are_refused(story: Story) -> None:
    """As Spark's source refuses them: it is a slip. The first message is none, as where a topic was made again."""
    story.produce(0, 1)
    version = story.ns.snapshot().version
    with pytest.raises(InvalidInputError, match=r"has the offset 0 for the partition 11 .* which Kafka does not have"):
        story.start(options={"startingOffsets": '{"source": {"0": 0, "1": 0, "11": 0}}'})
    assert story.ns.snapshot().version == version
    story.ingest(options={"startingOffsets": '{"source": {"0": 0, "1": 0, "11": -2}}'})
    assert story.ids() == [1]


def test_offsets_for_a_topic_that_is_not_subscribed_to_are_warned_of(
    story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    story.produce(0, 1)
    with caplog.at_level(logging.WARNING, "txnlog.spark"):
        story.ingest(options={"startingOffsets": '{"source": {"0": 0, "1": 0}, "sauce": {"0": 7}}'})
    assert caplog.messages == ["startingOffsets name Kafka topics that are not subscribed to: sauce"]
    assert story.ids() == [1]


def test_a_partition_that_is_added_begins_at_its_first_message_and_misses_what_retention_took(story: Story) -> None:
    story.produce(0, 0, 1)
    story.produce(1, 0, 1)
    story.ingest(options=LATEST)
    story.messages.append([2, 3])
    story.produce(0)
    story.ingest(options=LATEST)
    assert story.ids() == [2, 3]
    story.recording.write("source", "id-1", [[9], [9], [9], [9]], first=2)  # one more, whose messages 0 and 1 are gone
    with pytest.raises(OffsetOutOfRange, match="partition 3 of the Kafka topic 'source' begins at offset 2"):
        story.ingest(options=LATEST)


def test_a_loss_that_is_accepted_is_a_position_of_the_log(story: Story) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.recording.write("source", "id-1", [[5], []], first=4)
    story.ingest(options={"failOnDataLoss": "false"})
    assert [story.stream(partition).batch for partition in (0, 1)] == [5, 4]
    story.recording.write("source", "id-1", [[5], [6]], first=4)
    story.ingest()  # nothing is lost any more
    assert story.ids() == [1, 2, 5, 6]


def test_a_loss_that_is_accepted_is_logged_also_where_no_message_comes_behind_it(story: Story) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.recording.write("source", "id-1", [[], []], first=4)
    story.ingest(options={"failOnDataLoss": "false"})
    assert [story.stream(partition).batch for partition in (0, 1)] == [4, 4]
    story.recording.write("source", "id-1", [[5], []], first=4)
    story.ingest()
    assert story.ids() == [1, 2, 5]


def test_a_thousand_starts_are_one_entry(story: Story) -> None:
    story.messages = [[] for _ in range(1_000)]
    story.produce(0)
    story.ingest()
    story.ingest()
    records = [story.stream(partition) for partition in range(1_000)]
    assert {(record.batch, record.version) for record in records} == {(0, records[0].version)}


def dies() -> None:
    raise RuntimeError("the driver dies")


def behind(call: Callable[..., object], what: Callable[[], None]) -> Callable[..., object]:
    """A call, and something behind it."""

    def both(*given: Any) -> object:
        result = call(*given)
        what()
        return result

    return both
