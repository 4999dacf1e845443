"""What a folder does for objects that nothing depends on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from txnlog.store import LocalStore

KEY = "sales/_proposals/1"


def test_an_unsynced_put_replaces_without_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    for data in (b"1", b"2"):
        store.put(KEY, data)  # from here on the folder is known
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store.put_unsynced(KEY, b"3")
    assert not synced
    assert [info.key for info in store.list("")] == [KEY], "no unfinished file is left"
    assert store.get(KEY) == b"3"
