"""Reading the footer of an untrusted Parquet file, before any page is read by it. Pure.

A small file can claim any number of rows and bytes; so the claims are checked first (P-140).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txnlog.data.parquet_pages import MAGIC, TAIL_BYTES, DamagedError, Footer, footer_length, parse_footer

_TAIL_GUESS_BYTES: Final = 1 << 16
"""Bytes at the end of a file read by the first request. Only checkpoints of some 100,000 files have longer footers."""

_MOST_BYTES: Final = 4 << 20
"""The longest accepted footer: one of a checkpoint of several million files. Parsed, it takes many times as much."""


def read_footer(read: Callable[[int, int], bytes], size_bytes: int) -> Footer:
    """Read and parse the footer of a file.

    Args:
        read: the bytes of the file from one position to before another, fewer where it ends.
        size_bytes: of the file.

    Raises:
        DamagedError: the file does not end in a footer, or that does not fit the file.
    """
    start = max(0, size_bytes - _TAIL_GUESS_BYTES)
    tail = read(start, size_bytes)
    length = footer_length(tail[-TAIL_BYTES:])
    footer_start = size_bytes - TAIL_BYTES - length
    if length > _MOST_BYTES or footer_start < len(MAGIC):
        raise DamagedError(f"it claims a footer of {length:,} bytes")
    if footer_start < start:
        tail = read(footer_start, start) + tail
        start = footer_start
    if len(tail) != size_bytes - start:
        raise DamagedError("it is shorter than it was")
    return parse_footer(tail[footer_start - start : -TAIL_BYTES], footer_start)


__all__ = ["read_footer"]
