"""What txnlog asks of a store: a few calls, of which one decides.

Only :meth:`Store.create` takes part in a decision. Everything else moves candidates (data files) or hints.
Keys are relative, ``/``-separated, built by :mod:`txnlog.format.keys`; a store prefixes them with its root and never
lets one escape it.
The one suite of stores, in ``tests/stores``, runs over every implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Created(enum.Enum):
    """The two answers of create-if-absent (``PROTOCOL.md``, "Appending").

    UNKNOWN stands for *exists*, 409, 412, 429, 5xx, a timeout, a dropped connection: clients retry inside and may
    report their own success as a conflict, so only reading the slot settles it.
    """

    CREATED = "created"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object: key relative to the root, size in bytes, last modification in epoch milliseconds."""

    key: str
    size_bytes: int
    modified_ms: int


class ObjectNotFound(Exception):
    """The key holds no object. Not a TxnLogError: the caller knows whether absence is an answer or damage."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


@runtime_checkable
class Store(Protocol):
    """A flat space of immutable objects under one root.

    Errors: ``ObjectNotFound`` where stated; everything else is a :class:`txnlog.errors.StoreError` (permissions, full
    disk, endpoint gone, retries exhausted), its ``durable`` saying whether bytes may have landed. No method returns
    half an object. All methods are safe to call from several threads.
    """

    def create(self, key: str, data: bytes) -> Created:
        """Create ``key`` if it is absent, atomically: of any number of racers one gets CREATED. Durable when CREATED.

        A failure that certainly stored nothing and will not change by asking again (no permission, disk full,
        read-only) raises StoreError(durable=NOTHING); every other failure is UNKNOWN.
        """

    def put(self, key: str, data: bytes) -> None:
        """Write ``key``, replacing what is there; readers see the old or the new bytes, whole. Durable on return."""

    def put_unsynced(self, key: str, data: bytes) -> None:
        """The same of an object that nothing depends on: a power cut may leave the old one, none, or a damaged one."""

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``; shorter where the object ends. Raises ObjectNotFound."""

    def info(self, key: str) -> ObjectInfo:
        """Size and modification time. Raises ObjectNotFound."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix`` (a folder ends in ``/``), in key order. May lag behind writes."""

    def delete(self, key: str) -> None:
        """Remove ``key``; an absent key is fine."""

    def url(self, key: str) -> str:
        """The address of ``key`` as fsspec writes it (``s3://bucket/…``), or an absolute local path."""

    def sync(self, key: str) -> None:
        """Make sure that an object another process created, and this one has read, survives a power cut.

        A no-op on object stores; on a local file system the folder may not be on disk yet (``PROTOCOL.md``,
        "Appending").
        """


__all__ = ["Created", "ObjectInfo", "ObjectNotFound", "Store"]
