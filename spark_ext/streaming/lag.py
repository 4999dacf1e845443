"""How far a streaming query, or a run of ``spark_ext.process``, is behind in each topic, by names known from Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txnlog.api.reader_lag import behind_positions
from txnlog.results.shown import Shown

if TYPE_CHECKING:
    from spark_ext.streaming.offsets import StreamOffset
    from txnlog.api.reader_lag import Behind
    from txnlog.client.connection import Connection

MESSAGES, VERSIONS, AGE = "messagesBehindLatest", "versionsBehindLatest", "msBehindLatest"
LEAST, MOST, AVERAGE = "minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest"
"""Spark's Kafka source has these three in its metrics of a query's progress."""


@dataclass(frozen=True)
class TopicLag(Shown):
    """How far a streaming query, or a run of ``spark_ext.process``, is behind in one topic.

    Attributes:
        query: the name of the query, or its id where it has none; of a run its ``query_name``, or its subscription.
        source: the number of the source in the query, from 0 on; 0 of a run.
        namespace: the namespace.
        topic: the topic.
        subscription: the subscription that the source or the run reads; None where it reads without one.
        behind_messages: committed messages that are there to be read, and that no finished batch has processed.
        behind_versions: versions of the namespace since the oldest of them became visible, its own included.
        behind_ms: the age of that message in milliseconds; None where nothing is to be read.
        min_offsets_behind_latest: how many offsets lie between the position and the end of the topic in the partition
            with the fewest of them.
        max_offsets_behind_latest: in the partition with the most of them.
        avg_offsets_behind_latest: on average over the partitions.
    """

    query: str
    source: int
    namespace: str
    topic: str
    subscription: str | None
    behind_messages: int
    behind_versions: int
    behind_ms: int | None
    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float

    @property
    def metrics(self) -> dict[str, Any]:
        """The numbers, by the names of Spark's Kafka source in a query's progress, and by names like these."""
        return {
            AVERAGE: self.avg_offsets_behind_latest,
            MOST: self.max_offsets_behind_latest,
            LEAST: self.min_offsets_behind_latest,
            MESSAGES: self.behind_messages,
            VERSIONS: self.behind_versions,
            AGE: self.behind_ms,
        }


def topic_lag(
    behind: Behind, *, query: str, namespace: str, topic: str, subscription: str | None, source: int = 0
) -> TopicLag:
    """What the log says of a topic, as a value."""
    offsets = behind.offsets or (0,)
    return TopicLag(
        query,
        source,
        namespace,
        topic,
        subscription,
        behind.messages,
        behind.versions,
        behind.ms,
        min(offsets),
        max(offsets),
        sum(offsets) / len(offsets),
    )


def lags_of(connection: Connection, end: StreamOffset, *, query: str = "", source: int = 0) -> list[TopicLag]:
    """By topic how far a source is behind that has read up to ``end``, in the state that the handle has read.

    Topics that were dropped are left out: the query is about to end.
    """
    positions = {number: end.offsets[topic] for topic, number in end.topic_ids.items()}
    found = behind_positions(connection, positions)
    names = {number: topic for topic, number in end.topic_ids.items()}
    return [
        topic_lag(
            behind,
            query=query,
            namespace=end.namespace,
            topic=names[number],
            subscription=end.subscription,
            source=source,
        )
        for number, behind in found.items()
    ]


def reported_lags(reported: Mapping[str, Any], end: StreamOffset, *, query: str, source: int) -> list[TopicLag]:
    """What a source said itself in ``latestOffset`` of a query's progress: as it was when the batch was planned."""
    behind = reported.get("behind")
    if not isinstance(behind, dict):
        return []
    return [
        TopicLag(
            query,
            source,
            end.namespace,
            topic,
            end.subscription,
            found[MESSAGES],
            found[VERSIONS],
            found[AGE],
            found[LEAST],
            found[MOST],
            found[AVERAGE],
        )
        for topic, found in behind.items()
    ]


__all__ = ["TopicLag", "lags_of", "reported_lags", "topic_lag"]
