"""``fsck`` finds whatever happens to one object that another object refers to, at the level that promises it.

Of each object of the lake: lost, cut short, with another bit, swapped with another of its kind, copied to another key,
or with what an earlier one of its kind holds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage.damages import ALL_DAMAGE, CHECKED, COVERED, NEWEST, checked, found_by_quick, names_it
from tests.damage.lake import NAME, Lake, Target, build
from tests.damage.matrix import DAMAGE
from tests.effort import every
from txnlog.format import keys
from txnlog.format.keys import kind_of


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return build(tmp_path_factory.mktemp("fsck") / "lake")


@pytest.fixture
def root(lake: Lake, tmp_path: Path) -> Iterator[Path]:
    """A copy of the lake, to be damaged. Its files are links: who changes one puts another in its place."""
    folder = tmp_path / "root"
    shutil.copytree(lake.folder, folder, copy_function=os.link)
    yield folder
    shutil.rmtree(folder)


def in_this_run(objects: tuple[Target, ...]) -> list[Target]:
    first, step = every(3)
    return [item for item in objects if kind_of(item.key) in CHECKED][first::step]


def test_an_undamaged_lake_is_clean_at_every_level(lake: Lake) -> None:
    reports = [checked(lake.folder, level) for level in ("quick", "full", "deep")]
    for report in reports:
        assert report.findings == (), report.level
        assert report.is_clean
        assert report.checked["slot"] == report.version + 1
        assert report.checked["segment"] > 20
    quick, full, deep = reports
    assert quick.checked["entry"] < full.checked["entry"] == full.version + 1
    assert deep.checked["row"] > 50


@pytest.mark.parametrize("damage", ALL_DAMAGE)
def test_whatever_happens_to_one_object_is_found_at_the_level_that_promises_it(
    lake: Lake, root: Path, tmp_path: Path, damage: str
) -> None:
    for target in in_this_run(lake.objects):
        folder = tmp_path / "one"
        shutil.copytree(root, folder, copy_function=os.link)
        ALL_DAMAGE[damage](folder / target.key, folder / target.partner)
        quick, full = checked(folder, "quick"), checked(folder, "full")
        if (target.name, damage) == (NEWEST, "a bit flipped"):
            assert not quick.is_clean, "it still is an entry, and what it says is not there"
        elif found_by_quick(target, damage):
            assert names_it(quick, target, damage), (target.name, quick.findings)
        elif target.name == NEWEST and damage == "deleted":
            assert full.is_clean, "nothing shows that there was more"
        if target.name != NEWEST or damage not in {"deleted", "a bit flipped"}:
            assert names_it(full, target, damage), (target.name, full.findings)
            copy_of_a_file = damage == "copied" and target.key.endswith(".parquet")
            assert full.is_clean == copy_of_a_file, (target.name, full.findings)
        assert all(item.advice and item.message for item in full.findings)
        shutil.rmtree(folder)


def test_an_entry_that_is_lost_or_damaged_is_the_one_that_is_named(lake: Lake, root: Path) -> None:
    (covered,) = (item for item in lake.objects if item.name == COVERED)
    DAMAGE["a bit flipped"](root / covered.key, root / covered.partner)
    damaged = [item.key for item in checked(root, "full").of("damage")]
    assert damaged == [covered.key.removeprefix(f"{NAME}/")], "and neither what comes before nor what comes after"


def test_any_bit_of_a_manifest_is_found_by_the_full_check(lake: Lake, root: Path) -> None:
    (target,) = (item for item in lake.objects if item.name == "the newest checkpoint's manifest")
    path = root / target.key
    data = path.read_bytes()
    first, step = every(211)
    for place in range(first, len(data) - 1, step):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.unlink()
        path.write_bytes(bytes(damaged))
        assert not checked(root, "full").is_clean, (place, data[place - 20 : place + 20])


def test_a_checkpoint_that_says_something_else_than_the_entries_is_damage(lake: Lake, root: Path) -> None:
    """As a fault of a client would leave it: all digests are right, and the contents are not."""
    (target,) = (item for item in lake.objects if item.name == "the newest checkpoint's manifest")
    path = root / target.key
    manifest = path.read_bytes()
    timestamp = manifest.split(b'"timestamp_ms": ')[1][:13]
    path.unlink()
    path.write_bytes(manifest.replace(timestamp, b"%d" % (int(timestamp) + 1), 1))
    assert checked(root, "quick").is_clean
    (found,) = checked(root, "full").findings
    assert (found.severity, found.kind) == ("damage", "checkpoint")
    assert "its manifest" in found.message
    assert found.key == target.key.removeprefix(f"{NAME}/")
    assert "ns.repair()" in found.advice


def test_several_entries_that_are_lost_are_one_finding_which_names_them(lake: Lake, root: Path) -> None:
    for version in (20, 21, 22):
        (root / NAME / keys.entry_key(version)).unlink()
    quick, full = checked(root, "quick"), checked(root, "full")
    assert [item.message for item in quick.of("damage")] == [
        "the entries 20 to 22 are missing below the tail of the log"
    ]
    assert [item.key for item in full.of("damage")] == [keys.entry_key(20)]
    (unchecked,) = full.of("unchecked")
    assert "20 to" in unchecked.message
    assert "goes on from the checkpoint" in unchecked.message


def test_a_checkpoint_beyond_the_end_shows_that_newer_entries_were_lost(lake: Lake, root: Path) -> None:
    log = root / NAME / "_log"
    newest = max(int(path.stem) for path in (log / "checkpoints").glob("*.json"))
    for path in log.rglob("0000000000/*.json"):
        if int(path.stem) >= newest:
            path.unlink()
    report = checked(root, "quick")
    assert report.version == newest - 1
    (found,) = (item for item in report.of("warning") if item.kind == "entry")
    assert f"there is a checkpoint of version {newest}" in found.message


def test_a_folder_of_a_topic_that_was_moved_away_is_a_finding_for_each_segment(lake: Lake, root: Path) -> None:
    (root / NAME / "orders").rename(root / "away")
    report = checked(root, "quick")
    found = report.of("damage")
    assert {item.kind for item in found} == {"segment"}
    assert len(found) > 10
    assert all(item.key.startswith("orders/") for item in found)


def test_a_namespace_whose_first_entry_is_lost_is_checked_all_the_same(lake: Lake, root: Path) -> None:
    (root / NAME / keys.entry_key(0)).unlink()
    segment = next(item for item in lake.objects if item.name == "a segment")
    (root / segment.key).unlink()
    keys_found = {item.key for item in checked(root, "full").of("damage")}
    assert keys_found == {keys.entry_key(0), segment.key.removeprefix(f"{NAME}/")}
