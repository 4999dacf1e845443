"""The check of a namespace, from its log to the rows of its segments: one verdict for one version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from txnlog.common.names import nearest
from txnlog.engine.runtime import Runtime
from txnlog.errors import InvalidInputError
from txnlog.fold.overdue import overdue
from txnlog.format import keys
from txnlog.log.log_reader import Log
from txnlog.maintenance.fsck.checkpoints import Checkpoints
from txnlog.maintenance.fsck.entries import find_slots
from txnlog.maintenance.fsck.findings import PAGE, Findings, Progress
from txnlog.maintenance.fsck.origins import Origins
from txnlog.maintenance.fsck.replay import Replay, View
from txnlog.maintenance.fsck.segments import Segments
from txnlog.results import CheckLevel, FsckReport
from txnlog.sentences import Call, Words
from txnlog.store.base import Store

LEVELS: Final[tuple[CheckLevel, ...]] = get_args(CheckLevel)


@dataclass(frozen=True, slots=True)
class Examination:
    """A check with what it found about each object, for whoever repairs them.

    Attributes:
        report: what it found, for people.
        checkpoints: those of the log; ``unusable`` names those to be made again.
        segments: the files; ``damaged`` are those to be brought back.
    """

    report: FsckReport
    checkpoints: Checkpoints
    segments: Segments


def check(store: Store, runtime: Runtime, level: CheckLevel, *, progress: Progress | None) -> FsckReport:
    """Check the namespace whose folder a store shows. See ``Namespace.fsck``."""
    return examine(store, runtime, level, progress=progress).report


def examine(store: Store, runtime: Runtime, level: CheckLevel, *, progress: Progress | None) -> Examination:
    """``check`` for whoever repairs what it finds.

    It has a view of its own on the log: a handle that is open knows the log as it was, and would not be able to open a
    damaged one.
    """
    if level not in LEVELS:
        raise InvalidInputError(f"unknown level {ascii(level)[:60]}", advice=nearest(str(level), LEVELS))
    findings = Findings(progress)
    log = Log(store, runtime)
    slots = find_slots(log, runtime, findings)
    checkpoints = Checkpoints(log, runtime, findings, slots.version)
    replay = Replay(log, runtime, findings, checkpoints, slots)
    view = replay.quick() if level == "quick" else replay.full(Origins() if level == "deep" else None)
    checkpoints.report_foreign()
    segments = Segments(log, runtime, findings, view)
    segments.check(bytes_=level != "quick", rows=level == "deep")
    _check_transactions(view, runtime, findings)
    if view.is_complete:
        _check_lost_end(view, checkpoints, segments, findings)
    return Examination(findings.report(slots.version, level), checkpoints, segments)


def _check_transactions(view: View, runtime: Runtime, findings: Findings) -> None:
    """Warn of transactions whose deadline passed, and that nobody ended."""
    state = view.state
    findings.looked_at("transaction", len(state.transactions))
    now_ms = state.head.log_time_ms(runtime.now_ms())
    for late in overdue(state.draft(), now_ms):
        txn = str(state.txn_id(late.txn))
        findings.add(
            "warning",
            "transaction",
            txn,
            f"the transaction {txn} is open, and its deadline has passed: nobody has appended anything since",
            Words("whoever appends next ends it; or end it now: ", Call("abort", "txn_id")),
        )


def _check_lost_end(view: View, checkpoints: Checkpoints, segments: Segments, findings: Findings) -> None:
    """Warn of what shows that the log once had entries behind its newest one."""
    later = segments.later()
    end = view.state.head.version if later is None else later.head.version
    witness = ""
    if checkpoints.beyond is not None and checkpoints.beyond > end:
        witness = f"there is a checkpoint of version {checkpoints.beyond}"
    elif segments.beyond is not None:
        key, number = segments.beyond
        witness = f"{key} has the number {number}, which no entry gave to a writer"
    if witness:
        findings.add(
            "warning",
            "entry",
            keys.entry_key(end + 1),
            f"the log ends at version {end}, but {witness}",
            "if the folder was copied while others wrote to it, nothing is wrong; otherwise the newest entries are "
            f"lost: write nothing, and restore them from a copy; {PAGE} says more",
        )


__all__ = ["LEVELS", "Examination", "check", "examine"]
