"""What a process of Spark keeps from task to task and from batch to batch, and what a forked child must not take over.

Executors import it: the standard library, ``txnlog.engine.runtime`` and ``txnlog.store`` only.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from txnlog.engine.runtime import renew_in_child
from txnlog.store.base import Store
from txnlog.store.open import open_store
from txnlog.store.wrappers import PrefixStore


class ProcessLock:
    """A lock of a module, for ``with``, that a forked child gets anew: who holds it at the fork may not be there.

    Args:
        forget: called in the child as well: what the lock guards, and what belongs to the parent alone.
    """

    def __init__(self, forget: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._forget = forget
        renew_in_child(self)

    def _begin_in_child(self) -> None:
        """In a forked child: free, and what it guards is forgotten."""
        self._lock = threading.Lock()
        if self._forget is not None:
            self._forget()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def digest_of(storage_options: Mapping[str, Any] | None) -> str:
    """A digest of storage options, so that no secret is kept where a dump of the keys would show it."""
    text = json.dumps(dict(storage_options or {}), sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


# --- Spark's Python workers -------------------------------------------------------------------------------------------

_MOST_CALLS: Final = 64
_calls = 0


def keep_modules() -> None:
    """In a Python worker of Spark: what there is now stays, so that nobody looks for garbage in it.

    Spark's daemon has each worker collect garbage after each task, which takes 40 ms of a processor with all modules
    that we need, several times in every micro-batch. Called for each task: the first few times count, since modules are
    imported where they are needed, and no more, since what is kept is never freed. Nothing is done in a user's process.
    """
    global _calls  # noqa: PLW0603 - of the process
    _calls += 1
    if _calls > _MOST_CALLS or _calls & (_calls - 1):
        return
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        gc.collect()
        gc.freeze()


# --- stores -----------------------------------------------------------------------------------------------------------

_MOST: Final = 16

_stores: Final[dict[tuple[str, str], Store]] = {}
"""By root and digest of the storage options."""

_lock: Final = ProcessLock(_stores.clear)


def store_of(root: str, namespace: str, storage_options: Mapping[str, Any]) -> Store:
    """A namespace's store for tasks. Its root's is kept: connecting to an object store takes longer than a read."""
    keep_modules()
    key = (root, digest_of(storage_options))
    with _lock:
        store = _stores.get(key)
        if store is None:
            store = open_store(root, storage_options)
            if len(_stores) >= _MOST:
                _stores.clear()
            _stores[key] = store
    return PrefixStore(store, namespace)


__all__ = ["ProcessLock", "digest_of", "keep_modules", "store_of"]
