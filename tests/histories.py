"""Random histories of a namespace, and what their newest state says of the past.

The steps come from ``tests.unit.random_entries``; tests of visibility fold them and look at every version again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.memory_log import Log
from tests.unit.random_entries import append
from txnlog.data.scan_planner import ScanPlan, plan
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import RowsState, State
from txnlog.format.codec import decode_entry

NAMED: Final[dict[str, RowsState]] = {"pending": "OPEN", "visible": "COMMITTED", "aborted": "ABORTED"}
"""What a segment's record says while it is the newest one, in the words of a transaction's state."""

Steps = Sequence[Sequence[tuple[str, bytes]]]


def history(todo: Steps) -> Log:
    """A log with the topic ``orders`` of two partitions and these entries, as far as they are accepted."""
    log = Log()
    log.topic("orders", 2)
    for steps in todo:
        append(log, steps)
    return log


def states(log: Log) -> Iterator[tuple[int, State]]:
    """Every version and the state at it, folded from the beginning; the state goes on changing."""
    past = State()
    for version, data in enumerate(log.stored):
        apply_entry(past, decode_entry(data, version))
        yield version, past


def planned(log: Log, topic: int, version: int | None = None, **options: Any) -> ScanPlan:
    """A scan of a topic at a version, planned from the newest state as a client does."""
    record = log.state.topics[topic]
    starts = {partition: log.state.starts.get((topic, partition), 0) for partition in range(record.partitions)}
    return plan(
        [segment for segment in log.state.segments.values() if segment.topic == topic],
        log.state.removals,
        topic=record.name,
        folder=record.folder,
        schema=record.schema,
        coordinators=log.state.head.coordinators,
        version=log.version if version is None else version,
        starts=starts,
        **options,
    )
