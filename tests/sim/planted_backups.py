"""Known bugs of backups and restores, planted as those of ``planted.py`` are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.sim.planted import Mutant
from txnlog.errors import StoreError
from txnlog.fold import garbage
from txnlog.fold.state import SegmentRecord
from txnlog.format import keys
from txnlog.maintenance import backup
from txnlog.maintenance.backup import _Backup
from txnlog.maintenance.restore import _Restore
from txnlog.testing.faults import Faults


def entries_are_newer_than_segments(patch: pytest.MonkeyPatch) -> None:
    """Segments are those of the version at the beginning, entries go up to the version at the end."""
    entries = _Backup._entries

    def newest(self: _Backup) -> int:
        self._connection.follower.refresh()
        head = self._connection.follower.state.head
        self._plan = replace(self._plan, version=head.version, digest=head.digest, timestamp_ms=head.timestamp_ms)
        return entries(self)

    patch.setattr(_Backup, "_entries", newest)


def _needing(is_needed: Callable[..., bool]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(backup, "is_needed", is_needed)


def _visible(record: SegmentRecord, *others: Any) -> bool:
    """Rows of transactions that have not ended are left out."""
    return record.state == "visible" and garbage.is_needed(record, *others)


def _newest(record: SegmentRecord, removals: Any, dropped: int | None, _oldest: int) -> bool:
    """Only what the newest version of the original shows: not what was merged or dropped since the backup began."""
    return garbage.is_needed(record, removals, dropped, 1 << 62)


def entries_below_the_newest_are_there(patch: pytest.MonkeyPatch) -> None:
    """Who goes on with a backup looks for the newest entry that is there, and takes all below for copied."""
    entries = _Backup._entries

    def trusting(self: _Backup) -> int:
        found = map(keys.parse_key, self._folder.sizes)
        last = max((key.version for key in found if isinstance(key, keys.EntryKey)), default=-1)
        for version in range(min(last, self._plan.version)):
            self._folder.sizes.setdefault(keys.entry_key(version), len(self._entry(version)))
        return entries(self)

    patch.setattr(_Backup, "_entries", trusting)


def unanswered_puts_count(patch: pytest.MonkeyPatch) -> None:
    """A file whose put was not answered counts as copied."""
    put = _Backup._put

    def sure(self: _Backup, key: str, data: bytes) -> int:
        try:
            return put(self, key, data)
        except StoreError:
            return len(data)

    patch.setattr(_Backup, "_put", sure)


def first_entry_comes_first(patch: pytest.MonkeyPatch) -> None:
    """Others see a log that is being restored as soon as that begins."""
    make_log = _Restore._make_log

    def at_once(self: _Restore) -> None:
        key = keys.entry_key(0)
        self._occupy(key, self._folder.store.get(key))
        make_log(self)

    patch.setattr(_Restore, "_make_log", at_once)


def unanswered_puts_count_as_restored(patch: pytest.MonkeyPatch) -> None:
    """A file whose put was not answered counts as restored."""
    put = _Restore._put

    def sure(self: _Restore, key: str, data: bytes) -> None:
        try:
            put(self, key, data)
        except StoreError:
            return

    patch.setattr(_Restore, "_put", sure)


def restored_ones_keep_their_identity(patch: pytest.MonkeyPatch) -> None:
    """What was restored is not adopted: it would give the TxnIDs of the original."""
    patch.setattr(_Restore, "_adopt", lambda self: self._manifest.coordinator)


_INTERRUPTED: Final = Faults({"dropped": 0.4, "crash": 0.4})


def _mutant(name: str, plant: Callable[[pytest.MonkeyPatch], None], faults: Faults | None = None) -> Mutant:
    return Mutant(name, plant, ("writer",), faults, "restored")


BACKUP_MUTANTS: Final = (
    _mutant("entries of a backup are newer than segments", entries_are_newer_than_segments),
    _mutant("a backup leaves out what is pending", _needing(_visible)),
    _mutant("a backup leaves out what is merged meanwhile", _needing(_newest)),
    _mutant("the newest entry vouches for a backup", entries_below_the_newest_are_there, _INTERRUPTED),
    _mutant("unanswered puts of a backup count", unanswered_puts_count, _INTERRUPTED),
    _mutant("the first entry is restored first", first_entry_comes_first),
    _mutant("unanswered puts of a restore count", unanswered_puts_count_as_restored, Faults({"dropped": 0.3})),
    _mutant("what is restored keeps its identity", restored_ones_keep_their_identity),
)
