"""How many segments topics have, and since when a message is visible: of all topics at once, as quick with many. Pure.

What a checkpoint says is looked at in columns; what the state in memory says is that of the entries behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.limits import AUTO_MERGE_BYTES
from txnlog.fold.state import SegmentRecord
from txnlog.log.checkpoint_codec import Manifest
from txnlog.log.small_segments import small_bytes

Numbers = npt.NDArray[np.int64]
Place = tuple[int, int]
"""A topic's id, and a partition of it."""

_SMALL_BYTES: Final = small_bytes(AUTO_MERGE_BYTES)


@dataclass(slots=True)
class SegmentTotals:
    """The visible segments of one topic.

    Attributes:
        segments: how many.
        size_bytes: of their files.
        small: how many of them are so small that merging in the background merges them.
    """

    segments: int = 0
    size_bytes: int = 0
    small: int = 0

    def add(self, segments: int, size_bytes: int, small: int) -> None:
        """Add others, or subtract them."""
        self.segments += segments
        self.size_bytes += size_bytes
        self.small += small


class RecentSegments(NamedTuple):
    """What the entries behind a checkpoint say of segments, in one state; ``base`` is that checkpoint."""

    base: Manifest | None
    visible: tuple[SegmentRecord, ...]
    removed: frozenset[int]


class VisibleSince(NamedTuple):
    """The commit that made a message visible: its version, and its time in epoch milliseconds."""

    version: int
    timestamp_ms: int


class _Commits(NamedTuple):
    """Of one partition where the rows of each commit end, in order, and the time and version of that commit."""

    ends: Sequence[int] | Numbers
    times_ms: Sequence[int] | Numbers
    versions: Sequence[int] | Numbers

    def at(self, offset: int) -> VisibleSince | None:
        place = bisect_right(self.ends, offset)
        return VisibleSince(int(self.versions[place]), int(self.times_ms[place])) if place < len(self.ends) else None


def _column(table: pa.Table, name: str) -> Numbers:
    return table.column(name).to_numpy()


class CheckpointedSegments:
    """What a checkpoint says of visible segments, in columns."""

    def __init__(self, visible: Sequence[pa.Table], removals: Sequence[pa.Table]) -> None:
        self._segments = pa.concat_tables(visible) if visible else None
        removed = [_column(run, "number") for run in removals]
        self._removed: Numbers = np.concatenate(removed) if removed else np.empty(0, np.int64)

    @cached_property
    def _shown(self) -> tuple[Numbers, Numbers, Numbers]:
        """Number, topic and size of those that were not replaced, by number."""
        if self._segments is None:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        numbers, topics, sizes = (_column(self._segments, name) for name in ("number", "topic", "size_bytes"))
        kept = np.flatnonzero(~np.isin(numbers, self._removed))
        kept = kept[np.argsort(numbers[kept], kind="stable")]
        return numbers[kept], topics[kept], sizes[kept]

    @cached_property
    def totals(self) -> dict[int, tuple[int, int, int]]:
        """By topic the totals."""
        _, topics, sizes = self._shown
        names, places = np.unique(topics, return_inverse=True)
        counts = np.bincount(places, minlength=len(names))
        small = np.bincount(places[sizes <= _SMALL_BYTES], minlength=len(names))
        size_bytes = np.zeros(len(names), np.int64)
        np.add.at(size_bytes, places, sizes)
        rows = zip(names.tolist(), counts.tolist(), size_bytes.tolist(), small.tolist(), strict=True)
        return {topic: (count, size, few) for topic, count, size, few in rows}

    def subtract(self, removed: Iterable[int], totals: Mapping[int, SegmentTotals]) -> None:
        """Subtract those that were replaced since then; numbers of others are passed over."""
        numbers, topics, sizes = self._shown
        wanted = np.array(sorted(removed), np.int64)
        places = np.searchsorted(numbers, wanted)
        wanted, places = wanted[places < len(numbers)], places[places < len(numbers)]
        for place in places[numbers[places] == wanted].tolist():
            size = int(sizes[place])
            totals[int(topics[place])].add(-1, -size, -int(size <= _SMALL_BYTES))

    @cached_property
    def commits(self) -> dict[Place, _Commits]:
        """By partition the commits, without merges: what was merged says when, and a merged segment does not."""
        if self._segments is None:
            return {}
        written = self._segments.filter(pc.invert(self._segments.column("compacted")))
        slices = written.column("slices").combine_chunks()
        parents, rows = pc.list_parent_indices(slices).to_numpy(), pc.list_flatten(slices)
        topics, times_ms, versions = (
            _column(written, name)[parents] for name in ("topic", "timestamp_ms", "ended_version")
        )
        partitions, offsets, counts = (
            pc.struct_field(rows, name).to_numpy() for name in ("partition", "offset", "rows")
        )
        ends = offsets + counts
        order = np.lexsort((ends, partitions, topics))
        topics, partitions, ends, times_ms, versions = (
            values[order] for values in (topics, partitions, ends, times_ms, versions)
        )
        changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
        bounds = [0, *changes.tolist(), len(ends)]
        return {
            (int(topics[first]), int(partitions[first])): _Commits(
                ends[first:end], times_ms[first:end], versions[first:end]
            )
            for first, end in pairwise(bounds)
            if first < end
        }


class SegmentSummary:
    """The segments of all topics in one state."""

    def __init__(self, recent: RecentSegments, checkpointed: CheckpointedSegments) -> None:
        self._recent = recent
        self._checkpointed = checkpointed

    @cached_property
    def totals(self) -> Mapping[int, SegmentTotals]:
        """By topic its visible segments; also of topics that were dropped."""
        found: defaultdict[int, SegmentTotals] = defaultdict(SegmentTotals)
        for topic, (count, size_bytes, small) in self._checkpointed.totals.items():
            found[topic].add(count, size_bytes, small)
        for record in self._recent.visible:
            if record.number not in self._recent.removed:
                found[record.topic].add(1, record.size_bytes, int(record.size_bytes <= _SMALL_BYTES))
        self._checkpointed.subtract(self._recent.removed, found)
        return found

    @cached_property
    def _commits(self) -> dict[Place, _Commits]:
        ends: defaultdict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        for record in self._recent.visible:
            # What was merged says when: a merged segment has the time of the merge.
            if record.compacted or record.timestamp_ms is None:
                continue
            for item in record.slices:
                assert record.ended_version is not None, "a visible segment has the version that showed it"
                commit = record.end_of(item), record.timestamp_ms, record.ended_version
                ends[record.topic, item.partition].append(commit)
        return {
            place: _Commits(*([row[column] for row in sorted(rows)] for column in (0, 1, 2)))
            for place, rows in ends.items()
        }

    def visible_since(self, topic: int, partition: int, offset: int) -> VisibleSince | None:
        """The commit of the first message at an offset or behind it; None where there is none."""
        for commits in (self._checkpointed.commits, self._commits):
            known = commits.get((topic, partition))
            found = None if known is None else known.at(offset)
            if found is not None:
                return found
        return None

    def visible_since_ms(self, topic: int, partition: int, offset: int) -> int | None:
        """When the first message at an offset or behind it became visible; None where there is none."""
        found = self.visible_since(topic, partition, offset)
        return None if found is None else found.timestamp_ms


__all__ = ["CheckpointedSegments", "RecentSegments", "SegmentSummary", "SegmentTotals", "VisibleSince"]
