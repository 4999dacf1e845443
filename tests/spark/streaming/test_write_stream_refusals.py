"""``spark_ext.write_stream``: what is refused before a query starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import spark_ext
from tests.spark.streaming.pipeline import Pipeline, pipeline
from txnlog.errors import (
    InvalidInputError,
    NamespaceNotFound,
)

__all__ = ["pipeline"]  # a fixture

if TYPE_CHECKING:
    pass


def test_what_makes_no_stream_is_refused_before_a_query_starts(pipeline: Pipeline) -> None:
    handler = pipeline.handle
    checkpoint = str(pipeline.checkpoint)
    with pytest.raises(InvalidInputError, match=r"is no stream \(use spark_ext.transaction for a batch"):
        spark_ext.write_stream(pipeline.spark.range(1), pipeline.path, checkpoint=checkpoint, handler=handler)
    swapped: Any = (pipeline.path, pipeline.source())
    with pytest.raises(InvalidInputError, match=r"write_stream takes a Spark DataFrame, not str \(call it with"):
        spark_ext.write_stream(*swapped, checkpoint=checkpoint, handler=handler)
    for path, kind, problem in (
        (f"{pipeline.path}/even", InvalidInputError, r"names the topic 'even'.*name it in txn.write"),
        (f"{pipeline.ns.root}/saels", NamespaceNotFound, r"did you mean 'sales'"),
    ):
        with pytest.raises(kind, match=problem):
            spark_ext.write_stream(pipeline.source(), path, checkpoint=checkpoint, handler=handler)
    for relative in ("checkpoints/billing", "~/billing", " /billing"):
        with pytest.raises(InvalidInputError, match=r"the checkpoint's location .* is relative.*os.path.abspath"):
            spark_ext.write_stream(pipeline.source(), pipeline.path, checkpoint=relative, handler=handler)
    with pytest.raises(InvalidInputError, match=r"the path 'lake/sales' is relative.*os.path.abspath"):
        spark_ext.write_stream(pipeline.source(), "lake/sales", checkpoint=checkpoint, handler=handler)
    for names in (["billing"], ("billing", "returns"), {"orders": "billing"}):
        given: Any = names
        with pytest.raises(
            InvalidInputError, match=r"name of one subscription, not \w+ \(read every source with the same"
        ):
            spark_ext.write_stream(
                pipeline.source(), pipeline.path, checkpoint=checkpoint, handler=handler, acknowledge=given
            )
    assert not pipeline.checkpoint.exists()
    with pytest.raises(InvalidInputError, match=r"does not hold the offsets of batch 0.*this process can read"):
        pipeline.batches(handler, None).run(pipeline.spark.range(1), 0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"handler": None}, r"the handler is a function of a batch .*, not None \(pass handler=lambda batch, txn"),
        ({"handler": lambda batch: None}, r"the handler cannot be called with .*: too many .* \(pass handler=la"),
        ({"trigger": "10 seconds"}, r"trigger is a dict .*, not '10 seconds' \(pass a dict like \{\"processingTime\""),
        ({"trigger": {"processingtime": "1 second"}}, r"no trigger 'processingtime' \(did you mean 'processingTime'"),
        ({"trigger": {"processingTime": 5}}, r"refuses the trigger \{'processingTime': 5\}.*pass a dict like"),
        ({"trigger": {"processingTime": "soon"}}, r"refuses the trigger \{'processingTime': 'soon'\}"),
        ({"trigger": {"processingTime": "soon" * 1000}}, r"^.{300,600}$"),
        ({"trigger": {}}, r"refuses the trigger \{\}"),
        ({"trigger": {"once": True, "availableNow": True}}, r"refuses the trigger"),
        ({"checkpoint": None}, r"checkpoint is the location of the query's checkpoint, a path or .* not NoneType"),
        ({"path": 5}, r"path is a path or a URL as text, not int"),
        ({"query_name": 7}, r"query_name is text, not 7"),
        ({"txn_app_id": "a\nb"}, r"the txnAppId .* holds control characters"),
        ({"storage_options": "key"}, r"storage_options is a dict, not str"),
    ],
)
def test_arguments_are_looked_at_before_anything_is_started(
    pipeline: Pipeline, options: dict[str, Any], problem: str
) -> None:
    given = {"path": pipeline.path, "handler": pipeline.handle, "checkpoint": str(pipeline.checkpoint), **options}
    with pytest.raises(InvalidInputError, match=problem):
        spark_ext.write_stream(pipeline.source(), **given)
    assert not pipeline.spark.streams.active
    assert not pipeline.checkpoint.exists()


def test_the_name_of_a_running_query_is_refused(pipeline: Pipeline) -> None:
    given: dict[str, Any] = {"path": pipeline.path, "handler": pipeline.handle, "query_name": "splitter"}
    running = spark_ext.write_stream(pipeline.source(), checkpoint=str(pipeline.checkpoint), **given)
    with pytest.raises(InvalidInputError, match="a query with the name 'splitter' is running"):
        spark_ext.write_stream(pipeline.source(), checkpoint=f"{pipeline.checkpoint}-2", **given)
    running.stop()


def test_a_plan_that_shows_no_source_leaves_the_look_at_its_subscriptions_to_the_first_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a version of Spark that has another name for a source in a plan."""
    monkeypatch.setattr("spark_ext.streaming.write_stream._SOURCE", "StreamingRelationV3")
    pipeline.produce(0)
    pipeline.run(acknowledge="billing")
    assert pipeline.ns.snapshot().read("orders").num_rows


def test_a_subscription_that_no_source_reads_under_is_reported_before_a_query_starts(pipeline: Pipeline) -> None:
    """A source makes the subscription that it reads under, so that a misspelt one would be left behind."""
    pipeline.produce(0)
    before = pipeline.ns.snapshot().version
    unnamed = pipeline.spark.readStream.format("txnlog").load(f"{pipeline.path}/orders")
    misspelt = pipeline.source(subscription="bilingz").union(unnamed).where("id > 0")
    with pytest.raises(InvalidInputError, match=r"with the subscription 'billing' \(it reads with 'bilingz': give"):
        spark_ext.write_stream(
            misspelt,
            pipeline.path,
            checkpoint=str(pipeline.checkpoint),
            handler=pipeline.handle,
            acknowledge="billing",
        )
    assert pipeline.calls == []
    assert not pipeline.checkpoint.exists()
    assert pipeline.ns.snapshot().version == before
    with pytest.raises(InvalidInputError, match="with the subscription 'bills'"):
        pipeline.run(acknowledge="bills")
