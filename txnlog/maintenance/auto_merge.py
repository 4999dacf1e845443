"""What the clients that commit merge by themselves: the newest small segments of a topic, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txnlog.common.limits import AUTO_MERGE_BYTES
from txnlog.fold.state import SegmentRecord
from txnlog.maintenance.optimizer import Optimization

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def merge_small(connection: Connection, topic: int, small: Sequence[SegmentRecord], version: int) -> None:
    """Merge what is worth it of small segments that a topic had at a version. Nothing where others were ahead."""
    record = connection.topic_record_by_id(topic)
    Optimization(connection, record, AUTO_MERGE_BYTES, None, None).run_newest(small, version)


__all__ = ["merge_small"]
