"""The checks of a crash run find what they are for: a good history made bad, one anomaly at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.crash import checks
from tests.crash.evidence import Evidence, Letter, Row, Told
from tests.crash.journal import Journal, read
from tests.crash.plan import MAX_REDELIVERIES, Plan, decision
from tests.crash.run import SEEN, SEEN_IN_MANY, local_plan, problems
from tests.crash.supervisor import Unsettled
from tests.crash.worker import open_intents

TXN = "{:032x}".format
WANTED = next(number for number in range(100, 200) if decision(TXN(number)))
UNWANTED = next(number for number in range(100, 200) if not decision(TXN(number)))
"""Prepared transactions for and against which the outside system decides."""


def row(label: str, part: int, contents: str, offset: int, txn: int, version: int, **more: Any) -> Row:
    """A row of partition 0."""
    fields: dict[str, Any] = {"sequence": None, "source": None, "source_partition": None, "source_offset": None}
    return Row(
        label=label,
        part=part,
        contents=contents,
        partition=0,
        offset=offset,
        txn=TXN(txn),
        version=version,
        **(fields | more),
    )


def good() -> Evidence:
    """Two processes of one worker: a commit, one in doubt that is there, one in doubt that is not, an abort, two that
    were prepared; two subscriptions, one with a dead letter."""
    found = Evidence(version=30)

    def intend(label: str, txn: int, how: str = "commit", **contents: int) -> None:
        found.intents[label] = {
            "label": label,
            "item": label,
            "how": how,
            "contents": contents,
            "named": True,
            "txn": TXN(txn),
            "sequence": None,
            "process": label.partition("a")[0],
        }

    intend("w0g0a1", 1, orders=2, audit=1)
    offsets = [["orders", 0, 0, 2], ["audit", 0, 0, 1]]
    found.outcomes["w0g0a1"] = [{"answer": "committed", "version": 10, "offsets": offsets}]
    intend("w0g0a2", 2, derived=1)
    found.outcomes["w0g0a2"] = [{"answer": "unknown"}]
    found.asked["w0g0a2"] = [Told("COMMITTED", "COMMITTED", 12)] * 2
    intend("w0g0a3", 3, orders=1)
    found.asked["w0g0a3"] = [Told("UNKNOWN", "ABORTED", 21), Told("ABORTED", "ABORTED", 21)]
    intend("w0g1a1", 4, "abort", audit=1)
    found.outcomes["w0g1a1"] = [{"answer": "aborted"}]
    intend("w0g0a4", WANTED, "prepare", audit=1)
    found.outcomes["w0g0a4"] = [{"answer": "prepared"}]
    found.decided[TXN(WANTED)] = [("COMMITTED", 24)] * 2
    found.asked["w0g0a4"] = [Told("COMMITTED", "COMMITTED", 24)] * 2
    intend("w0g0a5", UNWANTED, "prepare", audit=1)
    found.outcomes["w0g0a5"] = [{"answer": "prepared"}]
    found.asked["w0g0a5"] = [Told("PREPARED", "ABORTED", 25), Told("ABORTED", "ABORTED", 25)]
    found.epochs = {"w0g0": ("worker-0", 5), "w0g1": ("worker-0", 20)}
    found.started["worker-0"] = [5, 20]
    whole = "audit:1,orders:2"
    found.rows = {
        "orders": [row("w0g0a1", part, whole, part, 1, 10, sequence=part) for part in (0, 1)],
        "audit": [row("w0g0a1", 0, whole, 0, 1, 10), row("w0g0a4", 0, "audit:1", 1, WANTED, 24)],
        "derived": [row("w0g0a2", 0, "derived:1", 0, 2, 12, source="s", source_partition=0, source_offset=0)],
    }
    found.older = {
        11: {"orders": [(0, 0, "w0g0a1", 0), (0, 1, "w0g0a1", 1)], "audit": [(0, 0, "w0g0a1", 0)], "derived": []}
    }
    found.cursors = {"s": {0: (((0, 2),), 0)}, "shared": {0: (((0, 2),), 0)}}
    found.drained = {"s": {0: [1]}, "shared": {0: [1]}}
    found.letters = [Letter("w0g0a1", 0, 0, 0, MAX_REDELIVERIES + 1)]
    found.outcomes_in_log = {
        TXN(1): ("COMMITTED", 10),
        TXN(2): ("COMMITTED", 12),
        TXN(3): ("ABORTED", 21),
        TXN(4): ("ABORTED", 22),
        TXN(WANTED): ("COMMITTED", 24),
        TXN(UNWANTED): ("ABORTED", 25),
    }
    return found


def test_a_good_history_has_no_findings():
    assert checks.check(good()) == []


Change = Callable[[Evidence], object]


def changed(topic: str, index: int, **changes: Any) -> Change:
    """A row is another one."""

    def change(found: Evidence) -> None:
        found.rows[topic][index] = replace(found.rows[topic][index], **changes)

    return change


def without(topic: str, *indexes: int) -> Change:
    """Rows are missing."""

    def change(found: Evidence) -> None:
        found.rows[topic] = [row for index, row in enumerate(found.rows[topic]) if index not in indexes]

    return change


def lost(found: Evidence) -> None:
    found.rows["orders"] = []
    found.rows["audit"] = []


def doubled(found: Evidence) -> None:
    found.rows["orders"].append(replace(found.rows["orders"][0], offset=2))


def done_again(found: Evidence) -> None:
    found.intents["w0g1a2"] = found.intents["w0g0a2"] | {"label": "w0g1a2", "txn": TXN(5), "process": "w0g1"}
    found.outcomes_in_log[TXN(5)] = ("COMMITTED", 23)
    found.rows["derived"].append(row("w0g1a2", 0, "derived:1", 1, 5, 23))
    found.outcomes["w0g1a2"] = [{"answer": "committed", "version": 23, "offsets": [["derived", 0, 1, 2]]}]


def late(found: Evidence) -> None:
    """The first process's transaction in doubt commits after its successor started."""
    changed("derived", 0, version=25)(found)
    found.outcomes_in_log[TXN(2)] = ("COMMITTED", 25)
    found.asked["w0g0a2"] = [Told("COMMITTED", "COMMITTED", 25)] * 2


def told(label: str, *answers: Told) -> Change:
    return lambda found: found.asked.update({label: list(answers)})


def cursor(acknowledged: tuple[tuple[int, int], ...], pending: int = 0) -> Change:
    return lambda found: found.cursors.update({"s": {0: (acknowledged, pending)}})


def derived(subscription: str, offset: int) -> Change:
    """One more row that says where it came from."""

    def change(found: Evidence) -> None:
        found.rows["derived"].append(
            replace(found.rows["derived"][0], offset=1, source=subscription, source_offset=offset)
        )

    return change


def drained(subscription: str, *offsets: int) -> Change:
    return lambda found: found.drained.update({subscription: {0: list(offsets)}})


def letter(**changes: Any) -> Change:
    """The dead letter is another one."""

    def change(found: Evidence) -> None:
        found.letters[0] = replace(found.letters[0], **changes)

    return change


def ended(label: str, number: int, state: str) -> Change:
    """What was prepared ended so, for everybody who asks."""

    def change(found: Evidence) -> None:
        found.rows["audit"] = [item for item in found.rows["audit"] if item.label != label]
        if state == "COMMITTED":
            found.rows["audit"].append(row(label, 0, "audit:1", len(found.rows["audit"]), number, 25))
        found.outcomes_in_log[TXN(number)] = (state, 25)
        found.asked[label] = [Told(state, state, 25)] * 2
        found.decided.pop(TXN(number), None)

    return change


def never_consumed(found: Evidence) -> None:
    found.cursors["s"] = {0: (((0, 1),), 0)}
    found.drained["s"] = {0: []}


BAD: dict[str, tuple[Change, str]] = {
    "acknowledged and lost": (lost, "acknowledged at version 10, and is not there"),
    "torn over topics": (without("audit", 0), "torn or doubled"),
    "torn in a topic": (without("orders", 1), "torn or doubled"),
    "doubled": (doubled, "torn or doubled"),
    "over two versions": (changed("audit", 0, version=11), "visible at several versions"),
    "of two transactions": (changed("audit", 0, txn=TXN(9)), "of the transactions"),
    "at another version than told": (
        lambda found: found.outcomes["w0g0a1"][0].update(version=9),
        "acknowledged was 9",
    ),
    "at other offsets than told": (
        lambda found: found.outcomes["w0g0a1"][0].update(offsets=[["audit", 0, 5, 6]]),
        "acknowledged was [('audit', 0, 5)]",
    ),
    "refused and visible": (
        lambda found: found.outcomes["w0g0a2"].append({"answer": "refused"}),
        "was refused, and is visible",
    ),
    "acknowledged and refused": (
        lambda found: found.outcomes["w0g0a1"].append({"answer": "refused"}),
        "was acknowledged, and refused as well",
    ),
    "never to be committed": (
        lambda found: found.intents["w0g0a2"].update(how="abort"),
        "was to abort, and is visible",
    ),
    "intended by nobody": (lambda found: found.intents.pop("w0g0a2"), "nobody intended it"),
    "not what the log says": (
        lambda found: found.outcomes_in_log.update({TXN(3): ("COMMITTED", 21)}),
        "not visible, and the log says",
    ),
    "told aborted and committed": (
        told("w0g0a2", Told("UNKNOWN", "ABORTED", 11), Told("COMMITTED", "COMMITTED", 12)),
        "asker 0 was told ABORTED",
    ),
    "seen aborted, told committed": (
        told("w0g0a2", Told("ABORTED", "COMMITTED", 12), Told("COMMITTED", "COMMITTED", 12)),
        "asker 0 saw ABORTED",
    ),
    "told two versions": (
        told("w0g0a2", Told("COMMITTED", "COMMITTED", 12), Told("COMMITTED", "COMMITTED", 13)),
        "told the versions [12, 13]",
    ),
    "asked once": (told("w0g0a3", Told("UNKNOWN", "ABORTED", 21)), "not asked for twice"),
    "done again": (done_again, "was done 2 times"),
    "a gap in offsets": (changed("orders", 1, offset=2), "not dense"),
    "offsets against the order of commits": (changed("orders", 0, version=11), "not in the order of commits"),
    "an older version shows more": (
        lambda found: found.older[11]["derived"].append((0, 0, "w0g0a2", 0)),
        "at version 11, derived has 1 rows, not 0",
    ),
    "an older version shows less": (lambda found: found.older[11]["orders"].pop(), "at version 11, orders has 1 rows"),
    "a gap in sequences": (changed("orders", 1, sequence=2), "sequence 2 where 1 follows"),
    "a sequence twice": (changed("orders", 1, sequence=0), "sequence 0 where 1 follows"),
    "consumed twice": (derived("s", 0), "0 was consumed 2 times: derived 2, dead 0, drained 0"),
    "consumed and not acknowledged": (cursor(()), "0 was consumed, and is not acknowledged"),
    "acknowledged and not consumed": (drained("s"), "nothing became of it: [1]"),
    "acknowledged, and not there": (cursor(((0, 3),)), "nothing became of it: [2]"),
    "never delivered": (never_consumed, "never delivered, not even at the end: [1]"),
    "delivered again though it was consumed": (
        drained("s", 0, 1),
        "0 was consumed 2 times: derived 1, dead 0, drained 1",
    ),
    "delivered twice at the end": (drained("s", 1, 1), "1 was consumed 2 times: derived 0, dead 0, drained 2"),
    "pending for ever": (cursor(((0, 2),), 3), "3 messages are pending"),
    "acknowledged ranges that touch": (cursor(((0, 1), (1, 2))), "are not normal"),
    "a cursor is gone": (lambda found: found.cursors.pop("s"), "s/0 has derived rows or dead letters, and no cursor"),
    "a dead letter that was derived from": (
        derived("shared", 0),
        "0 was consumed 2 times: derived 1, dead 1, drained 0",
    ),
    "a dead letter that is delivered again": (drained("shared", 0, 1), "derived 0, dead 1, drained 1"),
    "a dead letter twice": (lambda found: found.letters.append(found.letters[0]), "derived 0, dead 2, drained 0"),
    "a dead letter that stays on the subscription": (
        lambda found: found.cursors.update({"shared": {0: (((1, 2),), 0)}}),
        "shared/0: 0 was consumed, and is not acknowledged",
    ),
    "a dead letter of another message": (letter(part=1), "holds w0g0a1, part 1: there was ('w0g0a1', 0)"),
    "a dead letter of no message": (letter(offset=7), "there was None"),
    "a dead letter too soon": (letter(redeliveries=MAX_REDELIVERIES), f"redelivered {MAX_REDELIVERIES} times only"),
    "dead letters of nobody": (
        lambda found: found.cursors.pop("shared"),
        "shared/0 has derived rows or dead letters, and no cursor",
    ),
    "prepared and lost": (ended("w0g0a4", WANTED, "ABORTED"), "is not there though the outside system decided for it"),
    "committed against the decision": (
        ended("w0g0a5", UNWANTED, "COMMITTED"),
        "is visible, and the outside system decided against it",
    ),
    "another end than the decider was told": (
        lambda found: found.decided[TXN(UNWANTED)].append(("COMMITTED", 25)),
        "who brought the decision was told COMMITTED, the truth is ABORTED",
    ),
    "decided and never prepared": (
        lambda found: found.decided[TXN(1)].append(("COMMITTED", 10)),
        "was decided from outside, and never prepared",
    ),
    "prepared and asked for once": (told("w0g0a4", Told("COMMITTED", "COMMITTED", 24)), "not asked for twice"),
    "a file that a vacuum forgot": (
        lambda found: found.stray.append("orders/7"),
        "orders/7 is on the store, and nobody",
    ),
    "a zombie's commit": (late, "of epoch 5 is visible at 25, fenced since 20"),
    "a broken worker": (lambda found: found.broken.append("w0g0: it broke"), "it broke"),
    "a damaged log": (lambda found: found.damage.append("entry 7 is missing"), "entry 7 is missing"),
}


@pytest.mark.parametrize(("change", "text"), BAD.values(), ids=BAD.keys())
def test_a_bad_history_is_found_out(change: Change, text: str):
    found = good()
    change(found)
    assert any(text in finding for finding, _ in checks.check(found)), checks.check(found)


def test_a_line_that_a_kill_cut_off_is_not_read(tmp_path):
    path = tmp_path / "w0g0.jsonl"
    journal = Journal(path)
    journal.write("start", epoch=3)
    with path.open("ab") as file:
        file.write(b'{"kind": "inte')
    assert read(path) == [{"kind": "start", "epoch": 3}]


def test_a_successor_asks_for_what_no_journal_answers(tmp_path):
    plan = Plan(root="", folder=str(tmp_path), seed=0, seconds=0)
    plan.journals.mkdir()
    for name, lines in {
        "w0g0": [("intent", "a"), ("outcome", "a"), ("intent", "b"), ("intent", "c")],
        "w0g1": [("answer", "b")],
        "w1g0": [("intent", "d")],
    }.items():
        text = "".join(json.dumps({"kind": k, "label": label, "answer": "committed"}) + "\n" for k, label in lines)
        (plan.journals / f"{name}.jsonl").write_text(text)
    assert [line["label"] for line in open_intents(plan, 0, 2, {0, 1})] == ["c"]
    assert [line["label"] for line in open_intents(plan, 0, 2, {1})] == [], "what is settled is not read"
    assert [line["label"] for line in open_intents(plan, 1, 0, ())] == []
    text = json.dumps({"kind": "intent", "label": "e"}) + "\n"
    (plan.journals / "w1g3.jsonl").write_text(text)
    assert [line["label"] for line in open_intents(plan, 1, 2, ())] == ["e"], "this one was stopped, and comes late"


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
    assert problems(plan, unread)[0] == "seed 7: verifying ended"
