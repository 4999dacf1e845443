"""Which messages went with commits that truncate, as files and log have it, and who needed them then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format.codec import Entry
from txnlog.testing import audit
from txnlog.testing.compactions import gone_with, is_acknowledged
from txnlog.testing.operation_parts import Truncated

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace


def truncated_of(ns: Namespace, entries: Sequence[Entry]) -> Iterator[Truncated]:
    """What is not shown any more since an entry that made holes, where nobody compacts or erases.

    Args:
        ns: a handle that has read all of them; every file that there ever was has to be there.
        entries: of the log, from 0 on.
    """
    state = State()
    for entry in entries:
        if any(audit.makes_holes(action) for action in entry.actions):
            yield from _gone(ns, state, entry.header.version)
        apply_entry(state, entry)


def _gone(ns: Namespace, state: State, version: int) -> Iterator[Truncated]:
    """What goes with one entry, at the state in front of it; messages that were deleted before are not among it."""
    for (folder, partition), rows in gone_with(ns, version):
        topic = next(item.id for item in state.topics.values() if item.folder == folder)
        subscriptions = [item for item in state.subscriptions.values() if item.topic == topic]
        start = state.start_of(topic, partition)
        for offset in (row[0] for row in rows if row[0] >= start):
            needing = (s.name for s in subscriptions if not is_acknowledged(state.cursors[s.id, partition], offset))
            yield Truncated(folder, partition, offset, version, tuple(needing))


__all__ = ["truncated_of"]
