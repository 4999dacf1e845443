"""Random correct histories have no findings; one thing changed in them, and the checker says so."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.effort import tries
from tests.sim.model import Model
from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.checker import check
from txnlog.testing.history import History

SEEDS = range(tries(150, 60))
replace = msgspec.structs.replace


def with_operation(history: History, number: int, **changes: object) -> History:
    """The history with another operation at a number."""
    operations = list(history.operations)
    operations[number] = replace(operations[number], **changes)
    return History(tuple(operations))


def with_rows(history: History, op: Any, at: int, rows: tuple[parts.Row, ...]) -> History:
    """The history with other rows in one partition of a read."""
    shown = list(op.result.rows)
    shown[at] = shown[at]._replace(rows=rows)
    return with_operation(history, op.number, result=replace(op.result, rows=tuple(shown)))


def final(history: History) -> Any:
    return history.operations[-1]


def some_partition(history: History, draw: random.Random, op: Any) -> int | None:
    found = [at for at, item in enumerate(op.result.rows) if len(item.rows) >= 2]
    return draw.choice(found) if found else None


def densely(rows: list[parts.Row]) -> tuple[parts.Row, ...]:
    return tuple(row._replace(offset=offset) for offset, row in enumerate(rows))


Change = Callable[[History, random.Random], History | None]


def a_row_is_lost(history, draw):
    """Of what was acknowledged or read; the last row of a plain batch in doubt may be missing if it is all of it."""
    at = some_partition(history, draw, final(history))
    if at is None:
        return None
    rows = list(final(history).result.rows[at].rows)
    sure = {op.arguments.txn for op in history.operations if op.kind == "commit" and op.succeeded}
    found = [index for index, row in enumerate(rows) if row.txn in sure]
    if not found:
        return None
    del rows[draw.choice(found)]
    return with_rows(history, final(history), at, densely(rows))


def two_rows_are_swapped(history, draw):
    at = some_partition(history, draw, final(history))
    if at is None:
        return None
    rows = list(final(history).result.rows[at].rows)
    index = draw.randrange(len(rows) - 1)
    rows[index], rows[index + 1] = rows[index + 1], rows[index]
    return with_rows(history, final(history), at, densely(rows))


def a_row_is_there_twice(history, draw):
    at = some_partition(history, draw, final(history))
    if at is None:
        return None
    rows = list(final(history).result.rows[at].rows)
    return with_rows(history, final(history), at, densely([*rows, draw.choice(rows)]))


def an_aborted_transaction_is_visible(history, draw):
    aborted = {op.arguments.txn for op in history.operations if op.kind == "abort"}
    produced = [op for op in history.operations if op.kind == "produce" and op.arguments.txn in aborted]
    if not produced:
        return None
    item = draw.choice(produced).arguments
    rows = {(at.topic, at.partition): index for index, at in enumerate(final(history).result.rows)}
    index = rows[item.topic, item.partition]
    old = list(final(history).result.rows[index].rows)
    version = max((row.version for row in old), default=0) + 1
    new = [parts.Row(0, value, item.txn, version) for value in item.values]
    return with_rows(history, final(history), index, densely([*old, *new]))


def a_read_lacks_its_last_row(history, draw):
    reads = [op for op in history.operations if op.kind == "read" and any(item.rows for item in op.result.rows)]
    if not reads:
        return None
    op = draw.choice(reads)
    at = draw.choice([index for index, item in enumerate(op.result.rows) if item.rows])
    return with_rows(history, op, at, op.result.rows[at].rows[:-1])


def a_read_shows_another_value(history, draw):
    reads = [op for op in history.operations if op.kind == "read" and any(item.rows for item in op.result.rows)]
    if not reads:
        return None
    op = draw.choice(reads)
    at = draw.choice([index for index, item in enumerate(op.result.rows) if item.rows])
    rows = list(op.result.rows[at].rows)
    index = draw.randrange(len(rows))
    rows[index] = rows[index]._replace(value=10**9)
    return with_rows(history, op, at, tuple(rows))


def a_newest_read_is_old(history, draw):
    versions = [0]
    for op in history.operations:
        if op.kind == "read" and op.arguments.version is None and op.result.version > versions[0] and versions[0] > 0:
            rows = tuple(
                item._replace(rows=tuple(row for row in item.rows if row.version < versions[0]))
                for item in op.result.rows
            )
            return with_operation(history, op.number, result=of.Shown(versions[0] - 1, rows))
        if op.kind == "open_producer" or (op.kind == "produce" and op.succeeded and op.result.version):
            versions = [op.result.epoch if op.kind == "open_producer" else op.result.version]
    return None


def a_commit_says_another_version(history, draw):
    shown = {row.txn for item in final(history).result.rows for row in item.rows}
    found = [op for op in history.operations if op.kind == "commit" and op.succeeded and op.arguments.txn in shown]
    if not found:
        return None
    op = draw.choice(found)
    return with_operation(history, op.number, result=replace(op.result, version=op.result.version + 1000))


def a_visible_commit_was_reported_as_failed(history, draw):
    shown = {row.txn for item in final(history).result.rows for row in item.rows}
    found = [op for op in history.operations if op.kind == "commit" and op.arguments.txn in shown]
    once = [op for op in found if sum(other.arguments.txn == op.arguments.txn for other in found) == 1]
    if not once:
        return None
    failed = {"result": None, "error": "StoreError", "durable": "nothing", "completed": 10**6}
    return with_operation(history, draw.choice(once).number, **failed)


def an_outcome_changes(history, draw):
    found = [op for op in history.operations if op.kind == "outcome"]
    if not found:
        return None
    op = draw.choice(found)
    other = "ABORTED" if op.result.state == "COMMITTED" else "COMMITTED"
    return with_operation(history, op.number, result=replace(op.result, state=other))


def a_message_is_left_out_of_a_delivery(history, draw):
    found = [
        (op, index)
        for op in history.operations
        if op.kind == "receive"
        for index in range(len(op.result.messages) - 1)
        if op.result.messages[index].partition == op.result.messages[index + 1].partition
    ]
    seeks = [op for op in history.operations if op.kind == "seek"]
    if not found or seeks:
        return None
    op, index = draw.choice(found)
    messages = op.result.messages[:index] + op.result.messages[index + 1 :]
    return with_operation(history, op.number, result=of.Received(messages))


def a_cursor_is_behind(history, draw):
    taken = [op for op in history.operations if op.kind == "acknowledge" and op.arguments.txn is None]
    cursors = list(final(history).result.cursors)
    if not taken or any(op.kind == "seek" for op in history.operations):
        return None
    partition = taken[0].arguments.ranges[0].partition
    at = next(index for index, item in enumerate(cursors) if item.partition == partition)
    cursors[at] = cursors[at]._replace(cursor=0, acknowledged=())
    return with_operation(history, final(history).number, result=replace(final(history).result, cursors=tuple(cursors)))


def a_cursor_is_ahead(history, draw):
    cursors = list(final(history).result.cursors)
    at = draw.randrange(len(cursors))
    cursors[at] = cursors[at]._replace(cursor=10**6, acknowledged=())
    return with_operation(history, final(history).number, result=replace(final(history).result, cursors=tuple(cursors)))


CHANGES: list[tuple[Change, set[str]]] = [
    (a_row_is_lost, {"torn commit", "lost write"}),
    (
        two_rows_are_swapped,
        {"non-monotonic send", "offsets against versions", "inconsistent offsets", "torn commit", "G0"},
    ),
    (a_row_is_there_twice, {"duplicate"}),
    (an_aborted_transaction_is_visible, {"aborted read"}),
    (a_read_lacks_its_last_row, {"unseen", "intermediate read", "torn commit"}),
    (a_read_shows_another_value, {"inconsistent offsets"}),
    (a_newest_read_is_old, {"stale read"}),
    (a_commit_says_another_version, {"misplaced commit"}),
    (a_visible_commit_was_reported_as_failed, {"failed but visible"}),
    (an_outcome_changes, {"changed outcome", "two answers"}),
    (a_message_is_left_out_of_a_delivery, {"skipped poll"}),
    (a_cursor_is_behind, {"cursor moved back"}),
    (a_cursor_is_ahead, {"unseen", "torn commit", "failed but visible", "aborted read", "intermediate read"}),
]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_correct_histories_have_no_findings(first):
    for seed in range(first, first + 100):
        findings = check(Model(seed).run(100))
        assert findings == [], f"seed {seed}: {findings[0]}"


@pytest.mark.parametrize(("change", "anomalies"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_one_change_is_found(change, anomalies):
    changed = 0
    for seed in SEEDS:
        history = change(Model(seed).run(60), random.Random(seed))
        if history is not None:
            changed += 1
            findings = check(history)
            found = {str(finding.anomaly) for finding in findings}
            assert found & anomalies, f"seed {seed}: {[str(finding) for finding in findings]}"
    assert changed > len(SEEDS) // 5, "the histories give the change something to change"


def test_the_same_history_gives_the_same_findings():
    history = a_row_is_lost(Model(3).run(100), random.Random(3))
    assert check(history) == check(history) != []


def test_a_long_history_is_checked_without_recursion_and_in_time_that_grows_with_its_length():
    history = Model(5).run(6_000)
    assert any(len(item.rows) > 900 for item in final(history).result.rows)
    start = time.perf_counter()
    assert check(history) == []
    assert time.perf_counter() - start < 5, "about 0.2 s; quadratic checks would take much longer"
