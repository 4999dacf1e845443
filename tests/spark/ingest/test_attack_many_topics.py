"""An ingestion whose rows go to more topics than a task may write files. The test fails."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.ingest.story import SCHEMA, Story, story

__all__ = ["story"]  # a fixture

_TOPICS = 1_030


def test_a_message_for_each_of_many_topics(story: Story) -> None:
    """A topic for each customer; a partition of Kafka is a task, and no DataFrame is the user's to repartition."""
    for number in range(_TOPICS):
        story.ns.create_topic(f"customer-{number}", SCHEMA)
    story.produce(0, *range(_TOPICS))
    try:
        story.ingest(name="n", topic=None, topic_by="concat('customer-', cast(value AS string))")
    except StreamingQueryException as error:
        text = str(error).partition("Caused by")[0]
        print(text[text.index("txnlog.errors.") :][:400])
        assert "repartition the DataFrame" not in text
        pytest.fail(text[-400:])
    assert story.ns.snapshot().read("customer-7").num_rows == 1
