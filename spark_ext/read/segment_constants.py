"""Constants per segment as Spark columns: look-ups in literal arrays, by the segment's number.

Measured against joins: a look-up costs about as much as reading the constant as a stored column, a broadcast join a
fourth more. A literal array of many elements takes seconds to plan, unless it is made from one string and evaluated as
a constant by Spark. Segment numbers may be sparse (each task of a Spark job has its own), so they go through a
two-level perfect hash: two small look-ups and a remainder, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

if TYPE_CHECKING:
    from pyspark.sql import Column

T = TypeVar("T")

_DENSE: Final = 2
"""Numbers whose span is at most so many times their count are used as places directly."""

_FEW: Final = 128
_ONE_LEVEL: Final = 4_096
"""Up to so many numbers, and places for them, one remainder is tried before two levels: it saves two look-ups."""

_TRIES: Final = 16


@dataclass(frozen=True, slots=True)
class Places:
    """The places of segments' constants in the arrays: each segment number has a place of its own.

    Attributes:
        size: how many places there are.
        given: the places of the numbers, in the order of the numbers.
        first: subtracted from a number, which is its place then if ``offsets`` is empty.
        offsets, moduli: the two levels: ``offsets[n % S] + (n div S) % moduli[n % S]``, ``S`` their length.
    """

    size: int
    given: tuple[int, ...]
    first: int
    offsets: tuple[int, ...] = ()
    moduli: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Places:
        """Places for different numbers, at least one."""
        first = min(numbers)
        span = max(numbers) - first + 1
        if span <= _DENSE * len(numbers) + 1:
            return cls(span, tuple(number - first for number in numbers), first)
        relative = [number - first for number in numbers]
        if len(numbers) <= _FEW:
            for modulus in range(len(numbers), _ONE_LEVEL + 1):
                given = tuple(number % modulus for number in relative)
                if len(set(given)) == len(given):
                    return cls(modulus, given, first, (0,), (modulus,))
        candidates = (_perfect_hash(relative, len(numbers) + extra) for extra in range(_TRIES))
        size, offsets, moduli = min(candidates, key=lambda found: found[0])
        buckets = len(offsets)
        given = tuple(offsets[n % buckets] + (n // buckets) % moduli[n % buckets] for n in relative)
        return cls(size, given, first, tuple(offsets), tuple(moduli))

    def place(self, number: Column) -> Column:
        """The place of a segment's number, as int. Valid only for the numbers passed to ``of``."""
        relative = number - F.lit(self.first) if self.first else number
        if not self.offsets:
            return relative.cast("int")
        if len(self.offsets) == 1:
            return (relative % F.lit(self.moduli[0])).cast("int")
        buckets = F.lit(len(self.offsets))
        bucket = (relative % buckets).cast("int")
        # Integer division, without a detour over floating point.
        quotient = F.call_function("div", relative, buckets)
        return (_get(self.offsets, bucket) + quotient % _get(self.moduli, bucket)).cast("int")

    def arrange(self, values: Iterable[T], fill: T) -> list[T]:
        """An array with the values, in the order of the numbers, at their places, and ``fill`` at the others."""
        result = [fill] * self.size
        for place, value in zip(self.given, values, strict=True):
            result[place] = value
        return result


def _perfect_hash(numbers: Sequence[int], buckets: int) -> tuple[int, list[int], list[int]]:
    grouped: list[list[int]] = [[] for _ in range(buckets)]
    for number in numbers:
        grouped[number % buckets].append(number // buckets)
    offsets: list[int] = []
    moduli: list[int] = []
    size = 0
    for members in grouped:
        modulus = max(1, len(members))
        while len({member % modulus for member in members}) < len(members):
            modulus += 1
        offsets.append(size if members else 0)
        moduli.append(modulus)
        size += modulus if members else 0
    return size, offsets, moduli


def _get(values: Sequence[int], place: Column) -> Column:
    """An element of a literal array of 64-bit integers that is quick to plan."""
    return F.get(F.split(F.lit(",".join(map(str, values))), ",").cast("array<bigint>"), place)


def number(values: Sequence[int], place: Column) -> Column:
    """The 64-bit integer at a place; a plain literal where all are the same."""
    if len(set(values)) == 1:
        return F.lit(values[0]).cast("bigint")
    return _get(values, place)


def text(values: Sequence[str], place: Column) -> Column:
    """The text at a place. No text contains a comma."""
    if len(set(values)) == 1:
        return F.lit(values[0])
    return F.get(F.split(F.lit(",".join(values)), ","), place)


def blob(values: Sequence[bytes], place: Column) -> Column:
    """The bytes at a place; all are of one length."""
    if len(set(values)) == 1:
        return F.lit(bytearray(values[0]))
    length = len(values[0])
    return F.substring(F.lit(bytearray(b"".join(values))), place * F.lit(length) + F.lit(1), F.lit(length))


__all__ = ["Places", "blob", "number", "text"]
