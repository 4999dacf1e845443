"""Expressions of an ingestion, and what else a call is refused for: errors of txnlog's, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.ingest.kafka_batches import KafkaBatches
from spark_ext.ingest.kafka_frames import from_offsets
from spark_ext.ingest.positions import TopicPartition
from tests.spark.ingest.story import COLUMNS, SCHEMA, Story, story
from txnlog.errors import InvalidInputError, SchemaMismatch, TxnLogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["story"]  # a fixture


def test_storage_options_are_in_no_repr() -> None:
    nothing: Any = None
    batches = KafkaBatches(nothing, '{"secret": "hush"}', nothing, nothing, nothing, nothing, nothing)
    assert "hush" not in repr(batches.run)


@pytest.mark.parametrize(
    "given",
    [{"where": "nope > 1"}, {"where": "partition"}, {"columns": {"id": "cast(value AS"}}, {"columns": {"id": "nope"}}],
    ids=str,
)
def test_expressions_that_spark_refuses_are_errors_of_txnlog(story: Story, given: dict[str, Any]) -> None:
    story.produce(0, 1)
    with pytest.raises(TxnLogError):
        story.start(**given)


@pytest.mark.parametrize("ansi", [True, False])
def test_a_value_that_does_not_fit_stops_the_query_or_is_null_as_the_session_has_it(story: Story, ansi: bool) -> None:
    """As docs/ingest.md says of ``spark.sql.ansi.enabled``, and how to have an error all the same."""
    story.produce(0, 1)
    wrong = {**COLUMNS, "id": "cast(concat(cast(value AS string), 'x') AS bigint)"}
    sure = {**wrong, "id": f"coalesce({wrong['id']}, raise_error('no number'))"}
    story.spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        with pytest.raises(StreamingQueryException, match=r"no number|CAST_INVALID_INPUT"):
            story.ingest(columns=wrong if ansi else sure)
        assert story.ns.snapshot().read("orders").num_rows == 0
        if not ansi:
            story.ingest(columns=wrong)
            assert story.ns.snapshot().read("orders").column("id").to_pylist() == [None]
    finally:
        story.spark.conf.unset("spark.sql.ansi.enabled")


def test_columns_that_fit_no_topic_are_refused_by_the_call_also_with_topic_by(story: Story) -> None:
    story.produce(0, 1)
    with pytest.raises(SchemaMismatch):
        story.start(topic=None, topic_by="'orders'", name="n", columns={"nope": "key"})


def test_another_topic_under_the_same_name_is_not_called_made_again(story: Story) -> None:
    story.produce(0, 1)
    story.ingest(name="n")
    story.ns.create_topic("other", SCHEMA)
    with pytest.raises(InvalidInputError, match=r"go to the topic 'orders', and .* to the topic 'other'"):
        story.ingest(name="n", topic="other")
    with pytest.raises(InvalidInputError, match=r"go to the topic 'orders', and .* where topic_by says"):
        story.ingest(name="n", topic=None, topic_by="'other'")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"where": "cast(value AS string) IN (SELECT v FROM allowed)"}, "a subquery"),
        ({"where": "EXISTS (SELECT 1 FROM allowed WHERE v = cast(value AS string))"}, "a subquery"),
        ({"columns": {"id": "(SELECT max(cast(v AS bigint)) FROM allowed)"}}, "a subquery"),
        ({"columns": {"id": "cast(row_number() OVER (PARTITION BY partition ORDER BY key) AS bigint)"}}, "Window"),
        ({"columns": {"id": "max(offset)"}}, "MISSING_GROUP_BY"),
    ],
    ids=str,
)
def test_expressions_over_other_messages_are_refused(story: Story, given: dict[str, Any], why: str) -> None:
    """They sort and shuffle: the messages of a partition would lose their order."""
    story.spark.createDataFrame([("1",)], "v string").createOrReplaceTempView("allowed")
    story.produce(0, 1)
    with pytest.raises(InvalidInputError, match=why):
        story.start(**given)


def test_expressions_over_a_message_by_itself_keep_the_order(story: Story) -> None:
    """One may give several rows, and a function of Python's may look at it."""
    half = F.udf(lambda value: int(value) % 2 == 1, "boolean")
    story.produce(0, *range(20))
    columns = {**COLUMNS, "id": "explode(array(offset, offset))"}
    story.ingest(columns=columns, where=half(F.col("value").cast("string")))
    rows = story.ns.snapshot().read("orders", include_metadata=True).to_pylist()
    rows.sort(key=lambda row: row["_offset"])
    assert [row["offset"] for row in rows] == [number for number in range(1, 20, 2) for _ in (1, 2)]


# --- many partitions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1000, 4000])
def test_a_batch_of_many_partitions_that_is_cut_can_be_planned(spark: SparkSession, count: int) -> None:
    frame = spark.range(10).selectExpr("'t' AS topic", "cast(id AS int) AS partition", "id AS offset")
    assert from_offsets(frame, {TopicPartition("t", number): 5 for number in range(count)}).count() == 5
