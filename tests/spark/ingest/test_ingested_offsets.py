"""``spark_ext.ingested_offsets``: what the log says of each partition, whether an ingestion is running or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
from catalog import Catalog
from tests.spark.ingest.story import Story, story
from txnlog.errors import InvalidInputError

__all__ = ["story"]  # a fixture


def offsets(story: Story, name: str | None = None) -> list[tuple[Any, ...]]:
    found = spark_ext.ingested_offsets(story.spark, f"{story.ns.root}/{story.ns.name}", name)
    return [(at.ingestion, at.topic, at.partition, at.offset, at.ended) for at in found]


def test_each_partition_has_the_offset_of_its_next_message_and_the_version_that_moved_it(story: Story) -> None:
    assert offsets(story) == []
    story.produce(0, 1, 2)
    story.produce(1, 3)
    story.ingest(name="n")
    version = story.ns.snapshot().version
    story.produce(0, 4)
    story.ingest(name="n")
    assert offsets(story) == [("n", "source", 0, 3, False), ("n", "source", 1, 1, False)]
    moved, stayed = spark_ext.ingested_offsets(story.spark, f"{story.ns.root}/{story.ns.name}")
    assert (moved.version, stayed.version) == (story.ns.snapshot().version, version)


def test_an_ingestion_has_offsets_before_its_first_batch(story: Story) -> None:
    """Where it begins is in the log before; here no batch can be written, since an expression fails."""
    story.produce(0, 1, 2)
    where = {"source": {"0": 1, "1": 0}}
    broken = {"id": "cast(raise_error('no') AS bigint)", "partition": "partition", "offset": "offset"}
    with pytest.raises(StreamingQueryException):
        story.ingest(name="n", columns=broken, options={"startingOffsets": json.dumps(where)})
    assert offsets(story) == [("n", "source", 0, 1, False), ("n", "source", 1, 0, False)]


def test_ingestions_are_listed_by_name_and_one_can_be_asked_for(story: Story) -> None:
    story.produce(0, 1)
    story.ingest(name="team/n")
    spark_ext.end_ingestion(story.spark, f"{story.ns.root}/{story.ns.name}", "team/n")
    story.ingest(name="other")
    assert {(name, ended) for name, *_, ended in offsets(story)} == {("team/n", True), ("other", False)}
    assert offsets(story, "other") == [("other", "source", 0, 1, False), ("other", "source", 1, 0, False)]
    with pytest.raises(InvalidInputError, match=r"the log has no ingestion 'othr'.*'other'"):
        offsets(story, "othr")


def test_a_namespace_that_was_dropped_can_still_be_asked(story: Story) -> None:
    """It only reads."""
    story.produce(0, 1)
    story.ingest(name="n")
    Catalog(story.ns.root).drop_namespace(story.ns.name)
    assert offsets(story) == [("n", "source", 0, 1, False), ("n", "source", 1, 0, False)]


@pytest.mark.parametrize("call", [spark_ext.ingested_offsets, spark_ext.end_ingestion])
def test_a_path_with_a_topic_is_refused(story: Story, call: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"ingestions are those of a whole namespace .leave the topic out"):
        call(story.spark, f"{story.ns.root}/{story.ns.name}/orders", "n")


def test_queries_with_an_identity_are_no_ingestions(story: Story, tmp_path: Any) -> None:
    """A name like that of a partition does not make one of them."""
    frame = story.spark.readStream.format("txnlog").load(f"{story.ns.root}/{story.ns.name}/orders")
    story.ns.produce("orders", [{"id": 1, "partition": 0, "offset": 0}])
    spark_ext.write_stream(
        frame,
        f"{story.ns.root}/{story.ns.name}",
        checkpoint=str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
        txn_app_id="n/source/0",
        handler=lambda batch, txn: txn.write(batch.limit(0), "orders"),
    ).awaitTermination()
    assert story.ns.table("history").num_rows
    assert offsets(story) == []
