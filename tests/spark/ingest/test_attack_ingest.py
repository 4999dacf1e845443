"""Ways in which an ingestion does what its page does not say. Each of these tests fails."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSourceStreamReader

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches
from spark_ext.ingest.kafka_batches import KafkaBatches
from tests.spark.ingest.recorded_kafka import RecordedKafka, _Reader
from tests.spark.ingest.story import COLUMNS, RUNNING, Story, story
from tests.spark.ingest.test_ingest_advice import offsets_of
from txnlog.errors import Durable, InvalidInputError, StoreError

__all__ = ["story"]  # a fixture

BOTH = ["source", "other"]


# --- advice -----------------------------------------------------------------------------------------------------------


def test_offsets_that_an_error_advises_double_what_the_older_run_still_ingests(story: Story) -> None:
    """The advice is followed to the letter: all runs of the old name end first, then the new name begins as printed."""
    story.produce(0, 1)
    older = story.start(name="n", trigger=RUNNING)
    older.processAllAvailable()
    routed: dict[str, Any] = {"topic": None, "topic_by": "'orders'"}
    with pytest.raises(InvalidInputError, match="this call would have them go") as caught:
        story.start(name="n", **routed)
    story.produce(0, 2, 3)  # the older run works, as it should: a call that is refused takes over nothing
    older.processAllAvailable()
    older.stop()
    story.ingest(name="n-2", options=offsets_of(caught.value), **routed)
    assert story.ids() == [1, 2, 3]


def test_offsets_that_an_error_advises_when_a_topic_was_made_again_are_of_before_the_older_run_ended(
    story: Story,
) -> None:
    """Another run of the name reads one topic alone, and that one is as before."""
    story.produce(0, 1)
    story.recording.write("other", "id-2", [[6, 7]])
    story.ingest(subscribe=BOTH, name="n")
    older = story.start(name="n", trigger=RUNNING)
    story.produce(0, 2)
    story.recording.write("other", "id-2", [[6, 7]])
    older.processAllAvailable()
    story.recording.write("other", "id-3", [[8]])
    with pytest.raises(InvalidInputError, match="'other' is not the one") as caught:
        story.start(subscribe=BOTH, name="n")
    story.messages[0].append(3)
    story.recording.write("source", "id-1", story.messages)
    older.processAllAvailable()
    older.stop()
    story.ingest(subscribe=BOTH, name="n-2", options=offsets_of(caught.value))
    assert story.ids() == [1, 2, 3, 6, 7, 8]


# --- runs that end, and their messages --------------------------------------------------------------------------------


def test_a_folder_for_temporary_files_with_a_blank_in_its_name(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TMPDIR="/data/temporary files" is."""
    place = tmp_path / "temporary files"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    story.produce(0, 1)
    try:
        story.ingest()
    finally:
        print("beside it:", sorted(path.name for path in tmp_path.iterdir()))
    assert story.ids() == [1]
    assert not (tmp_path / "temporary%20files").exists()


def test_a_run_that_an_administrator_fenced_is_not_told_of_another_run(story: Story) -> None:
    """There is no other run: the advice to let that one run leaves nobody."""
    story.produce(0, 1)
    story.ingest()
    waiting = story.start(trigger=RUNNING)
    waiting.processAllAvailable()
    story.ns.fence("kafka:orders", by="alice")
    story.produce(0, 2)
    with pytest.raises(StreamingQueryException) as caught:
        waiting.processAllAvailable()
    text = str(caught.value).partition("Caused by")[0]
    print(text[-600:])
    assert "alice" in text
    assert "another run" not in text


def test_offsets_for_a_partition_that_is_not_there_are_refused(story: Story) -> None:
    """As Spark's source refuses them: it is a slip."""
    story.produce(0, 1)
    with pytest.raises(InvalidInputError):
        story.ingest(options={"startingOffsets": '{"source": {"0": 0, "1": 0, "11": 0}, "sauce": {"0": 7}}'})


class _LateReader(_Reader):
    """What a broker answers that does not know the third partition of a topic yet."""

    def latestOffset(self, *limits: object) -> dict[str, Any]:  # noqa: N802 - Spark's name
        found = super().latestOffset(*limits)
        return {topic: {key: end for key, end in ends.items() if int(key) < 2} for topic, ends in found.items()}


class _LateKafka(RecordedKafka):
    @classmethod
    def name(cls) -> str:
        return "late_kafka"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - Spark's signature
        return _LateReader(dict(self.options))


def test_a_partition_that_sparks_source_does_not_see_yet_is_not_called_lost(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition was added a moment ago: one broker knows it, and the one that Spark's source asks does not."""
    story.produce(0, 1)
    story.ingest()
    story.messages.append([])
    story.produce(2, 2)
    story.spark.dataSource.register(_LateKafka)
    monkeypatch.setattr(module, "_SOURCE", "late_kafka")
    story.produce(0, 3)
    try:
        story.ingest()
    except StreamingQueryException as error:
        text = str(error).partition("Caused by")[0]
        print(text[-900:])
        assert "lost messages" not in text


def test_a_first_batch_that_fails_behind_the_epoch_ends_no_run_that_is_at_work(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page says of "a run whose first batch fails": the older run goes on. Here its commit is refused."""
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    commit, held = kafka_batches.commit_parts, threading.Event()

    def refused(*_: Any) -> Any:
        raise StoreError("the store refuses", durable=Durable.NOTHING)

    run = KafkaBatches._run

    def running(batches: KafkaBatches, *given: Any) -> None:
        if batches.query is not None and batches.query.id == older.id:
            assert held.wait(120)
        run(batches, *given)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaBatches, "_run", running)
        patch.setattr(kafka_batches, "commit_parts", refused)
        story.produce(0, 2)
        with pytest.raises(StreamingQueryException, match="the store refuses"):
            story.ingest()
        patch.setattr(kafka_batches, "commit_parts", commit)
        held.set()
        older.processAllAvailable()
    assert story.ids() == [1, 2]


def test_a_value_that_does_not_fit_stops_the_query_whatever_the_session_makes_of_it(story: Story) -> None:
    """With ANSI mode switched off, as many sessions have it."""
    story.produce(0, 1)
    story.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(StreamingQueryException):
            story.ingest(columns={**COLUMNS, "id": "cast(concat(cast(value AS string), 'x') AS bigint)"})
    finally:
        story.spark.conf.unset("spark.sql.ansi.enabled")
        print("in the topic:", story.ns.snapshot().read("orders").to_pylist())
