"""Folders, which only local stores have."""

from __future__ import annotations

from txnlog.store.base import Store
from txnlog.store.local import LocalStore
from txnlog.store.wrappers import ForwardingStore, PrefixStore


def never_make(store: Store, folder: str) -> None:
    """Have a local store not make a folder again that is there: who removes or moves it means it."""
    local, whole = _local(store, folder)
    if local is not None:
        local.never_make(whole)


def may_make(store: Store, folder: str) -> None:
    """Let a store make a folder: somebody begins it anew."""
    local, whole = _local(store, folder)
    if local is not None:
        local.may_make(whole)


def close_folders(store: Store) -> None:
    """Have a local store close the folders that it keeps open, for its owner, who is done with it."""
    local, _ = _local(store, "")
    if local is not None:
        local.close()


def remove_unfinished(store: Store, before_ms: int) -> None:
    """Have a local store remove the temporary files that processes left which died before a time."""
    local, prefix = _local(store, "")
    if local is not None:
        local.remove_unfinished(prefix, before_ms)


def _local(store: Store, folder: str) -> tuple[LocalStore | None, str]:
    while isinstance(store, ForwardingStore):
        if isinstance(store, PrefixStore):
            folder = store.prefix + folder
        store = store.inner
    return (store if isinstance(store, LocalStore) else None), folder


__all__ = ["close_folders", "may_make", "never_make", "remove_unfinished"]
