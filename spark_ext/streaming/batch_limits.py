"""The end of a batch with a limit of rows: at a version, so that transactions stay whole, unless ``splitTransactions``.

Streams of the format and ``spark_ext.process`` use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_ext.read.scan import Scan
from txnlog.api.internals import connection_of

Ends = Mapping[int, int]
"""By partition the offset after the last row."""


class _Step(NamedTuple):
    """Rows of one partition that became visible at a version: ``rows`` up to the offset ``end``. In this order."""

    version: int
    topic: str
    partition: int
    end: int
    rows: int


def limited(
    scan: Scan, begin: Mapping[str, Ends], limit: int, newest: int | None, *, split: bool = False
) -> tuple[int, dict[str, dict[int, int]]]:
    """The last version up to which there are at most ``limit`` rows, but at least one version with rows; and its ends.

    With ``split`` a version that is larger than the limit by itself is split, with the same share of every partition in
    each part.
    """
    connection = connection_of(scan.namespace)
    steps: list[_Step] = []
    last = scan.snapshot.version if newest is None else newest
    for topic in scan.topics:
        record = connection.topic_record(topic, scan.snapshot.version)
        segments, _ = connection.follower.segments(record.id)
        for segment in segments:
            # A compacted segment repeats rows of others; its version is not the one at which they became visible.
            if segment.state != "visible" or segment.compacted or segment.ended_version is None:
                continue
            if segment.ended_version > last:
                continue
            for item in segment.slices:
                assert item.offset is not None, "a visible segment has offsets"
                end = item.offset + item.rows
                low = max(item.offset, begin[topic].get(item.partition, 0))
                if low < end:
                    steps.append(_Step(segment.ended_version, topic, item.partition, end, end - low))
    steps.sort()
    offsets = {topic: dict(ends) for topic, ends in begin.items()}
    version, total, position = scan.snapshot.version, 0, 0
    while position < len(steps):
        behind = position
        while behind < len(steps) and steps[behind].version == steps[position].version:
            behind += 1
        rows = sum(step.rows for step in steps[position:behind])
        if total and total + rows > limit:
            break
        if split and rows > limit:
            return steps[position].version, _part(offsets, steps[position:behind], rows, limit)
        for step in steps[position:behind]:
            offsets[step.topic][step.partition] = max(offsets[step.topic][step.partition], step.end)
        version, total, position = steps[position].version, total + rows, behind
    return version, offsets


def _part(offsets: dict[str, dict[int, int]], steps: list[_Step], rows: int, limit: int) -> dict[str, dict[int, int]]:
    """The ends of a batch of ``limit`` rows out of the ``rows`` of one version, where each partition has one range."""
    left: dict[tuple[str, int], int] = {}
    for step in steps:
        left[step.topic, step.partition] = left.get((step.topic, step.partition), 0) + step.rows
    room = limit
    for (topic, partition), count in left.items():
        # Rounded up, so that small partitions are finished as well; the remaining room limits the last ones.
        share = min(-(-limit * count // rows), room)
        first = min(step.end - step.rows for step in steps if (step.topic, step.partition) == (topic, partition))
        offsets[topic][partition] = first + share
        room -= share
    return offsets


__all__ = ["Ends", "limited"]
