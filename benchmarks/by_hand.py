"""Namespaces with very many segments in seconds: their log is written in the bytes of the codec, past any client.

All segments of a topic are names of a few files, since only their number matters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

import txnlog
from benchmarks.million_entries import NAMED, Entries, Stopped
from txnlog.data.segment_file import EncodedSegment, encode
from txnlog.format.actions import AnyAction, Begin, Commit, Reserve, Segment, SliceRows, Subscription, Topic
from txnlog.format.keys import segment_key
from txnlog.format.schema import StructType

SCHEMA: Final = pa.schema([("customer", pa.string()), ("amount", pa.float64())])
FILE: Final = f"{7:032x}.parquet"
ROWS: Final = 8
NAMES: Final = 30_000
"""That one file has: a file system allows 65,000 on ext4."""


def build(
    path: Path,
    topics: int,
    segments: int,
    *,
    per_entry: int = 500,
    step_ms: int = 0,
    with_files: bool = True,
    subscriptions: bool = False,
    properties: dict[str, str] | None = None,
) -> None:
    """A namespace of so many topics with so many segments in each, and a checkpoint of it.

    Args:
        path: its folder.
        topics: how many.
        segments: of each topic.
        per_entry: segments that one entry brings, in one transaction.
        step_ms: between two entries.
        with_files: whether the segments have files.
        subscriptions: whether each topic has one, that has acknowledged nothing.
        properties: of the topics.
    """
    entries = topics * -(-segments // per_entry)
    begin_ms = int(time.time() * 1_000) - (entries + 10) * step_ms - 60_000
    rows = pa.table([[f"customer-{number}" for number in range(ROWS)], [float(n) for n in range(ROWS)]], schema=SCHEMA)
    clock = Stopped(begin_ms)
    with txnlog.open(path, create=True, client_info=False, clock=clock) as ns:
        ns.create_topic("shape", SCHEMA)
        shape = ns._connection.topic_record("shape").schema
        log = Entries(path, begin_ms, ns._connection.follower, step_ms)
        ids = _topics(log, topics, shape, subscriptions=subscriptions, properties=properties or {})
        first = ns._connection.follower.state.head.next_number
        count = -(-(topics * (segments + -(-segments // per_entry))) // 1_024) * 1_024
        log.append([Reserve(NAMED, first, count)])
        made = _Made(path, encode(rows), with_files=with_files)
        for place, topic in enumerate(ids):
            for done in range(0, segments, per_entry):
                several = range(first + 1, first + 1 + min(per_entry, segments - done))
                made.add(folder_of(place), several)
                log.append(
                    [
                        Begin(first),
                        *(made.segment(number, topic, first) for number in several),
                        Commit(first, "8cad7b9738df99c4"),
                    ]
                )
                first = several.stop
        ns._connection.session.checkpointer.make()


def folder_of(place: int) -> str:
    """The name of a topic, and of its folder."""
    return f"topic-{place:04}"


def _topics(
    log: Entries, count: int, shape: StructType, *, subscriptions: bool, properties: dict[str, str]
) -> Sequence[int]:
    """Creates topics, each in an entry of its own, since that is its id."""
    ids: list[int] = []
    for place in range(count):
        ids.append(log.version)
        actions: list[AnyAction] = [Topic(folder_of(place), shape, 1, properties=properties)]
        log.append(actions)
        if subscriptions:
            log.append([Subscription(ids[-1], "audit", "exclusive", (0,), 60_000)])
    return ids


class _Made:
    """Files of segments, and their lines in the log."""

    def __init__(self, path: Path, encoded: EncodedSegment, *, with_files: bool) -> None:
        self._path = path
        self._encoded = encoded
        self._with_files = with_files
        self._linked = 0
        self._source = ""

    def add(self, folder: str, numbers: Sequence[int]) -> None:
        """Give segments their files."""
        for number in numbers if self._with_files else ():
            file = self._path / segment_key(folder, number, FILE)
            file.parent.mkdir(parents=True)
            if self._linked % NAMES == 0:
                file.write_bytes(self._encoded.data)
                self._source = str(file)
            else:
                os.link(self._source, file)
            self._linked += 1

    def segment(self, number: int, topic: int, txn: int) -> Segment:
        """A line of the log."""
        made = self._encoded
        slices = (SliceRows(0, made.rows),)
        return Segment(number, topic, FILE, made.rows, made.size_bytes, made.checksum, slices, txn, False)


__all__ = ["build", "folder_of"]
