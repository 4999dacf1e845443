"""The visible segments of a topic by partition and offset: finding a few takes no longer where there are many."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from txnlog.common.ranges import Ranges
from txnlog.fold.state import SegmentRecord


class SegmentIndex:
    """The visible segments of one topic, kept up to date by whoever applies its log."""

    def __init__(self, visible: Iterable[SegmentRecord] = ()) -> None:
        self._records: dict[int, SegmentRecord] = {}
        self._offsets: dict[int, list[int]] = {}
        self._numbers: dict[int, list[int]] = {}
        for record in sorted(visible, key=lambda item: item.slices[0].offset or 0):
            self.add(record)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, number: int) -> bool:
        return number in self._records

    def add(self, record: SegmentRecord) -> None:
        """A segment became visible."""
        if record.number in self._records:
            return
        self._records[record.number] = record
        for item in record.slices:
            assert item.offset is not None, "a visible segment has offsets"
            offsets = self._offsets.setdefault(item.partition, [])
            numbers = self._numbers.setdefault(item.partition, [])
            place = bisect_right(offsets, item.offset)
            offsets.insert(place, item.offset)
            numbers.insert(place, record.number)

    def remove(self, number: int) -> None:
        """A segment was replaced; one that is not there is fine."""
        record = self._records.pop(number, None)
        for item in record.slices if record is not None else ():
            assert item.offset is not None, "a visible segment has offsets"
            offsets, numbers = self._offsets[item.partition], self._numbers[item.partition]
            place = bisect_left(offsets, item.offset)
            while numbers[place] != number:
                place += 1
            del offsets[place], numbers[place]

    def overlapping(self, wanted: Mapping[int, Ranges], most: int | None = None) -> list[SegmentRecord]:
        """The segments that hold any of these offsets, each once; the first so many of them."""
        found: dict[int, SegmentRecord] = {}
        for partition, several in wanted.items():
            offsets, numbers = self._offsets.get(partition, []), self._numbers.get(partition, [])
            for start, end in several:
                for place in range(max(0, bisect_right(offsets, start) - 1), len(offsets)):
                    if offsets[place] >= end or len(found) == most:
                        break
                    found[numbers[place]] = self._records[numbers[place]]
        return list(found.values())


__all__ = ["SegmentIndex"]
