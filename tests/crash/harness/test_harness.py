"""The harness of runs with kills: journals become one history, and a run fails for what is wrong and for too little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.core.run import SEEN, SEEN_IN_MANY, local_plan, problems
from tests.crash.core.worker import open_work
from tests.crash.harness.journal import Journal, read, read_all
from tests.crash.harness.plan import Plan
from tests.crash.harness.supervisor import Unsettled
from txnlog.errors import Durable, StoreError
from txnlog.testing.facts import Facts, result_of
from txnlog.testing.operations import ProducerOpened


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    found = Plan(root=str(tmp_path / "lake"), folder=str(tmp_path), seed=0, seconds=0)
    found.journals.mkdir()
    return found


def journal(plan: Plan, name: str) -> Journal:
    return Journal(plan.journals / f"{name}.jsonl")


def produce(by: Journal, txn: str | None, value: int) -> int:
    if txn is not None:
        by.ok(by.invoke("w", "begin", txn=txn))
    given = {"topic": "orders", "partition": 0, "values": (value,), "sequence": None if txn else value}
    return by.invoke("w", "produce", txn=txn, **given)


def test_a_line_that_a_kill_cut_off_is_not_read(plan):
    found = journal(plan, "w0g0")
    found.note("night", minutes=62)
    found.ok(found.invoke("w0g0", "open_producer", name="worker-0"), epoch=3)
    found.invoke("w0g0", "commit", txn="a")
    path = plan.journals / "w0g0.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    (opened,), notes = read(path)
    assert result_of(opened, ProducerOpened).epoch == 3
    assert notes == [{"note": "night", "minutes": 62}]


def test_the_calls_of_all_processes_are_one_history_in_the_order_of_a_common_clock(plan):
    first, second = journal(plan, "w0g0"), journal(plan, "w1g0")
    slow = produce(first, "a", 1)
    quick = produce(second, "b", 2)
    second.ok(quick)
    first.failed(slow, StoreError("lost", durable=Durable.MAYBE))
    second.invoke("w", "commit", txn="b")
    first.invoke("w", "commit", txn="a")
    history, _ = read_all(plan.journals)
    assert [(op.number, op.kind, op.invoked, op.completed) for op in history.operations] == [
        (0, "begin", 1, 2),
        (1, "produce", 3, 8),
        (2, "begin", 4, 5),
        (3, "produce", 6, 7),
        (4, "commit", 9, None),
        (5, "commit", 10, None),
    ]
    assert [*Facts(history).transactions] == ["a", "b"]


def test_a_successor_asks_for_what_no_journal_answers(plan):
    first, second, other = (journal(plan, name) for name in ("w0g0", "w0g1", "w1g0"))
    for txn in ("committed", "prepared", "asked for", "open"):
        first.ok(produce(first, txn, len(txn)))
    first.ok(first.invoke("w", "commit", txn="committed"), version=3)
    first.ok(first.invoke("w", "prepare", txn="prepared"))
    first.failed(first.invoke("w", "commit", txn="asked for"), StoreError("lost", durable=Durable.MAYBE))
    second.ok(second.invoke("w", "outcome", txn="asked for"), state="ABORTED")
    produce(first, None, 7)
    second.ok(produce(second, None, 8), version=5)
    produce(other, "d", 20)

    def left(worker: int, generation: int, unsettled: set[int]) -> list[str]:
        return [unit.name for unit in open_work(plan, worker, generation, unsettled)]

    assert left(0, 2, {0, 1}) == ["open", "plain 7 in orders/0"]
    assert left(0, 2, {1}) == [], "what is settled is not read"
    assert left(1, 0, set()) == []
    produce(journal(plan, "w1g3"), "e", 21)
    assert left(1, 2, set()) == ["e"], "this one was stopped, and comes late"


def test_a_generation_is_settled_when_one_that_saw_it_dead_recovered():
    unsettled = Unsettled()
    assert unsettled.start(0, alone=True, recovered=-1) == frozenset()
    assert unsettled.start(1, alone=True, recovered=-1) == {0}
    assert unsettled.start(2, alone=True, recovered=-1) == {0, 1}, "1 was killed before it had recovered"
    assert unsettled.start(3, alone=True, recovered=2) == {2}
    assert unsettled.start(4, alone=False, recovered=3) == {3}, "3 was stopped"
    assert unsettled.start(5, alone=True, recovered=4) == {3, 4}, "a zombie may intend more after it was looked at"


def test_a_run_fails_for_too_little_of_anything(tmp_path):
    plan = local_plan(tmp_path, 7, 100, 0, 0)
    counts = {"kills": 120, "fenced": 3, "keepers killed": 4}
    figures = dict.fromkeys((*SEEN, *SEEN_IN_MANY), 1) | dict.fromkeys(plan.least_figures, 30)
    found: dict[str, Any] = {"findings": 0, "explained": [], "figures": figures}
    report: dict[str, Any] = {"counts": counts, "broken": [], "found": found}
    assert problems(plan, report) == []
    for name, text in {
        "dead letters": "no dead letters",
        "unknown": "unknown: 0, wanted were 10",
        "blocks closed": "blocks closed: 0, wanted were 1",
    }.items():
        bad = report | {"found": found | {"figures": figures | {name: 0}}}
        assert problems(plan, bad) == [f"seed 7: {text}"]
    assert problems(plan, report | {"counts": counts | {"kills": 99}}) == ["seed 7: kills: 99, wanted were 100"]
    assert problems(plan, report | {"broken": ["w0g0 broke"]}) == ["seed 7: w0g0 broke"]
    lost = found | {"findings": 1, "explained": ["a row is lost"]}
    assert problems(plan, report | {"found": lost}) == ["seed 7: a row is lost"]
    assert len(problems(plan, report | {"counts": counts | {"keepers killed": 0}})) == 1
    unread = report | {"broken": ["verifying ended"], "found": found | {"figures": {}}}
    assert problems(plan, unread) == ["seed 7: verifying ended"]
