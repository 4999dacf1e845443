"""What is done to the files of a namespace, and whether a check names them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.damage.lake import NAME, START_MS, Target, steady
from tests.damage.matrix import DAMAGE
from txnlog.api.checking import check_namespace
from txnlog.format import keys
from txnlog.results import FsckReport
from txnlog.testing import ManualClock

CHECKED: Final = ("entry", "checkpoint", "segment")


COVERED: Final = "an entry that checkpoints cover"


NEWEST: Final = "the newest entry"


AFTER: Final = "an entry after the newest checkpoint"


def _copied(path: Path, _partner: Path) -> None:
    """The same bytes under another key, as which nothing was there."""
    key = keys.parse_key(path.relative_to(_namespace_of(path)).as_posix())
    if isinstance(key, keys.EntryKey):
        copy = path.parent / Path(keys.entry_key(len(list(path.parent.iterdir())))).name
    elif isinstance(key, keys.ManifestKey):
        copy = path.parent / Path(keys.manifest_key(key.version - 1)).name
    else:
        copy = path.parent / f"{'f' * 32}.parquet"
    assert not copy.exists()
    shutil.copyfile(path, copy)


def _rolled_back(path: Path, partner: Path) -> None:
    """What another one of its kind holds, which is mostly an earlier one; that one stays."""
    path.unlink()  # the file itself is the undamaged root's as well
    shutil.copyfile(partner, path)


ALL_DAMAGE: Final[dict[str, Callable[[Path, Path], None]]] = {
    **DAMAGE,
    "copied": _copied,
    "rolled back": _rolled_back,
}


def _namespace_of(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name == NAME)


def checked(folder: Path, level: Any) -> FsckReport:
    with steady():
        return check_namespace(folder, NAME, level=level, clock=ManualClock(START_MS + 3_600_000))


def names_it(report: FsckReport, target: Target, damage: str) -> bool:
    """Whether a finding names the object, or the one that it was swapped with; of a copy, that there is one."""
    touched = {target.key, target.partner} if damage == "swapped" else {target.key}
    touched = {key.removeprefix(f"{NAME}/") for key in touched}
    if damage == "copied":
        return bool(report.findings)
    return any(item.key in touched or any(key in item.advice for key in touched) for item in report.findings)


def found_by_quick(target: Target, damage: str) -> bool:
    """What the level ``quick`` promises: losses, and what is cut short, but for an entry that it does not read.

    Of entries it reads the first three, those behind the newest checkpoint, and those that checkpoints are of.
    """
    if target.name == COVERED:
        return damage in {"deleted", "copied"}
    if target.name == NEWEST and damage == "deleted":
        return False  # no client can: docs/operations/damage.md
    return target.entry or damage in {"deleted", "truncated", "copied"} or "manifest" in target.name
