"""Where an ingestion from Kafka begins: logged for all partitions at once, before anything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, positions
from spark_ext.ingest.positions import Ingestion, Part
from tests.spark.ingest.story import RUNNING, Story, story
from txnlog.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

__all__ = ["story"]  # a fixture

pytestmark = pytest.mark.some(one_in=3)


LATEST = {"startingOffsets": "latest"}


@pytest.mark.parametrize("lost", [True, False])
def test_latest_is_where_the_first_run_began_also_in_an_empty_topic(story: Story, lost: bool) -> None:
    story.produce(0)
    story.ingest(options=LATEST)
    if lost:
        shutil.rmtree(story.checkpoint)
    story.produce(0, 1, 2)
    story.ingest(options=LATEST)
    assert story.ids() == [1, 2]


def test_a_run_that_began_in_an_empty_topic_and_died_before_its_first_commit_is_gone_on_with(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is there, and has the batch."""
    story.produce(0)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_parts", lambda *_: (_ for _ in ()).throw(RuntimeError("dies")))
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
    shutil.rmtree(story.checkpoint)
    story.recording.write("source", "id-1", [[5], [6]], first=4)
    with pytest.raises(OffsetOutOfRange):
        story.ingest()


def test_retention_before_the_first_batch_is_an_error(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run says where it begins (offset 0), dies before its first commit, and its checkpoint is lost."""
    story.produce(0, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_parts", lambda *_: (_ for _ in ()).throw(RuntimeError("dies")))
        with pytest.raises(StreamingQueryException):
            story.ingest()
    shutil.rmtree(story.checkpoint)
    story.recording.write("source", "id-1", [[3], []], first=2)
    with pytest.raises(OffsetOutOfRange):
        story.ingest()


@pytest.mark.parametrize("lost", [True, False])
def test_where_an_ingestion_begins_is_logged_for_all_partitions_or_for_none(
    story: Story, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """The driver dies while it notes that. With a commit for each, partition 1 would begin behind its message 5."""
    story.produce(0, 1, 2)
    story.produce(1, 3, 4)
    with monkeypatch.context() as patch:
        patch.setattr(module, "note_starts", behind(positions.note_starts, dies))
        with pytest.raises(RuntimeError, match="the driver dies"):
            story.start(options=LATEST)
    first, second = (story.stream(partition) for partition in (0, 1))
    assert (first.batch, second.batch) == (2, 2)
    assert first.version == second.version, "one entry has all of them"
    story.produce(1, 5)
    if lost:
        shutil.rmtree(story.checkpoint, ignore_errors=True)
    story.ingest(options={"startingOffsets": "earliest"})
    assert story.ids() == [5]


def test_of_two_first_runs_the_one_that_is_logged_first_says_where_both_begin(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one began at the earliest offsets, and has not ingested anything yet."""
    story.produce(0, 1, 2)

    def second(ns: Namespace, ingestion: Ingestion, starts: Mapping[Part, int], begins: Iterable[str]) -> None:
        positions.note_starts(ns, ingestion, dict.fromkeys(starts, 0), begins)
        positions.note_starts(ns, ingestion, starts, begins)

    monkeypatch.setattr(module, "note_starts", second)
    story.ingest(options=LATEST)
    assert story.ids() == [1, 2]


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
    shutil.rmtree(story.checkpoint)
    story.recording.write("source", "id-1", [[5], []], first=4)
    story.ingest(options={"failOnDataLoss": "false"})
    assert [story.stream(partition).batch for partition in (0, 1)] == [5, 4]
    shutil.rmtree(story.checkpoint)
    story.recording.write("source", "id-1", [[5], [6]], first=4)
    story.ingest()  # nothing is lost any more
    assert story.ids() == [1, 2, 5, 6]


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
