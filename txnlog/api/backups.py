"""Backing up a namespace, and restoring it: what ``txnlog.backup`` and ``txnlog.restore`` are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txnlog.api.opening import check_clock, check_store
from txnlog.api.paths import root_and_name, root_text
from txnlog.client.connection import Connection
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import parse_namespace_name
from txnlog.common.validation import callback, mapping, shortened, truth, whole_number
from txnlog.engine.runtime import Clock, Runtime
from txnlog.errors import InvalidInputError
from txnlog.maintenance import backup as backing_up
from txnlog.maintenance import restore as restoring
from txnlog.maintenance.backup_folder import BackupFolder, Progress
from txnlog.replies import in_parts
from txnlog.results import BackedUp, Restored
from txnlog.store.base import Store
from txnlog.store.folders import close_folders
from txnlog.store.open import absolute, open_store


@in_parts()
def backup(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    version: int | None = None,
    verify: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    destination_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    store: Store | None = None,
    destination_store: Store | None = None,
) -> BackedUp:
    """Copy a namespace, as it is at one version, into a folder, while others write to it.

    The first call makes a whole copy. Each later one into the same folder copies what is new, and makes another backup:
    the earlier ones stay. A call that was interrupted is made again, and goes on where it ended; until it is finished
    there is no new backup. Everything is compared with the checksums of the log while it is copied.

    Not in it: the Delta tables of topics, which are published again from what is restored; proposals; signs of life of
    consumers; files of aborted transactions that no readable version shows.

    Args:
        source: the namespace: ``ROOT/NAMESPACE``, a path or a URL. It is only read.
        destination: the folder of the backups of this namespace: a path or a URL. Each namespace has one of its own.
        version: the version to back up; left out, the newest. An older one must be readable, and no vacuum may have
            deleted anything since then.
        verify: read also what the folder has already, compare it, and replace what is missing or damaged; without it
            names and sizes are compared.
        storage_options: fsspec's options for the source.
        destination_storage_options: fsspec's options for the destination.
        progress: called with what is copied (``segments``, ``checkpoints``, ``entries``), how many of them are there,
            how many there are, and the bytes copied so far.
        store: an object with the interface of ``txnlog.store`` to use for the source's root (tests, wrappers).
        destination_store: the same for the destination.

    Raises:
        NamespaceNotFound: there is no namespace at ``source``.
        InvalidInputError: the destination has files and no backup, or backups of another namespace, or of a later or
            another history of this one; nothing was written.
        VersionNotAvailable: the version cannot be read, or a vacuum has deleted files since then.
        CorruptionError: an entry or a segment of the source is missing or damaged; there is no new backup.
        RetriableError: vacuums deleted files while they were copied: call it again.
        StoreError: a store failed: call it again.
    """
    text, name = root_and_name(source, None)
    folder, own_store = _folder(destination, destination_storage_options, destination_store, "destination")
    check_store(store)
    version = version if version is None else whole_number("version", version, 0, MAX_NUMBER)
    verify = truth("verify", verify)
    progress = callback("progress", progress)
    connection = Connection(
        text, name, mode="r", storage_options=mapping("storage_options", storage_options), store=store
    )
    try:
        connection.session.check_identity()
        backups = BackupFolder(folder, connection.runtime)
        _check_apart(connection.session.requests.url(name), backups)
        return backing_up.backup(connection, backups, version, verify=verify, progress=progress)
    finally:
        connection.close()
        if own_store:
            close_folders(folder)


@in_parts()
def restore(
    backup: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    version: int | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    destination_storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    destination_store: Store | None = None,
) -> Restored:
    """Make a namespace out of a backup. Nobody can open it before all of it is there, and was compared.

    It becomes a namespace of its own, by an adoption: new TxnIDs begin with a new coordinator id, older ones keep their
    meaning, and no writer of the original can write to it. A call that was interrupted is made again, and goes on where
    it ended.

    Subscriptions, transactions, producers and streams are as they were at the version of the backup: messages that were
    acknowledged later are delivered again, prepared transactions wait for their decision, and those that are open end
    by their timeout. ``docs/operations/backup.md`` says what to do about each.

    Args:
        backup: the folder of a backup: a path or a URL. It is only read.
        destination: the namespace to make: ``ROOT/NAMESPACE``, a path or a URL. The name may be another one than the
            original's. Nothing may be there; if the root lists the original under that name, its folder must be gone.
        version: the version whose backup is restored; left out, the newest that the folder has.
        dry_run: read the backup, compare all of it with its checksums, look whether it could be restored there, and
            write nothing.
        storage_options: fsspec's options for the backup.
        destination_storage_options: fsspec's options for the destination.
        progress: called with what is copied (``segments``, ``checkpoints``, ``entries``), how many of them are there,
            how many there are, and the bytes read so far.
        clock: a clock to trust instead of the machine's (tests), as for ``txnlog.open``.
        store: an object with the interface of ``txnlog.store`` to use for the backup (tests, wrappers).
        destination_store: the same for the destination's root.

    Raises:
        InvalidInputError: there is no backup, or none of that version; or a namespace or other files are at the
            destination. Nothing was written.
        NameNotAllowed: the name is not allowed, or differs from that of another namespace only in case.
        CorruptionError: an object of the backup is missing or damaged; there is no namespace. What is missing or has
            another size is found before anything is written.
        UnsafeStore: the destination's store has no atomic create-if-absent.
        InvalidTransactionState: somebody else restores or adopts it at the same time: open it, or call it again.
        OutcomeUnknown, StoreError: call it again.
    """
    folder, own_store = _folder(backup, storage_options, store, "backup")
    check_clock(clock)
    check_store(destination_store)
    text, name = root_and_name(destination, None)
    version = version if version is None else whole_number("version", version, 0, MAX_NUMBER)
    dry_run = truth("dry_run", dry_run)
    progress = callback("progress", progress)
    options = mapping("destination_storage_options", destination_storage_options)
    text = absolute(text) if destination_store is None else text
    whole = destination_store or open_store(text, options)
    runtime = Runtime(clock)

    def connect() -> Connection:
        return Connection(text, name, clock=clock, store=whole)

    try:
        target = restoring.Target(whole, parse_namespace_name(name), connect)
        backups = BackupFolder(folder, runtime)
        return restoring.restore(backups, target, runtime, version, dry_run=dry_run, progress=progress)
    finally:
        runtime.close()
        if destination_store is None:
            close_folders(whole)
        if own_store:
            close_folders(folder)


def _folder(path: object, options: Mapping[str, Any] | None, store: Store | None, what: str) -> tuple[Store, bool]:
    """The store of a folder of backups, and whether it was opened here."""
    name = "destination_storage_options" if what == "destination" else "storage_options"
    known = mapping(name, options)
    text = root_text(path)
    check_store(store)
    if store is not None:
        return store, False
    if not text:
        raise InvalidInputError(f"the {what} is empty", advice="pass the path or the URL of the folder of the backups")
    return open_store(absolute(text.rstrip("/") or text), known), True


def _check_apart(namespace: str, backups: BackupFolder) -> None:
    """Raise InvalidInputError where the folder of the backups is the namespace's, or in it."""
    if f"{backups.address}/".startswith(f"{namespace}/"):
        raise InvalidInputError(
            f"the destination {shortened(backups.address)} is in the folder of the namespace",
            advice="choose a folder outside of it, best in another store",
        )


__all__ = ["backup", "restore"]
