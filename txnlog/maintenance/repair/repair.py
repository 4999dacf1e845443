"""Repairing a namespace: entries first, since they say what else there should be; then a check says what is left."""

from __future__ import annotations

from typing import Final

from txnlog.client.auto_publisher import AutoPublisher
from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError
from txnlog.log.follower import Follower
from txnlog.log.log_reader import Log
from txnlog.maintenance.fsck.check import check, examine
from txnlog.maintenance.fsck.findings import Progress
from txnlog.maintenance.repair.checkpoints import repair_checkpoints
from txnlog.maintenance.repair.entries import repair_entries, report_replaced
from txnlog.maintenance.repair.foreseen import ForeseenStore
from txnlog.maintenance.repair.hints import repair_hints
from txnlog.maintenance.repair.segments import repair_segments
from txnlog.maintenance.repair.work import Copy, Work
from txnlog.results import Repaired
from txnlog.store.base import Store

_SHOWN: Final = 8
"""Versions of a table that are named."""


def repair(store: Store, runtime: Runtime, copy: Copy | None, *, dry_run: bool, progress: Progress | None) -> Repaired:
    """Repair the namespace whose folder a store shows. See ``Namespace.repair``.

    It has a view of its own on the log, as a check has.
    """
    if copy is not None:
        copy.check_apart(store)
    if dry_run:
        store = ForeseenStore(store, None if copy is None else copy.store)
    work = Work(store, runtime, copy, progress, dry_run=dry_run)
    repair_entries(work)
    found = examine(store, runtime, "full", progress=progress)
    report = found.report
    repair_segments(work, found.segments)
    repair_checkpoints(work, found.checkpoints)
    if work.has_written:
        report = check(store, runtime, "full", progress=progress)
    report_replaced(work)
    repair_hints(work)
    repair_tables(work)
    return work.result(report)


def repair_tables(work: Work) -> None:
    """Have the Delta tables that are there written again where they are damaged, by whoever publishes them."""
    try:
        follower = Follower(Log(work.store, work.runtime), work.runtime)
    except TxnLogError:
        return  # what they should show is not known, and the check says why
    work.begin_writing()
    for folder, outcome in AutoPublisher(follower, work.store, work.runtime).repair_there().items():
        if isinstance(outcome, TxnLogError):
            work.fail("table", folder, outcome)
        elif outcome:
            which = ", ".join(map(str, outcome[:_SHOWN])) + (", ..." if len(outcome) > _SHOWN else "")
            work.note("table", folder, f"written again from the log: version {which}")


__all__ = ["repair"]
