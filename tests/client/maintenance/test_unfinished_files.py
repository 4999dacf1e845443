"""What a killed process had not finished is removed once nobody can be at work on it; a finished file never is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import txnlog
from tests.client.support import Place, raises, read
from txnlog.errors import StoreError
from txnlog.store import HookStore, LocalStore, PrefixStore
from txnlog.store.folders import remove_unfinished
from txnlog.store.key_guard import TEMPORARY_PREFIX
from txnlog.testing import ManualClock

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def left(folder: Path, name: str, modified_ms: int) -> Path:
    """A file that somebody wrote to at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"half")
    os.utime(path, (modified_ms / 1e3, modified_ms / 1e3))
    return path


def unfinished(folder: Path, modified_ms: int, digit: str = "0") -> Path:
    return left(folder, f"{TEMPORARY_PREFIX}{digit * 32}", modified_ms)


def test_old_temporary_files_go_and_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    gone = [unfinished(tmp_path / "a" / folder, NOW_MS - 1) for folder in ("", "b", "b/c")]
    stay = [
        unfinished(tmp_path / "a", NOW_MS, "1"),
        unfinished(tmp_path / "b", NOW_MS - 1),  # not below the folder
        left(tmp_path / "a", "object", NOW_MS - HOUR_MS),
        left(tmp_path / "a", "a stranger", NOW_MS - HOUR_MS),
        unfinished(tmp_path / "a" / "a stranger's", NOW_MS - HOUR_MS),
    ]
    remove_unfinished(PrefixStore(HookStore(store), "a"), NOW_MS)
    assert not [path for path in gone if path.exists()]
    assert all(path.exists() for path in stay)


def test_a_link_is_not_followed_and_what_cannot_be_removed_is_no_error(tmp_path: Path) -> None:
    outside = unfinished(tmp_path / "outside", NOW_MS - HOUR_MS)
    (tmp_path / "root").mkdir()
    os.symlink(tmp_path / "outside", tmp_path / "root" / "linked")
    os.symlink(outside, tmp_path / "root" / f"{TEMPORARY_PREFIX}1")
    (tmp_path / "root" / f"{TEMPORARY_PREFIX}2").mkdir()
    store = LocalStore(tmp_path / "root")
    remove_unfinished(store, NOW_MS)
    assert outside.exists()
    remove_unfinished(PrefixStore(store, "nowhere"), NOW_MS)


def test_whoever_is_at_work_all_the_same_fails_and_has_stored_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, use_tmpfile=False)
    link = os.link

    def late(*arguments: object, **options: object) -> None:
        store.remove_unfinished("", 1 << 62)
        link(*arguments, **options)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(os, "link", late)
    with raises(StoreError, "create of 'a/1'"):
        store.create("a/1", b"x")
    monkeypatch.undo()
    assert list(store.list("")) == []
    store.create("a/1", b"x")


def test_a_vacuum_takes_them_once_they_are_older_than_its_grace(local: Place, tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    ns = local.orders(1, clock=clock)
    folder = Path(local.root) / "sales"
    old, new = unfinished(folder / "orders", NOW_MS - HOUR_MS - 1), unfinished(folder / "_log", NOW_MS - HOUR_MS + 1)
    ns.vacuum(grace_ms=HOUR_MS, dry_run=True)
    assert old.exists()
    ns.vacuum(grace_ms=HOUR_MS)
    assert (old.exists(), new.exists()) == (False, True)
    clock.advance(2 * HOUR_MS)
    ns.vacuum(grace_ms=HOUR_MS)
    assert not new.exists()
    assert read(ns) == [1]


def test_the_next_backup_takes_those_of_one_that_was_killed_hours_ago(local: Place, tmp_path: Path) -> None:
    ns = local.orders(1)
    backups = tmp_path / "backups"
    txnlog.backup(f"{local.root}/sales", backups)
    now_ms = ns._connection.runtime.now_ms()
    old, new = unfinished(backups / "orders", now_ms - 2 * HOUR_MS), unfinished(backups, now_ms)
    assert txnlog.backup(f"{local.root}/sales", backups).copied_files == 0
    assert (old.exists(), new.exists()) == (False, True)
    txnlog.restore(backups, f"{tmp_path}/elsewhere/sales")
