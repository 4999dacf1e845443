"""Of a namespace with holes, too, ``fsck`` finds whatever happens to an object, and ``repair`` puts it back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import txnlog
from tests.damage.damages import ALL_DAMAGE, checked, found_by_quick, names_it
from tests.damage.holes_lake import COMPACTED, ERASED, build
from tests.damage.lake import NAME, START_MS, Target, steady
from tests.effort import every
from txnlog.api.checking import repair_namespace
from txnlog.errors import CorruptionError
from txnlog.format.keys import kind_of
from txnlog.testing import ManualClock

CLOCK_MS = START_MS + 3_600_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("holes") / "lake"


@pytest.fixture(scope="module")
def targets(folder: Path) -> tuple[Target, ...]:
    return build(folder)


def test_the_namespace_has_holes_and_is_clean(folder: Path, targets: tuple[Target, ...]) -> None:
    with steady(), txnlog.open(folder, namespace=NAME, mode="r", clock=ManualClock(CLOCK_MS)) as ns:
        for topic, rows, end in ((COMPACTED, 7, 9), (ERASED, 9, 10)):
            assert ns.snapshot().end_offsets(topic) == {0: end}
            assert ns.snapshot().read(topic).num_rows == rows
    for level in ("quick", "full", "deep"):
        assert checked(folder, level).findings == ()
    assert len({item.name for item in targets}) == len(targets) > 8


@pytest.mark.parametrize("damage", ALL_DAMAGE)
def test_whatever_happens_is_found_and_what_is_certain_comes_back(
    folder: Path, targets: tuple[Target, ...], tmp_path: Path, damage: str
) -> None:
    first, step = every(3)
    for target in targets[first::step]:
        root = tmp_path / "one"
        shutil.copytree(folder, root, copy_function=os.link)
        undamaged = (root / target.key).read_bytes()
        ALL_DAMAGE[damage](root / target.key, root / target.partner)
        quick, full = checked(root, "quick"), checked(root, "full")
        if found_by_quick(target, damage):
            assert names_it(quick, target, damage), (target.name, quick.findings)
        assert names_it(full, target, damage), (target.name, full.findings)
        copy_of_a_file = damage == "copied" and target.key.endswith(".parquet")
        assert full.is_clean == copy_of_a_file, (target.name, full.findings)
        if damage != "copied":
            with steady():
                done = repair_namespace(root, NAME, source=folder / NAME, clock=ManualClock(CLOCK_MS))
            assert done.is_clean, (target.name, done.objects)
            assert checked(root, "deep").is_clean, target.name
            if kind_of(target.key) != "checkpoint":
                assert (root / target.key).read_bytes() == undamaged
        shutil.rmtree(root)


def test_a_file_from_before_the_erasure_in_place_of_the_new_one_is_damage(
    folder: Path, targets: tuple[Target, ...], tmp_path: Path
) -> None:
    """The erased row does not come back without a word, at whatever level bytes are read."""
    (target,) = (item for item in targets if item.name == "a segment that was merged behind an erasure")
    (before,) = (item for item in targets if item.name == "a segment with an erased row")
    root = tmp_path / "root"
    shutil.copytree(folder, root, copy_function=os.link)
    ALL_DAMAGE["rolled back"](root / target.key, root / before.key)
    for level in ("full", "deep"):
        assert [item.key for item in checked(root, level).of("damage")] == [target.key.removeprefix(f"{NAME}/")]
    with (
        steady(),
        txnlog.open(root, namespace=NAME, mode="r", clock=ManualClock(CLOCK_MS)) as ns,
        pytest.raises(CorruptionError),
    ):
        ns.snapshot().read(ERASED)
