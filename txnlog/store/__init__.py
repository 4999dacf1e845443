"""Stores: where the bytes of a root lie. ``docs/stores.md`` says which of them are safe and why."""

from txnlog.store.base import Created, ObjectInfo, ObjectNotFound, Store
from txnlog.store.fsspec_store import FsspecStore
from txnlog.store.identity import StoreIdentity, identity_of
from txnlog.store.local import LocalStore
from txnlog.store.memory import MemoryStore
from txnlog.store.open import open_store
from txnlog.store.probe import Effort, Passed
from txnlog.store.wrappers import CountingStore, ForwardingStore, HookStore, PrefixStore, ReadOnlyStore, StoreCall

__all__ = [
    "CountingStore",
    "Created",
    "Effort",
    "ForwardingStore",
    "FsspecStore",
    "HookStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "ObjectNotFound",
    "Passed",
    "PrefixStore",
    "ReadOnlyStore",
    "Store",
    "StoreCall",
    "StoreIdentity",
    "identity_of",
    "open_store",
]
