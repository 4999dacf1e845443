"""The rules between entries, each with a log made by hand that breaks it; a log that keeps them has no findings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from txnlog.format import actions as act
from txnlog.format.actions import Acknowledgement, AnyAction, Header, PartitionRanges, Share, SliceRows
from txnlog.format.codec import Entry
from txnlog.testing.check_entries import check

RESERVED = act.Reserve("w", 0, 1024)
LOADER = act.Producer("loader")


def log(*entries: list[AnyAction], **header: Any) -> list[Entry]:
    """A log whose entry 0 reserves the numbers 0 to 1023; ``header`` changes the header of the last entry."""
    found: list[Entry] = []
    every: list[list[AnyAction]] = [[RESERVED], *entries]
    for version, actions in enumerate(every):
        previous = found[-1].digest if found else ""
        found.append(Entry(Header(version, "w", 1_000 + version, previous), tuple(actions), f"digest {version}", 1))
    last = found[-1]
    found[-1] = Entry(msgspec.structs.replace(last.header, **header), last.actions, last.digest, 1)
    return found


def segment(number: int, txn: int | None = None, rows: int = 2, file: str = "") -> act.Segment:
    return act.Segment(number, 1, file or f"f{number}", rows, 10, "crc32:0", (SliceRows(0, rows),), txn)


def takes(epoch: int, start: int = 0) -> Acknowledgement:
    """Two messages of the subscription that entry 1 makes."""
    return Acknowledgement(1, epoch, (PartitionRanges(0, ((start, start + 2),)),))


def subscription(kind: Any = "exclusive") -> act.Subscription:
    return act.Subscription(1, "s", kind, (0,), 100)


GOOD = {
    "a transaction over three entries": log([act.Begin(1), segment(2, 1)], [segment(3, 1)], [act.Commit(1)]),
    "a shared segment": log(
        [segment(3), act.Commit(1, shares=(Share(3, 0, 1),)), act.Commit(2, shares=(Share(3, 0, 1),))]
    ),
    "an abort of what nobody saw": log([act.Abort(7)]),
    "a prepared one is not fenced": log(
        [LOADER], [act.Begin(1, None, "loader", 1), act.Prepare(1, "d")], [LOADER], [act.Commit(1)]
    ),
    "a newer epoch": log([LOADER], [LOADER], [act.Commit(1, producer="loader", epoch=2)]),
    "a commit of what it acknowledged": log(
        [subscription()], [act.Begin(1), act.Acknowledge(1, takes(1))], [act.Commit(1)]
    ),
    "another consumer of a Shared one": log(
        [subscription("shared")], [act.Consumer(1, "b")], [act.Commit(1, acknowledgements=(takes(1),))]
    ),
    "a vacuum": log([act.Abort(1)], [act.Vacuum(1)]),
}

BAD = {
    "does not continue": [
        log([], previous="another log"),
        log([], version=7),
    ],
    "time goes back": [log([], timestamp_ms=1)],
    "names the checkpoint": [
        log([], checkpoint=1),
        log([], checkpoint=-2),
    ],
    "a block begins": [log([act.Reserve("w", 512, 1024)])],
    "closes the block": [log([act.Close(0)], [act.Close(0)]), log([act.Close(1)])],
    "lies in no open block": [
        log([act.Commit(5_000)]),
        log([act.Close(0)], [act.Begin(1)]),
        log([act.Begin(1)], [act.Close(0)], [segment(2, 1)]),
    ],
    "was there before": [
        log([act.Begin(1), segment(2, 1)], [segment(2, 1)]),
        log([act.Begin(1), segment(2, 1, file="x"), segment(3, 1, file="x")]),
    ],
    "have more than its": [log([act.Begin(1), act.Segment(2, 1, "f", 1, 10, "c", (SliceRows(0, 2),), 1)])],
    "is added to the transaction": [
        log([segment(2, 1)]),
        log([act.Begin(1), act.Prepare(1, "d")], [segment(2, 1)]),
    ],
    "which is COMMITTED": [log([act.Commit(1)], [act.Commit(1)]), log([act.Commit(1)], [act.Abort(1)])],
    "which is ABORTED": [
        log([act.Abort(1)], [act.Commit(1)]),
        log([LOADER], [act.Begin(1, None, "loader", 1)], [LOADER], [act.Commit(1)]),
        log([subscription()], [act.Begin(1), act.Acknowledge(1, takes(1))], [act.Consumer(1, "b")], [act.Commit(1)]),
    ],
    "which is PREPARED": [log([act.Begin(1), act.Prepare(1, "d")], [act.Acknowledge(1, takes(1))])],
    "which is None": [log([act.Prepare(1, "d")])],
    "which is OPEN": [log([act.Begin(1)], [act.Begin(1)])],
    "ends by itself": [log([act.Begin(1), act.Prepare(1, "d")], [act.Abort(1, "timeout")])],
    "with epoch 1 of loader": [log([LOADER], [LOADER], [act.Commit(1, producer="loader", epoch=1)])],
    "acknowledges with epoch 1": [
        log([subscription()], [act.Consumer(1, "b")], [act.Commit(1, acknowledgements=(takes(1),))]),
        log([subscription("shared")], [act.Seek(1, ((0, 0),))], [act.Commit(1, acknowledgements=(takes(1),))]),
    ],
    "rows are nobody's": [
        log([segment(3), act.Commit(1, shares=(Share(3, 0, 1),))]),
        log([segment(3), act.Commit(1, shares=(Share(3, 0, 3),))]),
    ],
    "the oldest readable version": [
        log([act.Vacuum(1)]),
        log([], [], [act.Vacuum(2)], [act.Vacuum(1)]),
    ],
}


@pytest.mark.parametrize("entries", GOOD.values(), ids=GOOD)
def test_a_log_that_keeps_the_rules_has_no_findings(entries: list[Entry]):
    assert list(check(entries)) == []


@pytest.mark.parametrize(("text", "entries"), [(text, entries) for text, logs in BAD.items() for entries in logs])
def test_a_log_that_breaks_a_rule_is_found(text: str, entries: list[Entry]):
    assert any(text in found for found in check(entries))
