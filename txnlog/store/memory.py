"""A store in this process's memory: for trying things out and for tests. Nothing survives the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from txnlog.engine.runtime import SYSTEM_CLOCK
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound
from txnlog.store.identity import StoreIdentity, make_identity
from txnlog.store.key_guard import check_key, check_prefix


class _Space:
    """The objects of one name: bytes and modification time by key."""

    __slots__ = ("objects",)

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}


_spaces: Final[dict[str, _Space]] = {}


class MemoryStore:
    """Objects in a dict, changed in one step each. Handles of the same ``name`` share a space while the process lives.

    Args:
        name: the space to share; None makes one of its own.
        clock_ms: where modification times come from, in epoch milliseconds.
    """

    def __init__(self, name: str | None = None, *, clock_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms) -> None:
        self._name = name
        self._clock_ms = clock_ms
        if name is None:
            self._space = _Space()
        else:
            self._space = _spaces.setdefault(name, _Space())

    @property
    def identity(self) -> StoreIdentity:
        """Kind ``memory``, hashed with the name of the space."""
        return make_identity("memory", "", self._name or "")

    def create(self, key: str, data: bytes) -> Created:
        """One step of the dict."""
        made = (bytes(data), self._clock_ms())
        is_first = self._space.objects.setdefault(check_key(key), made) is made
        return Created.CREATED if is_first else Created.UNKNOWN

    def put(self, key: str, data: bytes) -> None:
        """Replace in one step."""
        self._space.objects[check_key(key)] = (bytes(data), self._clock_ms())

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        return self._object(key)[0]

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``; shorter where the object ends. Raises ObjectNotFound."""
        assert 0 <= start <= end, (start, end)
        return self._object(key)[0][start:end]

    def info(self, key: str) -> ObjectInfo:
        """Size and modification time. Raises ObjectNotFound."""
        data, modified_ms = self._object(key)
        return ObjectInfo(key, len(data), modified_ms)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """A copy of the moment of the call, in key order."""
        check_prefix(prefix)
        found = sorted(item for item in list(self._space.objects.items()) if item[0].startswith(prefix))
        return (ObjectInfo(key, len(data), modified_ms) for key, (data, modified_ms) in found)

    def delete(self, key: str) -> None:
        """Remove ``key``; an absent key is fine."""
        self._space.objects.pop(check_key(key), None)

    def url(self, key: str) -> str:
        """``memory://name/key``; only this process can follow it."""
        return f"memory://{self._name or ''}/{check_key(key)}"

    def sync(self, key: str) -> None:
        """Nothing to do: memory is as durable as it will ever be."""
        check_key(key)

    def __repr__(self) -> str:
        return f"<MemoryStore {self._name!r}>"

    def _object(self, key: str) -> tuple[bytes, int]:
        found = self._space.objects.get(check_key(key))
        if found is None:
            raise ObjectNotFound(key)
        return found


__all__ = ["MemoryStore"]
