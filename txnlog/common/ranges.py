"""Sets of offsets as sorted, disjoint, non-adjacent half-open ranges: ``((start, end), ...)``.

Immutable tuples: a state that holds them can be shared between threads without copies, and equal sets are equal values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise

Range = tuple[int, int]
Ranges = tuple[Range, ...]

EMPTY: Ranges = ()


def normalize(ranges: Iterable[Range]) -> Ranges:
    """Sort, drop empty ranges, join what overlaps or touches."""
    result: list[Range] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if result and start <= result[-1][1]:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return tuple(result)


def append(growing: list[Range], start: int, end: int) -> None:
    """Add a range that lies behind all others, joined with the last where they touch."""
    if growing and growing[-1][1] == start:
        growing[-1] = (growing[-1][0], end)
    else:
        growing.append((start, end))


def from_values(values: Iterable[int]) -> Ranges:
    """The set of single offsets as ranges."""
    return normalize((value, value + 1) for value in values)


def is_normal(ranges: Ranges) -> bool:
    """Whether the ranges are sorted, disjoint, non-adjacent and non-empty, as the log must show them."""
    return all(start < end for start, end in ranges) and all(a[1] < b[0] for a, b in pairwise(ranges))


def union(left: Ranges, right: Ranges) -> Ranges:
    """All offsets of either."""
    if not left or not right:
        return left or right
    if left[-1][1] < right[0][0]:
        return left + right
    if right[-1][1] < left[0][0]:
        return right + left
    return normalize(left + right)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """All offsets of both. One range against many costs a search, and not a walk through all of them."""
    if not left or not right:
        return EMPTY
    if len(right) == 1:
        return _between(left, *right[0])
    if len(left) == 1:
        return _between(right, *left[0])
    result: list[Range] = []
    i, j = _first_near(left, right[0][0]), _first_near(right, left[0][0])
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            result.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(result)


def subtract(left: Ranges, right: Ranges) -> Ranges:
    """The offsets of ``left`` that ``right`` lacks. Many ranges less one cost a search, as with ``intersect``."""
    if not left or not right:
        return left
    if len(right) == 1:
        return _without(left, *right[0])
    if len(left) == 1:
        return _gaps(right, *left[0])
    result: list[Range] = []
    j = _first_near(right, left[0][0])
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k, position = j, start
        while k < len(right) and right[k][0] < end:
            if position < right[k][0]:
                result.append((position, right[k][0]))
            position = max(position, right[k][1])
            k += 1
        if position < end:
            result.append((position, end))
    return tuple(result)


def _between(ranges: Ranges, start: int, end: int) -> Ranges:
    """The offsets of a set from one on, and below another."""
    first, behind = _overlapping(ranges, start, end)
    if first == behind:
        return EMPTY
    if ranges[first][0] >= start and ranges[behind - 1][1] <= end:
        return ranges[first:behind]
    found = list(ranges[first:behind])
    found[0] = (max(found[0][0], start), found[0][1])
    found[-1] = (found[-1][0], min(found[-1][1], end))
    return tuple(found)


def _without(ranges: Ranges, start: int, end: int) -> Ranges:
    """The offsets of a set below one, and from another on."""
    first, behind = _overlapping(ranges, start, end)
    if first == behind:
        return ranges
    cut: Ranges = ((ranges[first][0], start), (end, ranges[behind - 1][1]))
    return ranges[:first] + tuple(each for each in cut if each[0] < each[1]) + ranges[behind:]


def _gaps(ranges: Ranges, start: int, end: int) -> Ranges:
    """The offsets from one on, and below another, that a set lacks."""
    inside = _between(ranges, start, end)
    if not inside:
        return ((start, end),)
    result = [(before[1], behind[0]) for before, behind in pairwise(inside)]
    if start < inside[0][0]:
        result.insert(0, (start, inside[0][0]))
    if inside[-1][1] < end:
        result.append((inside[-1][1], end))
    return tuple(result)


def _overlapping(ranges: Ranges, start: int, end: int) -> tuple[int, int]:
    """The index of the first range that has any offset from one on and below another, and that behind the last one."""
    first = _first_near(ranges, start)
    first += ranges[first][1] <= start
    return first, max(first, bisect_left(ranges, (end,)))


def _first_near(ranges: Ranges, start: int) -> int:
    """The index of a range before which all ranges end before this offset."""
    return max(bisect_right(ranges, (start, start)) - 1, 0)


def below(ranges: Ranges, end: int) -> Ranges:
    """The offsets of the set below this one."""
    return intersect(ranges, ((0, end),)) if end else EMPTY


def overlaps(left: Ranges, right: Ranges) -> bool:
    """Whether any offset is in both."""
    if not left or not right or left[-1][1] <= right[0][0] or right[-1][1] <= left[0][0]:
        return False
    return bool(intersect(left, right))


def contains(ranges: Ranges, value: int) -> bool:
    """Whether one offset is in the set."""
    near = _first_near(ranges, value)
    return any(start <= value < end for start, end in ranges[near : near + 2])


def covers(ranges: Ranges, part: Ranges) -> bool:
    """Whether all offsets of a part are in the set."""
    if not ranges:
        return not part
    for start, end in part:
        near = _first_near(ranges, start)
        if not any(first <= start and end <= behind for first, behind in ranges[near : near + 2]):
            return False
    return True


def include(sets: dict[int, Ranges], more: Mapping[int, Ranges]) -> None:
    """Add offsets to the sets of several partitions."""
    for partition, found in more.items():
        sets[partition] = union(sets.get(partition, EMPTY), found)


def exclude(sets: dict[int, Ranges], less: Mapping[int, Ranges]) -> None:
    """Take offsets out of the sets of several partitions."""
    for partition, found in less.items():
        sets[partition] = subtract(sets.get(partition, EMPTY), found)


def size(ranges: Ranges) -> int:
    """How many offsets the set holds."""
    return sum(end - start for start, end in ranges)


__all__ = [
    "EMPTY",
    "Range",
    "Ranges",
    "append",
    "below",
    "contains",
    "covers",
    "exclude",
    "from_values",
    "include",
    "intersect",
    "is_normal",
    "normalize",
    "overlaps",
    "size",
    "subtract",
    "union",
]
