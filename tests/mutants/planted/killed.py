"""Bugs that are planted in what processes leave which are killed, and in the order that makes their death harmless."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

_UNFINISHED: Final = "tests/client/maintenance/test_unfinished_files.py::test_"
_KILLED: Final = (
    "tests/crash/operations/test_crash_operations.py::"
    "test_an_operation_that_is_killed_at_any_change_and_repeated_ends_as_if_it_had_never_been_killed"
)

MUTANTS: Final = (
    # --- order ------------------------------------------------------------------------------------------------------
    Mutant(
        "files go before their vacuum is announced",
        "txnlog/maintenance/vacuum.py",
        "    plan = _announced(connection, target, silent_ms, horizon)\n",
        "    plan = _foreseen(connection, target, now_ms, silent_ms, horizon)\n"
        "    early = _graced(connection, plan, silent_ms, delay_ms, without_grace)\n"
        "    _Sweep(connection, plan, early, None, dry_run=False, progress=None).run()\n"
        "    plan = _announced(connection, target, silent_ms, horizon)\n",
        "where it is killed, versions that can be read by the log have lost files",
        (f"{_KILLED}[vacuum]",),
    ),
    Mutant(
        "a checkpoint is named before its parts are there",
        "txnlog/client/checkpointer.py",
        "        put_unnamed(self._store, self._runtime, objects)\n        manifest = self._create(manifest)\n",
        "        manifest = self._create(manifest)\n        put_unnamed(self._store, self._runtime, objects)\n",
        "where it is killed, a checkpoint is damaged for ever",
        (f"{_KILLED}[checkpoint]",),
    ),
    # --- what is left -----------------------------------------------------------------------------------------------
    Mutant(
        "a vacuum leaves what killed processes had not finished",
        "txnlog/maintenance/vacuum.py",
        "        remove_unfinished(connection.store, connection.runtime.now_ms() - silent_ms)\n",
        "",
        "temporary files, with rows in them, stay for ever",
        (_UNFINISHED + "a_vacuum_takes_them_once_they_are_older_than_its_grace",),
    ),
    Mutant(
        "a backup leaves what killed ones had not finished",
        "txnlog/maintenance/backup.py",
        "        remove_unfinished(self._folder.store, self._runtime.now_ms() - MIN_GRACE_MS)"
        "  # of backups that were killed\n",
        "",
        "temporary files stay in the folder for ever",
        (_UNFINISHED + "the_next_backup_takes_those_of_one_that_was_killed_hours_ago",),
    ),
    Mutant(
        "an unfinished file of any age is removed",
        "txnlog/store/local.py",
        ".st_mtime_ns < before_ms * 1_000_000:",
        ".st_mtime_ns < 1 << 80:",
        "whoever is writing fails",
        (_UNFINISHED + "old_temporary_files_go_and_nothing_else",),
    ),
)
