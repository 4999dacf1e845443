"""Known bugs of operations that only somebody who is killed meets: the kills must find each of them.

Undisturbed, each operation ends as it does without its bug. What the tests in ``tests/mutants`` do by changing source
is done here in place: most of these change the order of several steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.crash.operations.operations import HOUR_MS
from txnlog.client import checkpointer
from txnlog.client.checkpointer import Checkpointer
from txnlog.format import keys
from txnlog.log.slots import occupy, put_unnamed
from txnlog.maintenance import merging, vacuum
from txnlog.maintenance.backup import _Backup
from txnlog.maintenance.compaction import Compaction
from txnlog.maintenance.merging import Merger
from txnlog.maintenance.repair import work
from txnlog.maintenance.repair.work import Work
from txnlog.maintenance.restore import _Restore
from txnlog.store import MemoryStore
from txnlog.store.folders import remove_unfinished
from txnlog.store.local import LocalStore


@dataclass(frozen=True)
class Bug:
    """One bug: ``plant`` puts it into this process and its children; ``operation`` is the one that has it then."""

    plant: Callable[[], None]
    operation: str


def _backup_seals_first() -> None:
    """The manifest of a backup is there before what it names."""
    made = _Backup._made

    def patched(self: _Backup) -> Any:
        real, shadow = self._folder.store, MemoryStore("")
        for info in real.list(""):
            shadow.put(info.key, real.get(info.key))
        self._folder.store = shadow
        result = made(self)
        self._folder.store = real
        new = [info.key for info in shadow.list("") if info.key not in {known.key for known in real.list("")}]
        for key in sorted(new, key=lambda key: keys.backup_version(key) is None):
            real.put(key, shadow.get(key))
        remove_unfinished(real, self._runtime.now_ms() - HOUR_MS)
        return result

    _patch(_Backup, "_made", patched)


def _restore_is_visible_first() -> None:
    """Entry 0, by which clients know a namespace, is there before all else."""
    copy = _Restore._copy

    def patched(self: _Restore, put: Callable[[str, bytes], None]) -> None:
        key = keys.entry_key(0)
        self._occupy(key, self._folder.store.get(key))
        copy(self, put)

    _patch(_Restore, "_copy", patched)


def _restore_forgets_first() -> None:
    """The mark by which a restore knows its own work goes before the adoption."""
    adopt = _Restore._adopt

    def patched(self: _Restore) -> int:
        self._store.delete(keys.RESTORE_KEY)
        return adopt(self)

    _patch(_Restore, "_adopt", patched)


def _compaction_notes_first() -> None:
    """It is noted up to where a topic was compacted before it is."""
    compacted = Compaction._compacted

    def patched(self: Compaction, found: Any) -> bool:
        self._note(found, left=False)
        return compacted(self, found)

    _patch(Compaction, "_compacted", patched)


def _old_files_are_away_first() -> None:
    """The files that hold rows that are to go are away before the entry that replaces them, and back behind it."""
    replaced = Merger._replaced

    def patched(self: Merger, merge: Any, *rest: Any) -> int | None:
        store = self._connection.store
        old = [keys.segment_key(self._topic.folder, record.number, record.file) for record in merge.removed]
        away = {key: store.get(key) for key in old}
        for key in old:
            store.delete(key)
        version = replaced(self, merge, *rest)
        for key, data in away.items():
            store.put(key, data)
        return version

    _patch(Merger, "_replaced", patched)


def _later(module: Any, owner: Any, name: str) -> None:
    """The objects that a module puts come behind a call."""
    waiting: list[Sequence[Any]] = []
    call = getattr(owner, name)

    def patched(*arguments: Any) -> Any:
        found = call(*arguments)
        while waiting:
            put_unnamed(*waiting.pop())
        return found

    _patch(module, "put_unnamed", lambda *arguments: waiting.append(arguments))
    _patch(owner, name, patched)


def _entry_before_its_files() -> None:
    """The entry of a merge is there before the files that it names."""
    _later(merging, Merger, "_replaced")


def _manifest_before_its_parts() -> None:
    """The manifest of a checkpoint is there before its parts."""
    _later(checkpointer, Checkpointer, "_create")


def _vacuum_deletes_first() -> None:
    """Files go before the entry that says which versions cannot be read any more."""
    announced = vacuum._announced

    def patched(connection: Any, target: int, grace_ms: int, horizon: int) -> Any:
        plan = vacuum._foreseen(connection, target, connection.log_now_ms(), grace_ms, horizon)
        graced = vacuum._graced(connection, plan, grace_ms, grace_ms, (horizon, target))
        vacuum._Sweep(connection, plan, graced, None, dry_run=False, progress=None).run()
        return announced(connection, target, grace_ms, horizon)

    _patch(vacuum, "_announced", patched)


def _repair_keeps_last() -> None:
    """What a repair replaces is kept behind the put that replaces it."""
    waiting: list[Sequence[Any]] = []
    honest, put_in_place = occupy, Work.put_in_place

    def occupied(*arguments: Any) -> bytes:
        _store, _runtime, key, data = arguments
        if not key.startswith(keys.REPLACED_FOLDER):
            return honest(*arguments)
        waiting.append(arguments)
        return bytes(data)

    def patched(self: Work, *arguments: Any) -> None:
        put_in_place(self, *arguments)
        while waiting:
            honest(*waiting.pop())

    _patch(work, "occupy", occupied)
    _patch(Work, "put_in_place", patched)


def _temporary_files_stay() -> None:
    """Nobody removes what a process that died had not finished."""
    _patch(LocalStore, "remove_unfinished", lambda *_arguments: None)


BUGS: Final[dict[str, Bug]] = {
    "a backup is sealed first": Bug(_backup_seals_first, "backup"),
    "a restore is visible first": Bug(_restore_is_visible_first, "restore"),
    "a restore forgets first": Bug(_restore_forgets_first, "restore"),
    "a compaction is noted first": Bug(_compaction_notes_first, "compact"),
    "a compaction deletes first": Bug(_old_files_are_away_first, "compact"),
    "an erasure deletes first": Bug(_old_files_are_away_first, "erase"),
    "a merge is logged first": Bug(_entry_before_its_files, "optimize"),
    "a checkpoint is named first": Bug(_manifest_before_its_parts, "checkpoint"),
    "a vacuum deletes first": Bug(_vacuum_deletes_first, "vacuum"),
    "a repair keeps last": Bug(_repair_keeps_last, "repair"),
    "temporary files stay": Bug(_temporary_files_stay, "optimize"),
}


def _patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


__all__ = ["BUGS", "Bug"]
