"""Which messages of a topic are older than a time that its settings name."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from txnlog.client.positions import end_offsets
from txnlog.fold.state import TopicRecord

if TYPE_CHECKING:
    from txnlog.client.connection import Connection
    from txnlog.log.segment_summary import SegmentSummary


class Times:
    """When what came, at one version: the same for all topics that ask."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.now_ms = connection.log_now_ms()
        self.version = connection.follower.version
        self._known: dict[int, int | None] = {}

    @cached_property
    def summary(self) -> SegmentSummary:
        """The segments of all topics, with the commits that brought their rows: gone through once."""
        return self._connection.session.segment_summaries.now()

    def version_before(self, age_ms: int) -> int | None:
        """The newest version that is at least so old; None where the log is younger."""
        if age_ms not in self._known:
            log = self._connection.follower.log
            self._known[age_ms] = log.version_at(self.now_ms - age_ms, self.version)
        return self._known[age_ms]


def older_than(connection: Connection, topic: TopicRecord, age_ms: int | None, times: Times) -> dict[int, int]:
    """By partition the offset behind the messages that are at least so old."""
    version = None if age_ms is None else times.version_before(age_ms)
    if version is None or version < topic.id:
        return {}
    return end_offsets(connection.follower, topic, version)


__all__ = ["Times", "older_than"]
