"""Reads of the format without Spark: the readers are asked for what Spark asks them, in Spark's order."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_ext.read.format_batch_reader import TopicBatchReader
from spark_ext.read.scan import open_scan
from spark_ext.streaming.format_source import TopicStreamReader
from spark_ext.support.options import read_options
from tests.spark.support import path_of

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

Row = dict[str, Any]
Offset = dict[str, Any]
Options = dict[str, Any]


def batch_reader(ns: Namespace, topic: str = "", **options: Any) -> TopicBatchReader:
    """What plans a batch read, with all columns; metadata is included unless an option says otherwise."""
    given = {"path": path_of(ns, topic), "includeMetadata": "true", **{k: str(v) for k, v in options.items()}}
    parsed = read_options(given, streaming=False)
    return TopicBatchReader(parsed, open_scan(parsed).schema)


def batch(ns: Namespace, topic: str = "", **options: Any) -> list[Row]:
    """The rows of a batch read, each task with its own copy of the reader."""
    planned = batch_reader(ns, topic, **options)
    found: list[Row] = []
    for partition in planned.partitions():
        reader = pickle.loads(pickle.dumps(planned))
        for item in reader.read(pickle.loads(pickle.dumps(partition))):
            found += item.to_pylist()
    return found


class Run:
    """One run of a query: what Spark asks a source for, in Spark's order. ``log`` outlives it, as a checkpoint does."""

    def __init__(
        self, ns: Namespace, topic: str = "orders", log: list[Offset] | None = None, now: bool = False, **options: Any
    ) -> None:
        given = {"path": path_of(ns, topic), "includeMetadata": "true", **{k: str(v) for k, v in options.items()}}
        parsed = read_options(given, streaming=True)
        self.reader = TopicStreamReader(parsed, open_scan(parsed).schema)
        self.log = [] if log is None else log
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def rows(self, start: Offset, end: Offset) -> list[Row]:
        """What executors read, each with its own copy of the reader."""
        found: list[Row] = []
        for partition in self.reader.partitions(start, end):
            reader = pickle.loads(pickle.dumps(self.reader))
            for batch in reader.read(pickle.loads(pickle.dumps(partition))):
                found += batch.to_pylist()
        return found

    def batch(self) -> list[Row] | None:
        """The next batch, None while there is nothing new. An earlier one is acknowledged when it begins."""
        if not self.log:
            self.log.append(stored(self.reader.initialOffset()))
        start = self.log[-1]
        end = stored(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == start:
            return None
        self.log.append(end)
        rows = self.rows(start, end)
        if len(self.log) > 2:
            self.reader.commit(start)
        return rows

    def batches(self) -> list[list[Row]]:
        """All batches up to the end of what is there."""
        found = []
        while (rows := self.batch()) is not None:
            found.append(rows)
            assert len(found) < 100
        return found

    def all(self) -> list[Row]:
        return [row for rows in self.batches() for row in rows]


def ids_of(rows: Iterable[Row]) -> list[int]:
    """The ids of rows, sorted."""
    return sorted(row["id"] for row in rows)


def stored(offset: Offset) -> Offset:
    """An offset as it comes back from a checkpoint."""
    found: Offset = json.loads(json.dumps(offset))
    return found


__all__ = ["Offset", "Options", "Row", "Run", "batch", "batch_reader", "ids_of", "stored"]
