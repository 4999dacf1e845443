"""What is read or copied at once: portions of files that fit into memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def waves(items: Iterable[T], size_of: Callable[[T], int], most_items: int, most_bytes: int) -> Iterator[list[T]]:
    """Items in their order, in portions with at most so many of them and so many bytes; a bigger one is alone."""
    wave: list[T] = []
    size = 0
    for item in items:
        more = size_of(item)
        if wave and (len(wave) >= most_items or size + more > most_bytes):
            yield wave
            wave, size = [], 0
        wave.append(item)
        size += more
    if wave:
        yield wave


__all__ = ["waves"]
