"""What a damaged file affects, for every kind of file: the page says it, and nothing else is affected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.damage.lake import DELTA_LOGS, NAME, Target
from tests.damage.matrix import DAMAGE, NO, OLDER, OTHER, TRIED, WRONG, YES, Case
from tests.damage.run import PAGE, cases_of, page_with, sections, table
from tests.effort import LONG, every
from txnlog.format.keys import kind_of

KINDS = {"entry", "checkpoint", "segment", "hint", "proposal", "root", "delta"}


@pytest.fixture(scope="module")
def objects() -> list[Target]:
    """All that there are."""
    return []


@pytest.fixture(scope="module")
def found(objects: list[Target]) -> list[Case]:
    """All cases of entries and segments, of which promises speak; of each other kind those of some objects."""

    def of_this_day(there: Sequence[Target]) -> list[Target]:
        objects.extend(there)
        kinds: dict[str, list[Target]] = defaultdict(list)
        for item in there:
            kinds[kind_of(item.key)].append(item)
        chosen: set[Target] = set()
        for kind, items in kinds.items():
            first, step = (0, 1) if kind in {"entry", "segment"} else every(min(4, len(items)))
            chosen.update(items[first::step])
        return [item for item in there if item in chosen]

    return cases_of(of_this_day)


def test_the_page_has_the_table_that_the_command_prints(found: list[Case]) -> None:
    there, made = PAGE.read_text(encoding="utf-8"), table(found)
    if LONG:
        assert there == page_with(made), "make damage ARGS=--write keeps the new one"
    on_the_page, kept = sections(there), sections(made)
    assert len(kept) > 12
    assert {name: on_the_page.get(name) for name in kept} == kept, "make damage ARGS=--write keeps the new table"


def test_every_kind_of_object_is_damaged_in_every_way(found: list[Case], objects: list[Target]) -> None:
    assert {kind_of(item.key) for item in objects} == {kind_of(case.target.key) for case in found} == KINDS
    assert len({item.key for item in objects if "/checkpoints/parts/" in item.key}) >= 5, "every kind of part"
    assert {item.key.split("/")[0] for item in objects} == {"_catalog", NAME}
    for whose, place in DELTA_LOGS.items():
        names = {item.key.removeprefix(f"{place}/") for item in objects if item.key.startswith(place)}
        assert {name.partition(".")[2] for name in names} == {"json", "checkpoint.parquet", ""}, whose
    assert len(objects) > 25
    by_object: dict[Target, set[str]] = {}
    for case in found:
        by_object.setdefault(case.target, set()).add(case.damage)
        assert case.cells.keys() == TRIED.keys()
    assert all(damages == DAMAGE.keys() for damages in by_object.values())
    assert not LONG or list(by_object) == objects


def test_nothing_else_than_what_was_there_is_given_without_a_word(found: list[Case]) -> None:
    assert [case for case in found if any(WRONG in word for word in case.cells.values())] == []
    shown = {case.target.name for case in found for word in case.cells.values() if word in {OLDER, OTHER}}
    assert all("segment" in name or "Delta table" in name for name in shown), "by readers of Delta alone"


def test_whatever_is_refused_is_said(found: list[Case]) -> None:
    for case in found:
        refused = [tried for tried, word in case.cells.items() if NO in word.split() and tried != "Delta"]
        foreign = case.cells["repair"] == NO and refused == ["repair"]  # deltalake's own error
        assert case.said or not refused or foreign, case


def test_only_an_entry_keeps_a_namespace_from_being_opened(found: list[Case]) -> None:
    closed = {case.target.name for case in found if case.cells["open"] != YES}
    entries = {case.target.name for case in found if case.target.entry}
    assert closed
    assert closed <= entries


def test_a_segment_stops_nothing_but_the_reads_of_its_own_rows(found: list[Case]) -> None:
    for case in found:
        if kind_of(case.target.key) != "segment":
            continue
        stopped = {tried for tried, word in case.cells.items() if word != YES}
        assert stopped <= {"Delta", "read", "older", "consume", "repair"}, case
        assert "`payments`: no" not in " ".join(case.cells.values())
        assert NO not in {case.cells[tried] for tried in ("read", "older", "consume")}, "only one topic stops"


def test_what_is_in_no_log_stops_no_client(found: list[Case]) -> None:
    """Of Delta tables, of hints and of proposals."""
    for case in found:
        if kind_of(case.target.key) in {"delta", "hint", "proposal"} or "_delta/" in case.target.key:
            for tried in ("open", "read", "older", "ask", "write", "repeat", "checkpoint", "repair"):
                assert case.cells[tried] == YES, case
            assert case.cells["publish"] in {YES, "repairs"}, case
            assert NO not in case.cells["consume"].split(), case
