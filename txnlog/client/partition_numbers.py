"""The numbers of partitions that callers name. Pure."""

from __future__ import annotations

from typing import Any

from txnlog.common.validation import whole_number
from txnlog.errors import Durable, OffsetOutOfRange


def check_partition(topic: str, partition: Any, partitions: int) -> int:
    """The number of a partition that a caller named. Raises OffsetOutOfRange where the topic has no such one."""
    number = whole_number("partition", partition, 0)
    if number >= partitions:
        raise OffsetOutOfRange(
            f"the topic {topic!r} has no partition {number}",
            advice=f"use 0 to {partitions - 1}",
            durable=Durable.NOTHING,
        )
    return number


__all__ = ["check_partition"]
