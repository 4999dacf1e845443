"""Foreign engines read of published topics what the log's own readers see, at every version, with txnlog absent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings

import catalog as txn_catalog
from tests.catalog.engines import FAST, Engines, assert_same
from tests.catalog.engines_read import (
    CONDITIONS,
    FAST_WRITES,
    WIDENED,
    check_changes,
    check_edges,
    check_not_numbers,
    edges,
    not_numbers,
    refused,
    short_tables,  # noqa: F401 - a fixture
    shown,
    typed,
    widened,
)
from tests.catalog.stories import Step, Story, check_versions, steps
from tests.client.support import Place, unique_name

HISTORIES = int(os.environ.get("TXNLOG_HISTORIES", "12"))
"""``make engines-read`` asks for 200."""

MANY = settings(
    max_examples=HISTORIES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True
)


def check_chain(versions: dict[int, int]) -> None:
    assert list(versions) == list(range(len(versions))), "no gap"
    assert list(versions.values()) == sorted(versions.values()), "in order"


@pytest.mark.timeout(60 + 10 * HISTORIES)
@MANY
@given(steps)
@example([("produce", 0, 3), ("publish", 0, 0), ("drop", 0, 0), ("produce", 0, 1), ("publish", 1, 0)])
@example(
    [("produce", 0, 3), ("produce", 0, 2), ("compact", 0, 0), ("publish", 0, 0), ("widen", 0, 1), ("produce", 0, 1)]
)
def test_fast_engines_see_what_snapshots_see(
    tmp_path: Path, quick: None, fast_engines: Engines, todo: list[Step]
) -> None:
    place = Place("local", str(tmp_path / unique_name()))
    story = Story(place)
    try:
        story.run(todo)
        story.publish(0)
        story.publish(1)
        versions = shown(story)
        for found in versions.values():
            check_chain(found)
        for record in story.records():
            assert record.dropped or record.folder in versions
        assert check_versions(story, fast_engines, FAST, versions) >= 6
        check_changes(story, fast_engines, "deltalake_changes", versions)
    finally:
        story.close()
        place.close()


SKIPPING = (*FAST, "arrow_dataset")
"""Each passes over files in its own way."""

# --- every type, every filter -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", FAST)
def test_every_type_comes_back(place: Place, fast_engines: Engines, engine: str) -> None:
    ns, path = typed(place)
    assert_same(fast_engines.read(engine, path), ns.snapshot().read("types"))


@pytest.mark.parametrize("engine", SKIPPING)
def test_files_are_skipped_by_true_statistics_only(place: Place, fast_engines: Engines, engine: str) -> None:
    story = Story(place)
    for number in range(8):
        story.do_produce(number * 2, number)
    story.publish()
    (record,) = [item for item in story.records() if item.name == "orders"]
    wanted = story.wanted(record, story.ns.snapshot().version).to_pylist()
    tests: list[Any] = [
        lambda row: row["id"] > 3,
        lambda row: row["id"] == 7,
        lambda row: row["id"] < 0,
        lambda row: row["name"] == "n3",
        lambda row: row["name"] is not None and row["name"] > "n2",
        lambda row: row["name"] is None,
        lambda row: row["name"] is not None,
        lambda row: row["price"] >= 1.25,
        lambda row: 2 <= row["id"] < 9,
    ]
    for where, holds in zip(CONDITIONS, tests, strict=True):
        found = fast_engines.read(engine, story.path(record), where=where).column("id").to_pylist()
        assert sorted(found) == sorted(row["id"] for row in wanted if holds(row)), where


@pytest.mark.parametrize("engine", SKIPPING)
def test_rows_whose_bounds_are_hard_to_state_are_not_skipped(place: Place, fast_engines: Engines, engine: str) -> None:
    check_edges(edges(place), fast_engines, engine)


@pytest.mark.parametrize("engine", FAST)
def test_rows_that_are_no_number_are_not_skipped(place: Place, fast_engines: Engines, engine: str) -> None:
    check_not_numbers(not_numbers(place), fast_engines, engine)


# --- what others do to the log ----------------------------------------------------------------------------------------


def test_publication_goes_on_after_checkpoints_and_clean_up_of_others(place: Place, fast_engines: Engines) -> None:
    story = Story(place)
    for number in range(6):
        story.do_produce(0, number)
        story.publish(number)
        (record,) = [item for item in story.records() if item.name == "orders"]
        if number % 2:
            fast_engines.ask(call="checkpoint", path=story.path(record))
            story.do_reopen(number, 0)  # a publisher without memory begins at the foreign checkpoint
    versions = shown(story)
    check_chain(versions["orders"])
    assert len(versions["orders"]) == 6
    check_versions(story, fast_engines, FAST, versions)


@pytest.mark.parametrize("what", FAST_WRITES)
def test_deltalake_writes_nothing(place: Place, fast_engines: Engines, what: str) -> None:
    refused(place, fast_engines, what)


# --- schemas that change ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("kind", WIDENED)
def test_widened_columns_are_read_at_every_version(place: Place, fast_engines: Engines, engine: str, kind: str) -> None:
    ns, path = widened(place, kind)
    with txn_catalog.open(place.root) as cat:
        for item in cat.published("sales", "orders"):
            wanted = ns.snapshot(version=item.version).read("orders")
            assert_same(fast_engines.read(engine, path, item.delta_version), wanted)
    found = fast_engines.read(engine, path, where="x >= 1").column("id").to_pylist()
    assert sorted(found) == [1, 3]
    if kind.endswith("long"):  # what the older files cannot hold
        for where, wanted in {f"x < {2**40}": [1], f"x > {-(2**40) + 1}": [1, 3], f"x = {2**32 + 1}": []}.items():
            assert sorted(fast_engines.read(engine, path, where=where).column("id").to_pylist()) == wanted
