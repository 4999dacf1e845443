"""What lies on the store where a namespace was restored, or is being restored, looked at from outside.

No request is made. What is there is compared with the log of the original, replayed up to the version of the backup,
and with the messages that it shows there: the checker, which knows only what clients saw, judges the same by history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import msgspec

from txnlog.common.names import parse_namespace_name
from txnlog.errors import TxnLogError
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import HEAD, State
from txnlog.format import keys
from txnlog.format.actions import Adopt
from txnlog.format.backup_manifest import BackupManifest, decode_backup_manifest
from txnlog.format.codec import Entry, decode_entry
from txnlog.maintenance import restore
from txnlog.maintenance.backup_folder import BackupFolder
from txnlog.maintenance.fsck import check as fsck
from txnlog.store.wrappers import PrefixStore
from txnlog.testing import audit
from txnlog.testing.audit import Problem
from txnlog.testing.client import Rows, rows_of
from txnlog.testing.simulated_store import SimulatedStore, StoreAtRest
from txnlog.testing.world import BACKUPS, NAMESPACE

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.engine.runtime import Runtime


# --- amid a restore ---------------------------------------------------------------------------------------------------


def check_visible(store: SimulatedStore, name: str, version: int) -> None:
    """Raise AssertionError where others can see a log that is being restored, and something of it is not there."""
    if f"{name}/{keys.entry_key(0)}" not in store.objects:
        return
    manifest = _manifest(store, version)
    wanted = [file.key for file in manifest.files] + [keys.entry_key(number) for number in range(version + 1)]
    lacking = [key for key in wanted if f"{name}/{key}" not in store.objects and f"{name}/{key}" not in store.damaged]
    if lacking:
        raise AssertionError(f"{name} can be seen before {lacking[:3]} are there ({len(lacking)})")


def adopted_as(store: SimulatedStore, name: str, version: int) -> int | None:
    """The coordinator id of a namespace that was restored to its end, though nobody may have heard of that."""
    found = store.objects.get(f"{name}/{keys.entry_key(version + 1)}")
    if found is None or f"{name}/{keys.entry_key(0)}" not in store.objects:
        return None
    try:
        actions = decode_entry(found[0], version + 1).actions
    except TxnLogError:  # it is damaged at present
        return None
    return next((action.coordinator for action in actions if isinstance(action, Adopt)), None)


def _manifest(store: SimulatedStore, version: int) -> BackupManifest:
    key = keys.backup_key(version)
    return decode_backup_manifest(store.objects[f"{BACKUPS}/{key}"][0], key)


# --- afterwards -------------------------------------------------------------------------------------------------------


class Original:
    """The namespace that was backed up, as its whole log says.

    Args:
        ns: a handle that has read all of it.
        entries: its entries.
        store: where it is; files that were deleted are there again.
    """

    def __init__(self, ns: Namespace, entries: Sequence[Entry], store: SimulatedStore, problem: Problem) -> None:
        self._ns = ns
        self._entries = entries
        self._store = store
        self._problem = problem
        self._states: dict[int, State] = {}

    def state_at(self, version: int) -> State:
        """Its state at a version, by a replay from zero."""
        if version not in self._states:
            state = State()
            for entry in self._entries[: version + 1]:
                apply_entry(state, entry)
            self._states[version] = state
        return self._states[version]

    def rows_at(self, version: int) -> Rows:
        """What it showed at a version: before anything was deleted or vacuumed since then."""
        follower = self._ns._connection.follower
        starts, head = follower.state.starts, follower.state.head
        then = self.state_at(version)
        try:
            follower.state.starts = then.starts
            follower.state.heads[HEAD] = msgspec.structs.replace(head, oldest_readable=then.head.oldest_readable)
            return rows_of(self._ns, self._ns.snapshot(version))
        finally:
            follower.state.starts, follower.state.heads[HEAD] = starts, head

    def at_rest(self, folder: str) -> Callable[[str], bytes | None]:
        """Reads an object below a folder of the store."""

        def read(key: str) -> bytes | None:
            found = self._store.objects.get(f"{folder}/{key}")
            return None if found is None else found[0]

        return read

    # --- what is compared ---------------------------------------------------------------------------------------------

    def check_backup(self, version: int, runtime: Runtime) -> None:
        """A backup that was made has the log up to its version, and every file that a reader of that version needs."""
        what = f"the backup of version {version}"
        self._check_log(what, BACKUPS, version)
        self._check_files(what, BACKUPS, self.state_at(version))
        target = restore.Target(StoreAtRest(self._store), parse_namespace_name("again"), _nobody)
        folder = BackupFolder(PrefixStore(StoreAtRest(self._store), BACKUPS), runtime)
        try:
            restore.restore(folder, target, runtime, version, dry_run=True, progress=None)
        except TxnLogError as error:
            self._problem("restored", f"{what} cannot be restored: {error}")

    def check_restored(self, name: str, version: int, ns: Namespace, runtime: Runtime) -> None:
        """What was restored is the original at that version, with an identity of its own, and somebody went on in it.

        Args:
            name: of the namespace that was restored.
            version: of its backup.
            ns: a handle on it.
            runtime: of a look from outside.
        """
        problem = partial(self._problem, "restored")
        self._check_log(name, name, version)
        replayed, entries = audit.replay(ns._connection.follower.log, lambda _, text: problem(f"{name}: {text}"))
        audit.compare_state(name, replayed, ns._connection.follower, lambda _, text: problem(text))
        self._check_files(name, name, replayed)
        adopted = [item for item in entries[version + 1].actions if isinstance(item, Adopt)]
        if [item.name for item in adopted] != [name]:
            problem(f"{name}: entry {version + 1} makes it no namespace of this name: {adopted}")
        if rows_of(ns, ns.snapshot(version)) != (wanted := self.rows_at(version)):
            problem(f"{name} shows {rows_of(ns, ns.snapshot(version))} at {version}, the original {wanted}")
        self._check_more(name, version, rows_of(ns, ns.snapshot()), wanted, replayed)
        for text in _found_by_fsck(self._store, name, runtime):
            problem(f"{name}: fsck finds {text}")

    def _check_log(self, what: str, folder: str, version: int) -> None:
        read = self.at_rest(folder)
        for number in range(version + 1):
            key = keys.entry_key(number)
            if read(key) != self.at_rest(NAMESPACE)(key):
                self._problem("restored", f"{what}: entry {number} is not that of the original")

    def _check_files(self, what: str, folder: str, state: State) -> None:
        # Checkpoints may be left out: a client reads the entries instead.
        files = audit.missing_files(
            state, self.at_rest(folder), lambda _, text: None if "checkpoint" in text else self._problem("store", text)
        )
        for file in files:
            self._problem("restored", f"{what} lacks {file.file}")

    def _check_more(self, name: str, version: int, shown: Rows, wanted: Rows, replayed: State) -> None:
        """What came since then follows what there was, and there was somebody who wrote it."""
        more = 0
        for place, rows in shown.items():
            topic = next(item.id for item in replayed.topics.values() if item.folder == place[0])
            start = replayed.starts.get((topic, place[1]), 0)
            before = tuple(row for row in rows if row[3] <= version)
            if before != tuple(row for row in wanted.get(place, ()) if row[0] >= start):
                self._problem("restored", f"{name}: {place} does not show what it showed at {version} any more")
            since = [row[0] for row in rows if row[3] > version]
            end = self.state_at(version).end_of(topic, place[1])
            if since != list(range(end, end + len(since))):
                self._problem("restored", f"{name}: {place} goes on with the offsets {since}, and ended at {end}")
            more += len(since)
        if not more:
            self._problem("restored", f"{name}: nobody could write to it")


def _nobody() -> NoReturn:
    raise AssertionError("nobody opens what is only tried")


def _found_by_fsck(store: SimulatedStore, name: str, runtime: Runtime) -> Iterator[str]:
    """What a check of everything finds: but for checkpoints, which a backup may leave out, and what is overdue."""
    report = fsck.check(PrefixStore(StoreAtRest(store), name), runtime, "deep", progress=None)
    for item in report.findings:
        if item.severity != "note" and item.kind not in {"checkpoint", "part", "transaction"}:
            yield f"{item}"


__all__ = ["Original", "adopted_as", "check_visible"]
