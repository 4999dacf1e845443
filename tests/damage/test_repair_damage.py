"""``repair`` puts back what is certain, and says of all else that it is left.

Of each object of the lake, damaged in each way, with a copy and without.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import txnlog
from tests.damage.damages import ALL_DAMAGE, NEWEST
from tests.damage.lake import NAME, START_MS, TOPICS, Lake, Target, build, steady
from tests.effort import every
from txnlog.api.checking import check_namespace, repair_namespace
from txnlog.format import keys
from txnlog.format.keys import kind_of
from txnlog.results import Repaired
from txnlog.testing import ManualClock

COPIED: Final = "copied"
CLOCK_MS: Final = START_MS + 3_600_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return build(tmp_path_factory.mktemp("repair") / "lake")


@pytest.fixture(scope="module")
def copy(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the undamaged namespace."""
    folder = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(lake.folder / NAME, folder)
    return folder


@pytest.fixture
def root(lake: Lake, tmp_path: Path) -> Iterator[Path]:
    """A copy of the lake, to be damaged. Its files are links: who changes one puts another in its place."""
    folder = tmp_path / "root"
    shutil.copytree(lake.folder, folder, copy_function=os.link)
    yield folder
    shutil.rmtree(folder)


def repaired(folder: Path, source: Path | None = None, **options: Any) -> Repaired:
    with steady():
        return repair_namespace(folder, NAME, source=source, clock=ManualClock(CLOCK_MS), **options)


def is_clean(folder: Path) -> bool:
    with steady():
        return check_namespace(folder, NAME, level="full", clock=ManualClock(CLOCK_MS)).is_clean


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def comes_back(target: Target, *, with_copy: bool) -> bool:
    """Whether a repair promises that nothing is left of a damage to this object."""
    if target.name == NEWEST:
        return False
    return with_copy or kind_of(target.key) not in {"entry", "segment"}


def guessed(before: dict[str, bytes], after: dict[str, bytes], undamaged: dict[str, bytes]) -> set[str]:
    """The entries and segments that are neither what they were before the repair, nor what they were at first."""
    return {
        key
        for key, data in after.items()
        if kind_of(key) in {"entry", "segment"} and data not in {before.get(key), undamaged.get(key)}
    }


@pytest.mark.parametrize("with_copy", [False, True], ids=["from the log", "from a copy"])
@pytest.mark.parametrize("damage", [item for item in ALL_DAMAGE if item != COPIED])
def test_what_is_certain_comes_back_and_what_is_not_is_left_and_said(
    lake: Lake, root: Path, copy: Path, tmp_path: Path, damage: str, with_copy: bool
) -> None:
    first, step = every(12)
    undamaged = contents(lake.folder)
    of_namespace = [item for item in lake.objects if item.key.startswith(f"{NAME}/")]
    for target in of_namespace[first::step]:
        folder, source = tmp_path / "one", copy if with_copy else None
        shutil.copytree(root, folder, copy_function=os.link)
        ALL_DAMAGE[damage](folder / target.key, folder / target.partner)
        before = contents(folder)
        foreseen = repaired(folder, source, dry_run=True)
        assert contents(folder) == before, "it is only foreseen"
        done = repaired(folder, source)
        assert [str(item) for item in foreseen.objects] == [str(item) for item in done.objects], target.name
        after = contents(folder)
        assert guessed(before, after, undamaged) == set(), target.name
        if comes_back(target, with_copy=with_copy):
            assert done.is_clean, (target.name, done.objects)
            assert is_clean(folder), target.name
            if kind_of(target.key) in {"entry", "segment"}:
                assert after[target.key] == undamaged[target.key]
        elif damage != "a bit flipped" or target.name != NEWEST:
            assert not done.is_clean, target.name
            left = [item for item in done.objects if item.severity]
            assert all(item.left and item.advice for item in left), target.name
        again = repaired(folder, source)
        assert [item for item in again.objects if item.done] == [], (target.name, "all was done before")
        shutil.rmtree(folder)


def test_an_undamaged_lake_is_left_as_it_is(root: Path, copy: Path) -> None:
    before = contents(root)
    for source in (None, copy):
        done = repaired(root, source)
        assert done.objects == ()
        assert done.is_clean
    changed = {key for key, data in contents(root).items() if data != before.get(key)}
    assert {kind_of(key) for key in changed} <= {"delta"}, "a Delta table has a checkpoint more"


def test_what_was_repaired_is_read_as_before(lake: Lake, root: Path, copy: Path) -> None:
    for target in lake.objects:
        if target.name in {
            "the first entry",
            "an entry after the newest checkpoint",
            "the newest checkpoint's part `hot`",
            "an older checkpoint's manifest",
            "a merged segment",
            "a segment that was replaced",
        }:
            ALL_DAMAGE["swapped"](root / target.key, root / target.partner)
    assert repaired(root, copy).is_clean
    with steady(), txnlog.open(root, namespace=NAME, clock=ManualClock(CLOCK_MS)) as ns:
        for topic in TOPICS:
            assert ns.snapshot().read(topic)["id"].to_pylist() == lake.rows[topic]
            assert ns.snapshot(lake.older).read(topic)["id"].to_pylist() == lake.older_rows[topic]
        assert ns.transaction(lake.first_txn).version == lake.first_version
        ns.produce("payments", [{"id": 1_000}])


def test_the_checkpoints_that_are_made_again_serve_whoever_opens_the_namespace(lake: Lake, root: Path) -> None:
    for path in (root / NAME / "_log" / "checkpoints").rglob("*.*"):
        path.unlink()
    done = repaired(root)
    assert done.is_clean
    assert [item.done for item in done.objects] == ["made again from the log"] * 3
    (root / NAME / keys.entry_key(5)).unlink()  # so that they are used, or nothing is read
    with steady(), txnlog.open(root, namespace=NAME, mode="r", clock=ManualClock(CLOCK_MS)) as ns:
        assert ns.snapshot().read("orders")["id"].to_pylist() == lake.rows["orders"]
