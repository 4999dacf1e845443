"""``spark_ext.ingest_kafka`` over recorded messages: each comes once, and what cannot be right is refused.

What a broker is needed for is in tests/kafka.
"""

from __future__ import annotations

import dataclasses
import tempfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches, plan_folder, position_commits
from spark_ext.ingest.kafka_options import kafka_options
from spark_ext.ingest.positions import TopicPartition
from tests.spark.ingest.story import RUNNING, SCHEMA, Story, story
from txnlog.errors import InvalidInputError, NameNotAllowed, OffsetOutOfRange, SchemaMismatch, UnsupportedFeature

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.format.actions import Segment

__all__ = ["story"]  # a fixture


def test_messages_come_once_over_restarts_and_offsets_without_messages(story: Story) -> None:
    story.produce(0, 1, 2, None, 3)
    story.produce(1, None, None)
    story.ingest()
    story.produce(0, None, 4)
    story.produce(1, 5)
    story.ingest()
    story.produce(0, 6)
    story.ingest()
    assert story.ids() == [1, 2, 3, 4, 5, 6]
    rows = story.ns.snapshot().read("orders", include_metadata=True).to_pylist()
    assert all(row["_partition"] == row["partition"] for row in rows)
    assert [row["id"] for row in rows if row["partition"] == 0] == [1, 2, 3, 4, 6]


def test_of_a_batch_whose_commits_came_in_part_the_rest_comes(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it was in versions whose batches had several entries."""
    story.produce(0, 1, 2)
    story.produce(1, 3, 4)
    commit = position_commits.commit_batch

    def one_of_them(ns: Any, ingestion: Any, ends: Any, segments: Any, **_: Any) -> Any:
        first = next(iter(ends))

        def its_own(txn: int) -> list[Segment]:
            return [item for item in segments(txn) if item.slices[0].partition == first.partition]

        commit(ns, ingestion, {first: ends[first]}, its_own)
        raise RuntimeError("the driver dies")

    with monkeypatch.context() as patch:
        patch.setattr(kafka_batches, "commit_batch", one_of_them)
        with pytest.raises(StreamingQueryException, match="the driver dies"):
            story.ingest()
    assert story.ids() == [1, 2]
    story.ingest()
    assert story.ids() == [1, 2, 3, 4]


def test_of_a_batch_whose_commits_came_in_part_the_rest_comes_also_of_one_task(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Spark lets one task read several partitions, its rows still go into files by partition."""
    frames = kafka_batches.KafkaBatches._write
    monkeypatch.setattr(kafka_batches.KafkaBatches, "_write", lambda own, df, *rest: frames(own, df.coalesce(1), *rest))
    test_of_a_batch_whose_commits_came_in_part_the_rest_comes(story, monkeypatch)


def test_a_run_reads_nothing_that_the_log_has(story: Story) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.produce(0, 3)
    query = story.start()
    query.awaitTermination()
    assert story.ids() == [1, 2, 3]
    assert sum(item["numInputRows"] for item in query.recentProgress) == 1


def test_a_run_that_was_overtaken_while_it_hung_commits_nothing(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer one has come less far, so that positions alone would not stop the older one: it has its epoch."""
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    write = kafka_batches.KafkaBatches._write

    def hanging(*given: Any) -> Any:
        monkeypatch.undo()
        story.take_place(monkeypatch)
        written = write(*given)
        story.recording.write("source", "id-1", [[1, 2], []])
        story.ingest()
        story.produce(0)
        return written

    monkeypatch.setattr(kafka_batches.KafkaBatches, "_write", hanging)
    story.produce(0, 2, 3)
    with pytest.raises(StreamingQueryException, match="ProducerFenced"):
        older.awaitTermination(60)
    assert story.ids() == [1, 2]
    story.ingest()
    assert story.ids() == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"failOnDataLoss": "false"}], ids=["strict", "lossy"])
def test_a_query_that_would_leave_messages_out_is_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """It begins behind the position. Also where a loss is accepted: Kafka has these messages."""
    story.produce(0, 1, 2, 3)
    starts = module._starts

    def behind(*given: Any) -> Any:
        return dataclasses.replace(
            starts(*given), offsets={TopicPartition("source", 0): 1, TopicPartition("source", 1): 0}
        )

    monkeypatch.setattr(module, "_starts", behind)
    with pytest.raises(StreamingQueryException, match=r"OffsetOutOfRange: the query continues in the partition 0"):
        story.ingest(options=options)
    assert story.ids() == []


def test_a_batch_behind_one_that_was_left_out_is_refused(story: Story) -> None:
    """Where a batch begins is where the one before it ends."""
    story.produce(0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_batches.KafkaBatches, "_run", lambda *_: None)
        query = story.start(trigger=RUNNING)
        query.processAllAvailable()
    story.produce(0, 2)
    with pytest.raises(StreamingQueryException, match="OffsetOutOfRange: what batch 1 reads is not known"):
        query.processAllAvailable()
    assert story.ids() == []


def test_a_run_leaves_no_folder_behind_the_next_one_or_the_process(story: Story) -> None:
    def folders() -> set[Path]:
        return {folder for folder in plan_folder._folders if folder.exists()}

    story.produce(0, 1)
    first = story.start(trigger=RUNNING)
    first.processAllAvailable()
    (kept,) = folders()
    story.ingest()
    assert kept in folders()
    first.stop()
    story.ingest()
    assert kept not in folders()
    assert len(folders()) == 1, "that of the last one"
    plan_folder._remove_all()
    assert not folders()


@pytest.mark.parametrize("name", ["a b", "a@b", "a+b", "a%20b", "a#b", "a?b", "a:b", "größe", "数"])
def test_a_folder_for_temporary_files_may_have_any_name(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = tmp_path / "tmp" / name
    place.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    story.produce(0, 1)
    story.ingest()
    story.produce(0, 2)
    query = story.start()
    query.awaitTermination()
    assert story.ids() == [1, 2]
    assert sum(item["numInputRows"] for item in query.recentProgress) == 1, "the note of where it begins was found"
    assert [path.name for path in place.parent.iterdir()] == [name], "nothing next to it"
    assert len(list(place.iterdir())) == 1, "the last run's"


def test_a_folder_that_java_does_not_see_is_refused_and_removed(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with a name that is no text in the encoding of the driver's Java."""
    place = tmp_path / "not \udcff text"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    story.produce(0, 1)
    version = story.ns.snapshot().version
    with pytest.raises(InvalidInputError, match="Spark does not see the folder"):
        story.start()
    assert not list(place.iterdir())
    assert story.ns.snapshot().version == version


@pytest.mark.parametrize("count", [1, 5])
def test_a_topic_of_kafka_that_was_made_again_is_refused_before_anything_is_written(story: Story, count: int) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.messages = [list(range(10, 10 + count)), []]
    story.produce(1, number="id-2")
    version = story.ns.snapshot().version
    with pytest.raises(InvalidInputError, match="'source' is not the one that the ingestion 'kafka:orders' read"):
        story.start()
    assert story.ns.snapshot().version == version
    story.ingest(name="another")
    assert story.ids() == [1, 2, *range(10, 10 + count)]


def test_a_topic_of_kafka_that_is_made_again_while_a_batch_is_read_ends_the_query(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0, 1, 2)
    write = kafka_batches.KafkaBatches._write

    def writing(*given: Any) -> Any:
        written = write(*given)
        story.produce(1, number="id-2")
        return written

    monkeypatch.setattr(kafka_batches.KafkaBatches, "_write", writing)
    with pytest.raises(StreamingQueryException, match="InvalidInputError: the Kafka topic 'source' is not the one"):
        story.ingest()
    assert story.ids() == []


def test_messages_that_retention_took_are_an_error_and_going_on_without_them_is_a_choice(story: Story) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.recording.write("source", "id-1", [[5, 6], []], first=4)
    with pytest.raises(OffsetOutOfRange, match="begins at offset 4, and the ingestion continues at 2") as caught:
        story.start()
    assert "failOnDataLoss=false" in str(caught.value)
    story.ingest(options={"failOnDataLoss": "false"})
    assert story.ids() == [1, 2, 5, 6]


def test_rows_that_are_wider_than_others_come_as_well(story: Story) -> None:
    """Spark does not measure the rows of a batch, unless one is too wide for that."""
    story.ns.create_topic("wide", pa.schema([("text", pa.string())]))
    story.produce(0, 1, 2)
    story.ingest(topic="wide", columns={"text": "repeat(cast(value AS string), 20000)"})
    assert sorted(story.ns.snapshot().read("wide").column("text").to_pylist()) == ["1" * 20_000, "2" * 20_000]


def test_offsets_that_went_back_are_refused(story: Story) -> None:
    story.produce(0, 1, 2)
    story.ingest()
    story.messages = [[9], []]
    story.produce(1)
    with pytest.raises(OffsetOutOfRange, match="ends at offset 1, and the log has its messages up to 2"):
        story.start(options={"failOnDataLoss": "false"})


def test_arguments_that_cannot_be_right_are_refused(story: Story) -> None:
    story.produce(0, 1)
    story.ns.create_topic("keyed", SCHEMA, key="id")
    version = story.ns.snapshot().version
    refusals: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InvalidInputError, "one of topic and topic_by", {"topic": None}),
        (InvalidInputError, "one of topic and topic_by", {"topic_by": "topic"}),
        (InvalidInputError, "topic_by needs a name", {"topic": None, "topic_by": "topic"}),
        (InvalidInputError, "subscribe is the name", {"subscribe": []}),
        (InvalidInputError, "subscribe is the name", {"subscribe": ["a", "a"]}),
        (InvalidInputError, "columns is a dict", {"columns": ["id"]}),
        (InvalidInputError, "is a SQL expression or a column", {"columns": {"id": 1}}),
        (InvalidInputError, "columns cannot name", {"columns": {"_txnlog_source": "1"}}),
        (InvalidInputError, "no option 'startingOfsets'", {"options": {"startingOfsets": "latest"}}),
        (InvalidInputError, "'subscribePattern' is none", {"options": {"subscribepattern": "a.*"}}),
        (InvalidInputError, "'startingOffsets' is 'earliest'", {"options": {"startingOffsets": "soon"}}),
        *(
            (InvalidInputError, "'startingOffsets' is 'earliest'", {"options": {"startingOffsets": text}})
            for text in ('{"source": {"0": 5, "00": 7}}', "[" * 200_000, f'{{"source": {{"0": {1 << 63}}}}}', "7")
        ),
        (InvalidInputError, "'failOnDataLoss' is true or false", {"options": {"failOnDataLoss": "never"}}),
        (InvalidInputError, "from 1 to 9223372036854775807", {"options": {"maxOffsetsPerTrigger": "9" * 19}}),
        (InvalidInputError, "from 1 to 2147483647", {"options": {"minPartitions": "3000000000"}}),
        (
            InvalidInputError,
            "'minOffsetsPerTrigger' is 10, and 'maxOffsetsPerTrigger' is 9",
            {"options": {"minoffsetspertrigger": "10", "maxOffsetsPerTrigger": "9"}},
        ),
        (InvalidInputError, "is given twice", {"options": {"KAFKA.bootstrap.servers": "twice"}}),
        (InvalidInputError, "no trigger 'always'", {"trigger": {"always": True}}),
        (InvalidInputError, "query_name is text", {"query_name": 7}),
        (NameNotAllowed, "name", {"name": ""}),
        (NameNotAllowed, "name of the ingestion with topic", {"name": "x" * 250}),
        (SchemaMismatch, "has the key 'id', and no column", {"topic": "keyed", "columns": {"offset": "offset"}}),
        (SchemaMismatch, "no column 'value'", {"columns": None}),
    ]
    for kind, why, given in refusals:
        with pytest.raises(kind, match=why):
            story.start(**given)
    with pytest.raises(InvalidInputError, match="options lack"):
        spark_ext.ingest_kafka(story.spark, "/nowhere", subscribe="a", topic="a", options={})
    assert story.ns.snapshot().version == version


def test_sessions_without_kafka_or_a_jvm_or_that_are_stopped_are_refused(
    spark: SparkSession, namespace: Namespace
) -> None:
    namespace.create_topic("orders", SCHEMA)
    given: dict[str, Any] = {
        "subscribe": "source",
        "topic": "orders",
        "options": {"kafka.bootstrap.servers": "nowhere:9092"},
    }
    path = f"{namespace.root}/{namespace.name}"
    with pytest.raises(UnsupportedFeature, match="the session has no Kafka source") as caught:
        spark_ext.ingest_kafka(spark, path, **given)
    assert f"spark-sql-kafka-0-10_2.13:{spark.version}" in str(caught.value)
    connect: Any = SimpleNamespace(conf=None, streams=SimpleNamespace(active=[]), is_stopped=False)
    with pytest.raises(UnsupportedFeature, match="client of Spark Connect"):
        spark_ext.ingest_kafka(connect, path, **given)
    stopped: Any = SimpleNamespace(conf=None, _jsparkSession=None, sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(InvalidInputError, match="the Spark session was stopped"):
        spark_ext.ingest_kafka(stopped, path, **given)
    with pytest.raises(InvalidInputError, match="the first argument is a SparkSession, not str"):
        spark_ext.ingest_kafka(path, spark, **given)  # type: ignore[arg-type]


def test_an_option_reaches_the_source_in_the_form_in_which_it_was_checked() -> None:
    """Blanks from a file of settings: our check takes them, and Spark's ``toBoolean`` fails in the query."""
    given = {"kafka.bootstrap.servers": "nowhere:9092", "failOnDataLoss": " False ", "maxOffsetsPerTrigger": " 7\n"}
    found = kafka_options("source", given)
    assert (found.given["failOnDataLoss"], found.given["maxOffsetsPerTrigger"]) == ("false", "7")
    assert not found.fail_on_data_loss
