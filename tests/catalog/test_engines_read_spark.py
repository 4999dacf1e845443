"""Spark's Delta reader of published topics: batch, time travel, streams, changes, SQL; and what it must not write."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import catalog as txn_catalog
from tests.catalog.engines import Engines, assert_same
from tests.catalog.engines_read import (
    CONDITIONS,
    SPARK_WRITES,
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
from tests.catalog.stories import Step, Story, check_versions
from tests.client.support import Place
from tests.effort import every, tries

STORIES: list[list[Step]] = [
    [("produce", 0, 4), ("publish", 0, 0), ("together", 0, 5), ("publish", 1, 0), ("compact", 0, 1), ("publish", 0, 0)],
    [
        *[("produce", 0, number) for number in range(5)],
        ("compact", 0, 3),
        ("publish", 0, 0),
        ("widen", 0, 1),
        ("produce", 0, 2),
        ("abort", 0, 2),
        ("open", 0, 2),
        ("publish", 1, 0),
        ("checkpoint", 0, 0),
        ("open", 0, 1),
        ("compact", 0, 0),
        ("produce", 2, 3),
        ("publish", 0, 0),
    ],
    [
        ("commit", 0, 66),
        ("publish", 0, 0),
        ("drop", 0, 0),
        ("produce", 0, 3),
        ("reopen", 0, 0),
        ("publish", 1, 0),
        ("widen", 0, 3),
        ("widen", 1, 2),
        ("together", 1, 2),
        ("publish", 0, 0),
    ],
]


def some_of(versions: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    """Of each table the oldest and the newest version, and some of those between: other engines read them all."""
    first, step = every(3)
    return {
        folder: {
            number: found[number] for at, number in enumerate(found) if at in {0, len(found) - 1} or at % step == first
        }
        for folder, found in versions.items()
    }


@pytest.mark.parametrize("number", range(tries(len(STORIES), 1)))
def test_spark_sees_what_snapshots_see(place: Place, all_engines: Engines, number: int) -> None:
    first, _ = every(len(STORIES))
    story = Story(place)
    try:
        story.run(STORIES[(first + number) % len(STORIES)])
        story.publish()
        versions = shown(story)
        assert check_versions(story, all_engines, ["spark"], some_of(versions)) >= 4
        check_changes(story, all_engines, "spark_changes", versions)
        for record in story.records():
            if len(record.schemas) > 1:
                continue  # a stream ends where the schema changes, and says so
            wanted = story.wanted(record, max(versions[record.folder].values()))
            assert_same(all_engines.read("spark_stream", story.path(record), 0), wanted)
    finally:
        story.close()


def test_every_type_comes_back(place: Place, all_engines: Engines) -> None:
    ns, path = typed(place)
    assert_same(all_engines.read("spark", path), ns.snapshot().read("types"))


def test_files_are_skipped_by_true_statistics_only(place: Place, all_engines: Engines) -> None:
    story = Story(place)
    for number in range(8):
        story.do_produce(number * 2, number)
    story.publish()
    (record,) = [item for item in story.records() if item.name == "orders"]
    path = story.path(record)
    everything = all_engines.read("deltalake", path)
    some = 0
    for where in CONDITIONS:
        wanted = all_engines.read("deltalake", path, where=where)
        assert wanted.num_rows < everything.num_rows, "some rows are left out"
        assert_same(all_engines.read("spark", path, where=where), wanted)
        some += wanted.num_rows > 0
    assert some > len(CONDITIONS) // 2, "and some are not"
    found = all_engines.ask(call="sql", text=f"SELECT count(*), min(id), max(id), max(price) FROM delta.`{path}`")
    ids, prices = (everything.column(name).to_pylist() for name in ("id", "price"))
    assert found["rows"] == [[len(ids), min(ids), max(ids), max(prices)]]


def test_rows_whose_bounds_are_hard_to_state_are_not_skipped(place: Place, all_engines: Engines) -> None:
    check_edges(edges(place), all_engines, "spark", {"moment > '9999-12-31 23:59:59.9999'": [1]})


def test_rows_that_are_no_number_are_not_skipped(place: Place, all_engines: Engines) -> None:
    check_not_numbers(not_numbers(place), all_engines, "spark")


def test_sql_travels_in_time_and_reports_the_history(place: Place, all_engines: Engines) -> None:
    story = Story(place)
    counts = []
    for _ in range(3):
        story.do_produce(0, 2)
        story.publish()
        counts.append(story.ns.snapshot().read("orders").num_rows)
    (record,) = [item for item in story.records() if item.name == "orders"]
    path = story.path(record)
    with txn_catalog.open(place.root) as cat:
        versions = cat.published("sales", "orders")
    assert [item.delta_version for item in versions] == [2, 1, 0]
    for item in versions:
        text = f"SELECT count(*) FROM delta.`{path}` VERSION AS OF {item.delta_version}"
        assert all_engines.ask(call="sql", text=text)["rows"] == [[counts[item.delta_version]]]
        at = datetime.datetime.fromtimestamp(item.timestamp_ms / 1000, datetime.UTC).isoformat(" ", "milliseconds")[:23]
        text = f"SELECT count(*) FROM delta.`{path}` TIMESTAMP AS OF '{at}'"
        assert all_engines.ask(call="sql", text=text)["rows"] == [[counts[item.delta_version]]]
    history = all_engines.ask(call="sql", text=f"DESCRIBE HISTORY delta.`{path}`")["rows"]
    assert [row[0] for row in history] == [2, 1, 0]
    assert [row[5]["namespaceVersion"] for row in history] == [str(item.version) for item in versions]


@pytest.mark.some(1)
@pytest.mark.parametrize("what", SPARK_WRITES)
def test_spark_writes_nothing(place: Place, all_engines: Engines, what: str) -> None:
    refused(place, all_engines, what)


def test_a_stream_goes_on_over_merged_and_new_segments(place: Place, all_engines: Engines) -> None:
    story = Story(place)
    for number in range(4):
        story.do_produce(0, number)
    story.publish()
    story.do_compact(0, 0)
    story.publish()
    story.do_produce(0, 3)
    story.do_compact(0, 1)
    story.publish()
    (record,) = [item for item in story.records() if item.name == "orders"]
    wanted: Any = story.wanted(record, story.ns.snapshot().version)
    assert_same(all_engines.read("spark_stream", story.path(record), 0), wanted)


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", WIDENED)
def test_widened_columns_are_read_at_every_version(place: Place, all_engines: Engines, kind: str) -> None:
    ns, path = widened(place, kind)
    with txn_catalog.open(place.root) as cat:
        for item in cat.published("sales", "orders"):
            wanted = ns.snapshot(version=item.version).read("orders")
            assert_same(all_engines.read("spark", path, item.delta_version), wanted)
    assert sorted(all_engines.read("spark", path, where="x >= 1").column("id").to_pylist()) == [1, 3]
