"""What is read or copied at once: portions of files that fit into memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_COPIED_FILES: Final = 256
"""Files of one wave: between two waves the caller is shown how far it has come."""

_COPIED_BYTES: Final = 256 << 20
"""A file is in memory as a whole while it is copied: this many bytes at once, or one file that is bigger."""


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


def copied_in_waves(files: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Files that are copied as they are, in portions that fit into memory."""
    return waves(files, size_of, _COPIED_FILES, _COPIED_BYTES)


__all__ = ["copied_in_waves", "waves"]
