"""``spark_ext.end_ingestion``: no run commits behind the offsets that it returns, and none of them is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
import txnlog
from spark_ext.ingest import end_ingestion as module
from spark_ext.ingest import kafka_batches, position_commits
from spark_ext.ingest.kafka_cluster import Bounds
from tests.client.support import FaultyStore
from tests.spark.ingest.recorded_kafka import FILE, RecordedCluster, RecordedKafka
from tests.spark.ingest.story import RUNNING, Story, story
from txnlog.api.internals import connection_of
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, RetriableError, StoreError
from txnlog.store import open_store

__all__ = ["story"]  # a fixture


def end(story: Story, name: str, **given: Any) -> str:
    return spark_ext.end_ingestion(story.spark, f"{story.ns.root}/{story.ns.name}", name, **given)


def test_a_run_that_has_its_rows_in_files_commits_none_of_them_behind_the_end(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first one, so that the log has no producer yet, and has looked at the log for the last time.

    The other name brings what it would have brought.
    """
    story.produce(0, 1, 2)
    offsets: list[str] = []
    epoch_of = kafka_batches.epoch_of

    def ending(*given: Any) -> int:
        if not offsets:
            offsets.append(end(story, "n"))
        return epoch_of(*given)

    monkeypatch.setattr(kafka_batches, "epoch_of", ending)
    with pytest.raises(StreamingQueryException, match=r"ProducerFenced: .* was fenced by 'end_ingestion'"):
        story.ingest(name="n")
    assert json.loads(offsets[0]) == {"source": {"0": 0, "1": 0}}
    story.ingest(name="n-2", options={"startingOffsets": offsets[0]})
    assert story.ids() == [1, 2]


def test_offsets_are_of_behind_the_last_commit(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older run commits once more while the call is under way."""
    story.produce(0, 1)
    older = story.start(name="n", trigger=RUNNING)
    older.processAllAvailable()
    start = position_commits.note_end

    def behind(*given: Any) -> int:
        story.produce(0, 2)
        older.processAllAvailable()
        return start(*given)

    monkeypatch.setattr(module, "note_end", behind)
    offsets = end(story, "n")
    older.stop()
    story.produce(0, 3)
    story.ingest(name="n-2", options={"startingOffsets": offsets})
    assert story.ids() == [1, 2, 3]


def test_an_ingestion_that_was_ended_is_refused_under_its_name(story: Story) -> None:
    """As where what looks after the old program starts it again: both would bring the next messages."""
    story.produce(0, 1)
    story.ingest(name="n")
    offsets = end(story, "n")
    story.produce(0, 2)
    with pytest.raises(InvalidInputError, match="the ingestion 'n' was ended by end_ingestion"):
        story.start(name="n")
    assert end(story, "n") == offsets, "a second end does no harm"
    story.ingest(name="n-2", options={"startingOffsets": offsets})
    assert story.ids() == [1, 2]


def test_a_call_that_began_before_the_end_commits_nothing_behind_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks Kafka meanwhile, and its query starts behind the end."""
    story.produce(0, 1)
    story.ingest(name="n")
    story.produce(0, 2)
    offsets: list[str] = []

    def ending(*_: object) -> None:
        offsets.append(end(story, "n"))

    with monkeypatch.context() as patch:
        patch.setattr("spark_ext.ingest.ingest_kafka._say_which_starts_count", ending)
        query = story.start(name="n")
        with pytest.raises(StreamingQueryException, match="was fenced by 'end_ingestion'"):
            query.awaitTermination()
    story.ingest(name="n-2", options={"startingOffsets": offsets[0]})
    assert story.ids() == [1, 2]


def test_a_partition_that_was_added_and_no_run_has_seen_is_refused_until_it_has_an_offset(story: Story) -> None:
    story.produce(0, 1)
    story.ingest(name="n")
    story.messages.append([])
    story.produce(2, 2)
    offsets = end(story, "n")
    with pytest.raises(InvalidInputError, match="startingOffsets has no offset for the partition 2") as caught:
        story.start(name="n-2", options={"startingOffsets": offsets})
    assert "those that were added as well; -2 is the earliest offset" in str(caught.value)
    found = json.loads(offsets)
    found["source"]["2"] = -2
    story.ingest(name="n-2", options={"startingOffsets": json.dumps(found)})
    assert story.ids() == [1, 2]


def test_a_topic_that_was_made_again_with_fewer_partitions_begins_at_its_first_message(story: Story) -> None:
    story.produce(1, 1, 2)
    story.ingest(name="n")
    story.messages = [[3]]
    story.produce(0, number="id-2")
    story.ingest(name="n-2", options={"startingOffsets": end(story, "n", from_beginning=["source"])})
    assert story.ids() == [1, 2, 3]


def test_names_may_have_slashes_and_other_streams_are_none_of_an_ingestion(story: Story) -> None:
    story.produce(0, 1)
    story.ingest(name="a/b")
    source = story.spark.readStream.format(RecordedKafka.name()).option(FILE, str(story.recording.file))
    frame = source.option("subscribe", "source").option("startingOffsets", '{"source": {"0": 0}}').load()
    spark_ext.write_stream(
        frame,
        f"{story.ns.root}/{story.ns.name}",
        checkpoint=str(story.folder / "checkpoint"),
        handler=lambda batch, txn: txn.write(batch.selectExpr("8L AS id", "partition", "offset"), "orders"),
        txn_app_id="a/source/7",
        trigger={"availableNow": True},
    ).awaitTermination()
    assert json.loads(end(story, "a/b")) == {"source": {"0": 1, "1": 0}}
    story.ns.snapshot()  # reads the log
    assert connection_of(story.ns).stream("a/source/7") is not None
    with pytest.raises(InvalidInputError, match=r"no ingestion 'a' \(there are: a/b;"):
        end(story, "a")


def test_a_call_that_cannot_be_right_ends_nothing(story: Story) -> None:
    story.produce(0, 1)
    query = story.start(name="orders", trigger=RUNNING)
    query.processAllAvailable()
    for given, why in (
        ({"name": "order"}, "the log has no ingestion 'order' .did you mean 'orders'"),
        ({"name": "orders", "from_beginning": ["sauce"]}, "has read no Kafka topic 'sauce' .did you mean 'source'"),
        ({"name": "orders", "from_beginning": "source"}, "from_beginning is a list"),
        ({"name": "orders", "from_beginning": [7]}, "from_beginning is a list"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            end(story, **given)
    with pytest.raises(InvalidInputError, match="the first argument is a SparkSession, not str"):
        spark_ext.end_ingestion("/lake", story.spark, "orders")  # type: ignore[arg-type]
    story.produce(0, 2)
    query.processAllAvailable()
    assert story.ids() == [1, 2]


def test_an_end_whose_outcome_is_unknown_is_called_again(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is there, and the store did not say so."""
    story.produce(0, 1)
    story.ingest(name="n")
    start = position_commits.note_end

    def unknown(*given: Any) -> int:
        start(*given)
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(module, "note_end", unknown)
        with pytest.raises(OutcomeUnknown, match="no answer"):
            end(story, "n")
    assert json.loads(end(story, "n")) == {"source": {"0": 1, "1": 0}}


@pytest.mark.parametrize("how", ["fence", "producer"])
def test_an_ingestion_that_was_ended_stays_ended_whoever_fences_its_name_later(story: Story, how: str) -> None:
    """An administrator makes sure of it with ``txnlog producers fence``, and its supervisor starts it again."""
    story.produce(0, 1)
    story.ingest(name="n")
    offsets = end(story, "n")
    if how == "fence":
        story.ns.fence("n", by="command line")
    else:
        story.ns.producer("n")
    story.produce(0, 2)
    with pytest.raises(InvalidInputError, match="'n' was ended by end_ingestion"):
        story.ingest(name="n")
    (*_, found) = spark_ext.ingested_offsets(story.spark, f"{story.ns.root}/{story.ns.name}", "n")
    assert found.ended
    story.ingest(name="n-2", options={"startingOffsets": offsets})
    assert story.ids() == [1, 2]


def test_the_error_of_an_ended_name_does_not_advise_to_begin_once_more_where_another_one_goes_on(story: Story) -> None:
    """Its supervisor starts the old program again. A third name would double what the second one brings."""
    story.produce(0, 1)
    story.ingest(name="n")
    story.ingest(name="n-2", options={"startingOffsets": end(story, "n")})
    with pytest.raises(InvalidInputError, match="if another one goes on, start this one no more; if none was begun"):
        story.ingest(name="n")


def test_the_error_of_an_ended_name_names_the_topics_that_were_made_again(story: Story) -> None:
    """It hides the error that named them: without them the other name would begin amid the new topic's messages."""
    story.produce(0, 1, 2)
    story.ingest(name="n")
    story.messages = [[10, 11, 12], []]
    story.produce(0, number="id-2")
    again = {"from_beginning": ["source"]}
    first = end(story, "n", **again)
    with pytest.raises(InvalidInputError, match="returns the offsets again, if it is called with the same from_beg"):
        story.ingest(name="n")
    assert end(story, "n", **again) == first
    story.ingest(name="n-2", options={"startingOffsets": first})
    assert story.ids() == [1, 2, 10, 11, 12]


def test_offsets_of_the_end_that_an_open_transaction_hides_are_waited_for(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ended one read uncommitted, and the other one has the default, read_committed: lower ones would double."""
    story.produce(0, 1, 2)
    story.ingest(name="n", options={"kafka.isolation.level": "read_uncommitted"})
    offsets = end(story, "n")
    bounds = RecordedCluster.bounds

    def committed(*given: Any) -> dict[Any, Bounds]:
        """The transaction of the message at offset 1 is open."""
        return {part: Bounds(found.earliest, min(found.latest, 1)) for part, found in bounds(*given).items()}

    with monkeypatch.context() as patch:
        patch.setattr(RecordedCluster, "bounds", committed)
        patch.setattr(RecordedCluster, "written", lambda own, part: bounds(own, [part])[part].latest)
        with pytest.raises(RetriableError, match=r"open in the partition 0 .* startingOffsets begin at 2 .wait until"):
            story.ingest(name="n-2", options={"startingOffsets": offsets})
    story.ingest(name="n-2", options={"startingOffsets": offsets})
    assert story.ids() == [1, 2]


def test_an_end_behind_which_the_log_cannot_be_read_is_not_called_nothing(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0, 1)
    story.ingest(name="n")
    store = FaultyStore(open_store(story.ns.root, {}))
    note = position_commits.note_end

    def breaking(*given: Any) -> None:
        note(*given)
        store.reads_forever = "broken"

    with txnlog.open(story.ns.root, story.ns.name, store=store) as ns:
        spark_ext.use(ns)
        monkeypatch.setattr(module, "note_end", breaking)
        with pytest.raises(StoreError) as caught:
            end(story, "n")
        store.heal()
    assert "nothing was written" not in str(caught.value)
    assert caught.value.durable is Durable.MAYBE
