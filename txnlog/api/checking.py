"""Checking and repairing a namespace by its path, without a handle: also one that is too damaged to be opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from txnlog.api.paths import opened_copy, root_and_name
from txnlog.common.validation import mapping, truth
from txnlog.engine.runtime import Clock, Runtime
from txnlog.errors import NamespaceNotFound
from txnlog.log.root_log import not_found
from txnlog.maintenance.fsck.check import check
from txnlog.maintenance.fsck.findings import Progress
from txnlog.maintenance.repair.repair import repair
from txnlog.replies import in_parts
from txnlog.results import CheckLevel, FsckReport, Repaired
from txnlog.store.base import Store
from txnlog.store.folders import close_folders, never_make
from txnlog.store.open import absolute, open_store
from txnlog.store.wrappers import PrefixStore, ReadOnlyStore


def check_namespace(
    root: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    level: CheckLevel = "quick",
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> FsckReport:
    """Check the log in a namespace's folder, and what it names. ``Namespace.fsck`` says what this means.

    Whether the root lists the folder makes no difference: a copy is checked before it is adopted.
    """
    text, name = root_and_name(root, namespace)
    whole = ReadOnlyStore(store or open_store(absolute(text), mapping("storage_options", storage_options)))
    runtime = Runtime(clock)
    try:
        return check(PrefixStore(whole, name), runtime, level, progress=progress)
    except NamespaceNotFound as error:
        raise not_found(whole, name, runtime) from error
    finally:
        runtime.close()
        if store is None:
            close_folders(whole)


@in_parts()
def repair_namespace(
    root: str | os.PathLike[str],
    namespace: str | None = None,
    *,
    source: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    source_storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Repair the log in a namespace's folder, and what it names. ``Namespace.repair`` says what this means.

    Whether the root lists the folder makes no difference: a copy may be repaired before it is adopted.
    """
    text, name = root_and_name(root, namespace)
    whole = store or open_store(absolute(text), mapping("storage_options", storage_options))
    dry_run = truth("dry_run", dry_run)
    runtime = Runtime(clock)
    never_make(whole, name)
    try:
        with opened_copy(source, source_storage_options) as copy:
            target = PrefixStore(ReadOnlyStore(whole) if dry_run else whole, name)
            return repair(target, runtime, copy, dry_run=dry_run, progress=progress)
    except NamespaceNotFound as error:
        raise not_found(whole, name, runtime) from error
    finally:
        runtime.close()
        if store is None:
            close_folders(whole)


__all__ = ["check_namespace", "repair_namespace"]
