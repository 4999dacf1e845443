"""The order of visible segments in which the offsets of every partition ascend. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from txnlog.errors import CorruptionError
from txnlog.fold.state import SegmentRecord


def in_offset_order(
    records: Iterable[SegmentRecord], rank: Callable[[SegmentRecord], int] | None = None
) -> list[SegmentRecord]:
    """Visible segments so that each partition's offsets ascend over all of them.

    A segment may hold several partitions, so no single key sorts them; each slice waits for the one before it in its
    partition.

    Args:
        records: the segments.
        rank: of those that could come next, the one with the lowest rank does; then the one with the lowest number.
            Without it one partition after the other is read, as far as that is possible.
    """
    by_partition: dict[int, list[tuple[int, SegmentRecord]]] = {}
    waiting: dict[int, int] = {}
    for record in records:
        waiting[record.number] = len(record.slices)
        for item in record.slices:
            assert item.offset is not None, "a visible segment has offsets"
            by_partition.setdefault(item.partition, []).append((item.offset, record))
    for queue in by_partition.values():
        queue.sort(key=lambda pair: -pair[0])
    # Each is here once for every slice whose turn it is: as a stack, or as a heap.
    first = [queue[-1][1] for queue in by_partition.values()]
    ready = [(0 if rank is None else rank(record), record.number, record) for record in first]
    if rank is not None:
        heapq.heapify(ready)
    result: list[SegmentRecord] = []
    while ready:
        _, number, record = ready.pop() if rank is None else heapq.heappop(ready)
        waiting[number] -= 1
        if waiting[number]:
            continue
        result.append(record)
        for item in record.slices:
            queue = by_partition[item.partition]
            queue.pop()
            if queue:
                behind = queue[-1][1]
                if rank is None:
                    ready.append((0, behind.number, behind))
                else:
                    heapq.heappush(ready, (rank(behind), behind.number, behind))
    if len(result) != len(waiting):
        raise CorruptionError("the segments of a topic cannot be put in the order of their offsets")
    return result


def in_log_order(records: Iterable[SegmentRecord]) -> list[SegmentRecord]:
    """The same, otherwise in the order in which they came.

    When the rows of a compacted one came its record does not say: it stands as early as it can.
    """
    return in_offset_order(records, lambda record: -1 if record.compacted else record.ended_version or 0)


__all__ = ["in_log_order", "in_offset_order"]
