"""The lines of the logger ``txnlog.spark.lag``: a line for each batch and topic, and warnings."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any, Final

from spark_ext.streaming.lag import TopicLag

_logger: Final = logging.getLogger("txnlog.spark.lag")

_Key = tuple[str, int, str, str]

WARN_AFTER: Final = 5
"""After so many batches that each ended further behind a warning comes: fewer are an hour in which more is produced."""

_MOST: Final = 10_000
"""The most topics of queries that are remembered: a session may go on for years, with queries of ever new names."""


class LagLines:
    """Writes a line for each batch of a query and topic, and remembers how the lag changed from batch to batch.

    A warning comes when so many batches in a row ended with more messages behind than the one before, and again after
    as many more. One that ended with fewer, or as many, ends the row. A query that is started again goes on with it:
    one that runs every five minutes may fall behind, too.
    """

    def __init__(self, warn_after: int) -> None:
        self._warn_after = warn_after
        self._last: dict[_Key, int] = {}
        self._grown: dict[_Key, int] = {}

    def note(self, lags: Iterable[TopicLag], batch: int) -> None:
        """Write the lines of a batch that has ended."""
        for lag in lags:
            values = {"query": lag.query, "source": lag.source, "batch": batch, "namespace": lag.namespace}
            values |= {"topic": lag.topic, "subscription": lag.subscription, **lag.metrics}
            _logger.info("%s", json.dumps(values), extra={"lag": lag})
            self._compare(lag)

    def _compare(self, lag: TopicLag) -> None:
        key = lag.query, lag.source, lag.namespace, lag.topic
        if len(self._last) >= _MOST and key not in self._last:
            self._last.clear()
            self._grown.clear()
        before = self._last.get(key)
        self._last[key] = lag.behind_messages
        if before is None or lag.behind_messages <= before:
            self._grown[key] = 0
            return
        self._grown[key] = grown = self._grown[key] + 1
        if grown % self._warn_after == 0:
            _logger.warning(
                "%r falls behind in the topic %r: each of its last %d batches ended with more messages to be read than "
                "the one before, now %d, the oldest for %.1f s; give it larger batches or more executors, or its "
                "handler less work",
                lag.query,
                lag.topic,
                grown,
                lag.behind_messages,
                (lag.behind_ms or 0) / 1000,
            )


def note_dropped(query: str, batch: int, operators: Iterable[Any]) -> None:
    """Write a warning where operators with state left rows of a batch out as too late: Spark itself says nothing."""
    dropped = sum(operator.numRowsDroppedByWatermark or 0 for operator in operators)
    if dropped:
        _logger.warning(
            "%r left out rows in batch %d, since they came later than its watermark allows: %d, where rows that a task "
            "has added up count as one; give withWatermark a longer time, and start with another subscription, "
            "checkpoint and target to have them in the result",
            query,
            batch,
            dropped,
        )


__all__ = ["WARN_AFTER", "LagLines", "note_dropped"]
