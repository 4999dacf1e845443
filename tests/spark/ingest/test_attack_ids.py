"""A cluster that gives no topic ids for a moment. The test fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.ingest.recorded_kafka import RecordedCluster
from tests.spark.ingest.story import RUNNING, Story, story
from tests.spark.ingest.test_ingest_advice import offsets_of

__all__ = ["story"]  # a fixture


def test_a_broker_that_gives_no_ids_is_not_one_whose_topics_were_made_again(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older broker of the cluster answers, as while it is upgraded or rolled back; the advice is followed."""
    story.produce(0, 1, 2)
    query = story.start(name="n", trigger=RUNNING)
    query.processAllAvailable()

    def without_ids(_: RecordedCluster, _names: Sequence[str]) -> dict[str, str]:
        return {}

    options: dict[str, str] = {}
    with monkeypatch.context() as patch:
        patch.setattr(RecordedCluster, "ids", without_ids)
        story.produce(0, 3)
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            options = offsets_of(error)
            print(options)
    query.stop()
    story.ingest(name="n-2" if options else "n", options=options)
    assert story.ids() == [1, 2, 3]
