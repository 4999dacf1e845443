"""What a damaged file affects, for every kind of file: the page says it, and nothing else is affected."""

from __future__ import annotations

import pytest

from tests.damage.lake import DELTA_LOGS, NAME, Target
from tests.damage.matrix import DAMAGE, NO, OLDER, OTHER, TRIED, WRONG, YES, Case
from tests.damage.run import PAGE, all_cases, page_with, table
from txnlog.format.keys import kind_of


@pytest.fixture(scope="module")
def found() -> list[Case]:
    return all_cases()


def test_the_page_has_the_table_that_the_command_prints(found: list[Case]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page_with(table(found)), "make damage ARGS=--write keeps the new one"


def test_every_kind_of_object_is_damaged_in_every_way(found: list[Case]) -> None:
    kinds = {kind_of(case.target.key) for case in found}
    assert kinds == {"entry", "checkpoint", "segment", "hint", "root", "delta"}
    assert len({case.target.key for case in found if "/checkpoints/parts/" in case.target.key}) >= 5, (
        "every kind of part"
    )
    assert {case.target.key.split("/")[0] for case in found} == {"_catalog", NAME}
    for whose, place in DELTA_LOGS.items():
        names = {case.target.key.removeprefix(f"{place}/") for case in found if case.target.key.startswith(place)}
        assert {name.partition(".")[2] for name in names} == {"json", "checkpoint.parquet", ""}, whose
    by_object: dict[Target, set[str]] = {}
    for case in found:
        by_object.setdefault(case.target, set()).add(case.damage)
        assert case.cells.keys() == TRIED.keys()
    assert all(damages == DAMAGE.keys() for damages in by_object.values())
    assert len(by_object) > 25


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
    """Of Delta tables, and of hints."""
    for case in found:
        if kind_of(case.target.key) in {"delta", "hint"} or "_delta/" in case.target.key:
            for tried in ("open", "read", "older", "ask", "write", "repeat", "checkpoint", "repair"):
                assert case.cells[tried] == YES, case
            assert case.cells["publish"] in {YES, "repairs"}, case
            assert NO not in case.cells["consume"].split(), case
