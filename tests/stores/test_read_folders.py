"""A folder that is read again and again is opened by one call, and is the one that is there now."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnlog.errors import StoreError
from txnlog.store import LocalStore, ObjectNotFound


def test_a_folder_that_was_read_before_is_the_one_that_is_there_now(tmp_path: Path) -> None:
    writer, reader = LocalStore(tmp_path), LocalStore(tmp_path)
    writer.put("log/a/x", b"first")
    for _ in range(4):  # it is kept open
        assert reader.get("log/a/x") == b"first"
    assert len(reader._read_folders.values()) == 1
    (tmp_path / "log").rename(tmp_path / "old")
    with pytest.raises(ObjectNotFound):
        reader.get("log/a/x")
    writer.put("log/a/x", b"second")
    assert (reader.get("log/a/x"), reader.info("log/a/x").size_bytes) == (b"second", 6)
    (tmp_path / "log" / "a").rename(tmp_path / "aside")
    (tmp_path / "log" / "a").symlink_to(tmp_path / "old" / "a")
    for store in (reader, LocalStore(tmp_path)):
        with pytest.raises(StoreError, match="symbolic link"):
            store.get("log/a/x")
    reader.close()
    assert not reader._read_folders.values()


def test_folders_that_are_read_once_are_not_kept_open(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for number in range(9):
        LocalStore(tmp_path).put(f"orders/{number}/x", b"rows")
    for number in (*range(9), *range(9)):
        store.get(f"orders/{number}/x")
    assert not store._read_folders.values()
