"""How far a run of ``spark_ext.process`` is behind, as the log says it: for its result, log lines, and a monitor."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from spark_ext.streaming.lag import TopicLag, topic_lag
from spark_ext.streaming.lag_lines import WARN_AFTER, LagLines
from txnlog.api.reader_lag import behind_cursors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_ext.processing.ownership import Ownership
    from txnlog.client.connection import Connection

_logger: Final = logging.getLogger("txnlog.spark.lag")


class RunLag:
    """The lag of one run, by the cursors of its subscription."""

    def __init__(self, connection: Connection, owned: Iterable[Ownership], name: str) -> None:
        self._connection = connection
        self._owned = tuple(owned)
        self._name = name
        self._lines = LagLines(WARN_AFTER)
        self._failed = False

    def now(self) -> list[TopicLag]:
        """What the log says now. From any thread. Raises what reading the log raises."""
        self._connection.follower.refresh()
        return self._of_state()

    def known(self) -> tuple[TopicLag, ...]:
        """What the state says that the run has read; empty, after a log line, where it cannot be read."""
        try:
            return tuple(self._of_state())
        except Exception as error:  # whatever it is: the batch is committed, and the run goes on
            level = logging.DEBUG if self._failed else logging.WARNING
            _logger.log(level, "how far %r is behind is unknown", self._name, exc_info=error)
            self._failed = True
            return ()

    def note(self, batch: int) -> None:
        """Write the lines of a batch that was committed."""
        self._lines.note(self.known(), batch)

    def _of_state(self) -> list[TopicLag]:
        found = behind_cursors(self._connection, [item.subscription for item in self._owned])
        return [
            topic_lag(
                found[item.subscription],
                query=self._name,
                namespace=self._connection.name,
                topic=item.topic,
                subscription=self._subscription(item),
            )
            for item in self._owned
            if item.subscription in found
        ]

    def _subscription(self, item: Ownership) -> str:
        return self._connection.subscription_record_by_id(item.subscription).name


__all__ = ["RunLag"]
