"""Which messages went with commits that truncate, as files and log have it, and who needed them then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txnlog.format.codec import Entry
from txnlog.testing.compactions import gone_with_entries, needing
from txnlog.testing.operation_parts import Truncated

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


def truncated_of(ns: Namespace, entries: Sequence[Entry]) -> tuple[Truncated, ...]:
    """What is not shown any more since an entry that made holes, where nobody compacts or erases.

    Messages that were deleted before are not among it.

    Args:
        ns: a handle that has read all of them; every file that there ever was has to be there.
        entries: of the log, from 0 on.
    """
    return tuple(
        Truncated(item.topic.folder, item.partition, offset, item.entry.header.version, needing(item, offset))
        for item in gone_with_entries(ns, entries)
        for offset, *_ in item.rows
        if offset >= item.state.start_of(item.topic.id, item.partition)
    )


__all__ = ["truncated_of"]
