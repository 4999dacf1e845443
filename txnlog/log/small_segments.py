"""Which segments are small: it pays to merge them. Pure."""

from __future__ import annotations

from txnlog.fold.state import SegmentRecord


def small_bytes(target_size_bytes: int) -> int:
    """The largest size of a segment that is small for a target."""
    return target_size_bytes // 2


def is_small(record: SegmentRecord, target_size_bytes: int) -> bool:
    """Whether it pays to merge a segment into those of a size: two of its own size have room in one."""
    return record.size_bytes <= small_bytes(target_size_bytes)


__all__ = ["is_small", "small_bytes"]
