"""A run of an ingestion takes over from another one: not before Spark runs its query, and nothing comes twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_ext.ingest import ingest_kafka as module
from spark_ext.ingest import kafka_batches
from tests.spark.ingest.recorded_kafka import RecordedCluster
from tests.spark.ingest.story import RUNNING, Story, story
from txnlog.errors import InvalidInputError, OutcomeUnknown

__all__ = ["story"]  # a fixture

pytestmark = pytest.mark.some(one_in=3)


@pytest.mark.parametrize("place", ["before the bounds", "behind them", "before the epoch"])
def test_a_run_takes_over_from_one_that_commits_meanwhile(
    story: Story, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()

    def commit() -> None:
        monkeypatch.undo()
        story.take_place(monkeypatch)
        story.produce(0, 3)
        older.processAllAvailable()

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def both(*given: Any) -> Any:
            commit()
            return call(*given)

        return both

    def behind(call: Callable[..., Any]) -> Callable[..., Any]:
        def both(*given: Any) -> Any:
            result = call(*given)
            commit()
            return result

        return both

    if place == "before the bounds":
        monkeypatch.setattr(RecordedCluster, "bounds", before(RecordedCluster.bounds))
    elif place == "behind them":
        monkeypatch.setattr(RecordedCluster, "bounds", behind(RecordedCluster.bounds))
    else:
        monkeypatch.setattr(kafka_batches, "epoch_of", before(kafka_batches.epoch_of))
    story.ingest(checkpoint=story.folder / "new")
    assert story.ids() == [1, 2, 3]
    story.produce(0, 4)
    with pytest.raises(StreamingQueryException, match="ProducerFenced"):
        older.processAllAvailable()
    story.ingest(checkpoint=story.folder / "new")
    assert story.ids() == [1, 2, 3, 4]


def test_a_run_takes_over_also_where_it_has_nothing_to_ingest(story: Story) -> None:
    story.produce(0, 1)
    older = story.start(trigger=RUNNING)
    older.processAllAvailable()
    story.ingest(checkpoint=story.folder / "new")
    story.produce(0, 2)
    with pytest.raises(StreamingQueryException, match="ProducerFenced"):
        older.processAllAvailable()
    assert story.ids() == [1]


def test_a_query_that_cannot_take_over_is_stopped(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    story.produce(0, 1)

    def refuses(*_: object) -> int:
        raise OutcomeUnknown("the store does not answer")

    monkeypatch.setattr(kafka_batches, "epoch_of", refuses)
    with pytest.raises(OutcomeUnknown):
        story.start(trigger=RUNNING)
    assert not story.spark.streams.active
    assert story.ids() == []


# --- calls that are refused -------------------------------------------------------------------------------------------


def test_what_spark_refuses_at_the_start_ends_no_run_that_is_at_work(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.produce(0, 1, 2)
    older = story.start(trigger=RUNNING, query_name="orders")
    older.processAllAvailable()
    new = story.folder / "new"
    refused: list[dict[str, Any]] = [
        {"trigger": {"continuous": "1 second"}},
        {"trigger": {"realTime": "5 minutes"}},
        {"query_name": "orders"},
        {"options": {"maxOffsetsPerTrigger": "many"}},
        {"options": {"maxTriggerDelay": "soon"}},
    ]
    for given in refused:
        with pytest.raises(InvalidInputError):
            story.start(checkpoint=new, **given)
    with monkeypatch.context() as patch:  # whatever else Spark refuses there, such as a name that was taken meanwhile
        patch.setattr(module, "_check_query_name", lambda *_: None)
        with pytest.raises(InvalidInputError, match=r"Spark refuses to start the query: .*already active"):
            story.start(checkpoint=new, query_name="orders")
    story.produce(0, 3)
    older.processAllAvailable()
    assert story.ids() == [1, 2, 3]
