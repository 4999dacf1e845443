"""The footer of a Parquet file that nothing vouches for: what it claims, before anything is read by it. Pure.

Whoever writes to the store may claim any number of rows and bytes in few of them: that is looked at first (P-140).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txnlog.data.parquet_pages import MAGIC, TAIL_BYTES, DamagedError, Footer, footer_length, parse_footer

_TAIL_GUESS_BYTES: Final = 1 << 16
"""Read in one request: longer are only the footers of checkpoints of 100,000 files."""

_MOST_BYTES: Final = 4 << 20
"""Of a footer: that of a checkpoint of several million files. What it is parsed to takes many times as much."""


def read_footer(read: Callable[[int, int], bytes], size_bytes: int) -> Footer:
    """What the footer of a file says.

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
