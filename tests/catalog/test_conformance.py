"""Foreign engines read of published topics what the log's own readers see, at every version, with txnlog absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from catalog import delta_actions, table_publisher
from tests.catalog.engines import FAST, Engines
from tests.catalog.stories import Step, Story, check_versions, steps
from tests.client.support import Place, unique_name

MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files a version and checkpoints often, so that short histories meet both."""
    monkeypatch.setattr(delta_actions, "MOST_FILES", 3)
    monkeypatch.setattr(table_publisher, "CHECKPOINT_VERSIONS", 4)


def shown(story: Story) -> dict[str, dict[int, int]]:
    """By folder what each Delta version shows, as the Delta log says."""
    found: dict[str, dict[int, int]] = {}
    for record in story.records():
        folder = Path(story.path(record)) / "_delta_log"
        for path in sorted(folder.glob("*.json")):
            says = json.loads(path.read_text().split("\n", 1)[0])["commitInfo"]["txnlog"]
            assert says["topic"] == record.id
            found.setdefault(record.folder, {})[int(path.stem)] = says["version"]
    return found


def check_chain(versions: dict[int, int]) -> None:
    assert list(versions) == list(range(len(versions))), "no gap"
    assert list(versions.values()) == sorted(versions.values()), "in order"


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


def check_changes(story: Story, engines: Engines, engine: str, versions: dict[str, dict[int, int]]) -> None:
    """Who follows the changes from the beginning is told of each row once, whatever was merged meanwhile."""
    for record in story.records():
        if record.folder in versions:
            wanted = story.wanted(record, max(versions[record.folder].values()))
            found = engines.read(engine, story.path(record), 0)
            extra = [name for name in found.column_names if name.startswith("_")]
            ids = found.column("id").to_pylist()
            assert set(found.column("_change_type").to_pylist()) <= {"insert"}
            assert sorted(ids) == sorted(wanted.column("id").to_pylist()), extra
