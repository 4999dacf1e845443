"""Wrappers around a store, each with one duty: count, forbid writes, move below a folder, call hooks.

They nest: ``CountingStore(ReadOnlyStore(store))``. Everything that a wrapper does not change it forwards.
"""

from __future__ import annotations

import enum
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from txnlog.errors import ReadOnly
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound, Store
from txnlog.store.identity import StoreIdentity, identity_of
from txnlog.store.key_guard import check_key, check_prefix

T = TypeVar("T")


class ForwardingStore:
    """Hands every call to ``inner``: the base of wrappers, which override what they change."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def identity(self) -> StoreIdentity:
        """The inner store's: a verdict about it is a verdict about its wrappers."""
        return identity_of(self.inner)

    def create(self, key: str, data: bytes) -> Created:
        """See :meth:`txnlog.store.base.Store.create`."""
        return self.inner.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See :meth:`txnlog.store.base.Store.put`."""
        self.inner.put(key, data)

    def put_unsynced(self, key: str, data: bytes) -> None:
        """See :meth:`txnlog.store.base.Store.put_unsynced`."""
        self.inner.put_unsynced(key, data)

    def get(self, key: str) -> bytes:
        """See :meth:`txnlog.store.base.Store.get`."""
        return self.inner.get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """See :meth:`txnlog.store.base.Store.get_range`."""
        return self.inner.get_range(key, start, end)

    def info(self, key: str) -> ObjectInfo:
        """See :meth:`txnlog.store.base.Store.info`."""
        return self.inner.info(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See :meth:`txnlog.store.base.Store.list`."""
        return self.inner.list(prefix)

    def delete(self, key: str) -> None:
        """See :meth:`txnlog.store.base.Store.delete`."""
        self.inner.delete(key)

    def url(self, key: str) -> str:
        """See :meth:`txnlog.store.base.Store.url`."""
        return self.inner.url(key)

    def sync(self, key: str) -> None:
        """See :meth:`txnlog.store.base.Store.sync`."""
        self.inner.sync(key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.inner!r}>"


class StoreCall(enum.Enum):
    """A call of the store that may reach its server; ``url`` never does."""

    CREATE = "create"
    PUT = "put"
    GET = "get"
    GET_RANGE = "get_range"
    INFO = "info"
    LIST = "list"
    DELETE = "delete"
    SYNC = "sync"


class HookStore(ForwardingStore):
    """Calls ``before(call, key)`` and ``after(call, key, result)`` around every request: the place for faults.

    A hook may raise, sleep, end the process, or write to ``inner`` by itself. What ``before`` raises takes the place of
    the request (dropped); what ``after`` raises takes the place of its answer (lost response). ``after`` sees no failed
    request but ObjectNotFound, which is an answer, as its ``result``. A listing counts as done when it was asked for.
    """

    def __init__(
        self,
        inner: Store,
        *,
        before: Callable[[StoreCall, str], None] | None = None,
        after: Callable[[StoreCall, str, object], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._before = before
        self._after = after

    def create(self, key: str, data: bytes) -> Created:
        """The inner create between the hooks."""
        return self._hooked(StoreCall.CREATE, key, lambda: self.inner.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        """The inner put between the hooks."""
        self._hooked(StoreCall.PUT, key, lambda: self.inner.put(key, data))

    def put_unsynced(self, key: str, data: bytes) -> None:
        """The inner put_unsynced between the hooks, to which it is a put."""
        self._hooked(StoreCall.PUT, key, lambda: self.inner.put_unsynced(key, data))

    def get(self, key: str) -> bytes:
        """The inner get between the hooks."""
        return self._hooked(StoreCall.GET, key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The inner get_range between the hooks."""
        return self._hooked(StoreCall.GET_RANGE, key, lambda: self.inner.get_range(key, start, end))

    def info(self, key: str) -> ObjectInfo:
        """The inner info between the hooks."""
        return self._hooked(StoreCall.INFO, key, lambda: self.inner.info(key))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The inner list between the hooks."""
        return self._hooked(StoreCall.LIST, prefix, lambda: self.inner.list(prefix))

    def delete(self, key: str) -> None:
        """The inner delete between the hooks."""
        self._hooked(StoreCall.DELETE, key, lambda: self.inner.delete(key))

    def sync(self, key: str) -> None:
        """The inner sync between the hooks."""
        self._hooked(StoreCall.SYNC, key, lambda: self.inner.sync(key))

    def _hooked(self, call: StoreCall, key: str, request: Callable[[], T]) -> T:
        if self._before is not None:
            self._before(call, key)
        try:
            result = request()
        except ObjectNotFound as absent:
            if self._after is not None:
                self._after(call, key, absent)
            raise
        if self._after is not None:
            self._after(call, key, result)
        return result


class CountingStore(HookStore):
    """Counts requests by call and by class of key.

    Args:
        inner: the store that is asked.
        classify: the class of a key, such as ``entry`` or ``segment``; everything is ``object`` without it.
    """

    def __init__(self, inner: Store, classify: Callable[[str], str] = lambda _key: "object") -> None:
        super().__init__(inner, before=self._count)
        self._classify = classify
        # A lock that nobody waits for: who counts may have it, and be interrupted by the handler of a signal.
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._made: deque[tuple[str, str]] = deque()

    def counts(self) -> dict[tuple[str, str], int]:
        """Requests by (call, class of key) since the start or the last :meth:`reset`."""
        self._settle()
        found = Counter(self._counts)
        found.update(list(self._made))
        return dict(found)

    def reset(self) -> None:
        """Begin at zero again."""
        self._settle()
        self._counts = Counter()

    def _count(self, call: StoreCall, key: str) -> None:
        self._made.append((call.value, self._classify(key)))
        self._settle()

    def _settle(self) -> None:
        """Count what was made, unless somebody else does."""
        if self._lock.acquire(blocking=False):
            try:
                while self._made:
                    self._counts[self._made.popleft()] += 1
            finally:
                self._lock.release()


class ReadOnlyStore(ForwardingStore):
    """Refuses every call that changes the store, before it is sent: GET and LIST rights are enough."""

    def create(self, key: str, data: bytes) -> NoReturn:  # noqa: ARG002 - the interface's signature
        """Raises ReadOnly."""
        raise ReadOnly(f"create of {key!r} through a read-only handle")

    def put(self, key: str, data: bytes) -> NoReturn:  # noqa: ARG002 - the interface's signature
        """Raises ReadOnly."""
        raise ReadOnly(f"put of {key!r} through a read-only handle")

    put_unsynced = put

    def delete(self, key: str) -> NoReturn:
        """Raises ReadOnly."""
        raise ReadOnly(f"delete of {key!r} through a read-only handle")

    def sync(self, key: str) -> None:
        """Nothing: who cannot write promises nothing about what others wrote."""


class PrefixStore(ForwardingStore):
    """The view below one folder, such as a namespace's. Keys are checked first, so none leads out of it.

    Args:
        inner: the store of the root.
        folder: the folder without a ``/`` at its end, such as ``sales``.

    Attributes:
        prefix: what keys of the inner store begin with.
    """

    def __init__(self, inner: Store, folder: str) -> None:
        super().__init__(inner)
        self.prefix = check_key(folder) + "/"

    def create(self, key: str, data: bytes) -> Created:
        """The inner create below the folder."""
        return self.inner.create(self._below(key), data)

    def put(self, key: str, data: bytes) -> None:
        """The inner put below the folder."""
        self.inner.put(self._below(key), data)

    def put_unsynced(self, key: str, data: bytes) -> None:
        """The inner put_unsynced below the folder."""
        self.inner.put_unsynced(self._below(key), data)

    def get(self, key: str) -> bytes:
        """The inner get below the folder."""
        with _NamedFromBelow(key):
            return self.inner.get(self._below(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The inner get_range below the folder."""
        with _NamedFromBelow(key):
            return self.inner.get_range(self._below(key), start, end)

    def info(self, key: str) -> ObjectInfo:
        """The inner info below the folder, under the key seen from there."""
        with _NamedFromBelow(key):
            found = self.inner.info(self._below(key))
        return ObjectInfo(key, found.size_bytes, found.modified_ms)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The inner list below the folder, with keys seen from there."""
        found = self.inner.list(self.prefix + check_prefix(prefix))
        start = len(self.prefix)
        return (ObjectInfo(info.key[start:], info.size_bytes, info.modified_ms) for info in found)

    def delete(self, key: str) -> None:
        """The inner delete below the folder."""
        self.inner.delete(self._below(key))

    def url(self, key: str) -> str:
        """The address of the object below the folder."""
        return self.inner.url(self._below(key))

    def sync(self, key: str) -> None:
        """The inner sync below the folder."""
        self.inner.sync(self._below(key))

    def __repr__(self) -> str:
        return f"<PrefixStore {self.prefix} of {self.inner!r}>"

    def _below(self, key: str) -> str:
        return self.prefix + check_key(key)


class _NamedFromBelow:
    """ObjectNotFound with the key as the caller wrote it."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ObjectNotFound):
            raise ObjectNotFound(self._key) from None


__all__ = [
    "CountingStore",
    "ForwardingStore",
    "HookStore",
    "PrefixStore",
    "ReadOnlyStore",
    "StoreCall",
]
