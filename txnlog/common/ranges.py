"""Sets of offsets as sorted, disjoint, non-adjacent half-open ranges: ``((start, end), ...)``.

Immutable tuples: a state that holds them can be shared between threads without copies, and equal sets are equal values.
"""

from __future__ import annotations

from bisect import bisect_right
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
    return normalize(left + right)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    """All offsets of both. One range against many costs a search, and not a walk through all of them."""
    if not left or not right:
        return EMPTY
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
    """The offsets of ``left`` that ``right`` lacks. One range less many costs a search, as with ``intersect``."""
    if not left or not right:
        return left
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
