"""A store as it would be: a repair that is only foreseen writes here, and reads what it wrote."""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.format import keys
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound, Store
from txnlog.store.memory import MemoryStore
from txnlog.store.wrappers import ForwardingStore


class ForeseenStore(ForwardingStore):
    """The objects of ``inner`` with what was written or deleted since: all of that stays in memory.

    A segment stays in the copy that has it, since it may be big.
    """

    def __init__(self, inner: Store, copy: Store | None) -> None:
        super().__init__(inner)
        self._written = MemoryStore()
        self._copy = copy
        self._copied: set[str] = set()
        self._deleted: set[str] = set()

    def _of(self, key: str) -> Store:
        """The store that has an object, or would have it."""
        if key in self._deleted:
            return self._written
        if self._copy is not None and key in self._copied:
            return self._copy
        try:
            self._written.info(key)
        except ObjectNotFound:
            return self.inner
        return self._written

    def create(self, key: str, data: bytes) -> Created:
        """CREATED where the key is free, and then it is only foreseen."""
        try:
            self.info(key)
        except ObjectNotFound:
            self.put(key, data)
            return Created.CREATED
        return Created.UNKNOWN

    def put(self, key: str, data: bytes) -> None:
        """Only foreseen."""
        if self._copy is not None and isinstance(keys.parse_key(key), keys.SegmentKey):
            self._copied.add(key)
        else:
            self._written.put(key, data)
        self._deleted.discard(key)

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """The object as it would be."""
        return self._of(key).get(key)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of the object as it would be."""
        return self._of(key).get_range(key, start, end)

    def info(self, key: str) -> ObjectInfo:
        """Of the object as it would be."""
        return self._of(key).info(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """What would be there."""
        found = {item.key: item for item in self.inner.list(prefix) if item.key not in self._deleted}
        found |= {item.key: item for item in self._written.list(prefix)}
        found |= {key: self.info(key) for key in self._copied if key.startswith(prefix)}
        return iter([found[key] for key in sorted(found)])

    def delete(self, key: str) -> None:
        """Only foreseen."""
        self._written.delete(key)
        self._copied.discard(key)
        self._deleted.add(key)

    def sync(self, key: str) -> None:
        """Nothing: nothing was written."""


__all__ = ["ForeseenStore"]
