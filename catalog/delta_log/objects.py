"""The objects of one table's Delta log on the store: commits, which only one writer can create, and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from catalog.delta_log.checkpoint import Hint, is_checkpoint, parse_hint
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, TxnLogError
from txnlog.format import keys
from txnlog.log.slots import occupy
from txnlog.store.base import ObjectInfo, ObjectNotFound, Store

COMMITS_AT_ONCE: Final = 32
"""Commits that are requested at once; a gap of fewer missing ones is seen by the commits after it."""

_ATTEMPTS: Final = 5
"""A publication does not wait for an outage to end: the next one continues where it stopped."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The result of a listing: versions with a commit, versions with a checkpoint, and whether other objects exist."""

    commits: frozenset[int]
    checkpoints: frozenset[int]
    others: bool


class DeltaLog:
    """The Delta log of the table in a folder."""

    def __init__(self, store: Store, runtime: Runtime, folder: str) -> None:
        self._store = store
        self._runtime = runtime
        self.folder = folder
        self.writes = 0
        """How many objects this instance wrote or may have written; errors derive ``durable`` from it."""

    def url(self) -> str:
        """The address of the table."""
        return self._store.url(self.folder)

    def commit_url(self, version: int) -> str:
        """The address of a commit."""
        return self._store.url(keys.delta_commit_key(self.folder, version))

    def get(self, version: int) -> bytes | None:
        """The bytes of a commit, None where there is none."""
        return self._get(keys.delta_commit_key(self.folder, version))

    def get_many(self, first: int, count: int = COMMITS_AT_ONCE) -> dict[int, bytes]:
        """The existing commits among ``count`` versions from ``first`` on, by version."""
        wanted = range(first, first + count)
        found = self._runtime.run_all([partial(self.get, version) for version in wanted])
        return {version: data for version, data in zip(wanted, found, strict=True) if data is not None}

    def create(self, version: int, data: bytes) -> bytes:
        """Create a commit. Returns the bytes that exist then, perhaps another publisher's. Raises OutcomeUnknown."""
        return self._create(keys.delta_commit_key(self.folder, version), data)

    def overwrite(self, version: int, data: bytes) -> None:
        """Overwrite a damaged commit."""
        self._put(keys.delta_commit_key(self.folder, version), data)

    def listed(self) -> Listed:
        """List the log. A listing may lag behind the newest writes."""
        commits: set[int] = set()
        checkpoints: set[int] = set()
        others = False
        for info in self._store.list(keys.delta_prefix(self.folder)):
            match keys.parse_key(info.key):
                case keys.DeltaKey(version=int() as version, checkpoint=False):
                    commits.add(version)
                case keys.DeltaKey(version=int() as version):
                    checkpoints.add(version)
                case _:
                    others = True
        return Listed(frozenset(commits), frozenset(checkpoints), others or bool(checkpoints))

    def objects(self) -> dict[str, ObjectInfo]:
        """All objects of the log by key, whoever wrote them."""
        return {info.key: info for info in self._store.list(keys.delta_prefix(self.folder))}

    def hint(self) -> Hint | None:
        """What ``_last_checkpoint`` says, whoever wrote it; None where nothing useful is there."""
        data = self._get(keys.delta_hint_key(self.folder))
        return None if data is None else parse_hint(data)

    def is_sound(self, hint: Hint) -> bool:
        """Whether the checkpoint that a hint names is there, in the size that it says and with a footer."""
        key = keys.delta_checkpoint_key(self.folder, hint.version)
        try:
            size = self._store.info(key).size_bytes
            if hint.size_bytes not in {None, size}:
                return False
            return is_checkpoint(lambda start, end: self._store.get_range(key, start, end), size)
        except ObjectNotFound:
            return False

    def has_checkpoint(self, version: int) -> bool:
        """Whether there is a checkpoint of a version, whoever made it."""
        try:
            self._store.info(keys.delta_checkpoint_key(self.folder, version))
        except ObjectNotFound:
            return False
        return True

    def create_checkpoint(self, version: int, data: bytes) -> bytes:
        """Create a checkpoint and return the bytes that are there then. An existing one stays: it may have readers."""
        return self._create(keys.delta_checkpoint_key(self.folder, version), data)

    def overwrite_checkpoint(self, version: int, data: bytes) -> None:
        """Overwrite a checkpoint that may be damaged."""
        self._put(keys.delta_checkpoint_key(self.folder, version), data)

    def put_hint(self, data: bytes) -> None:
        """Write ``_last_checkpoint``, which names the newest checkpoint. The checkpoint exists already."""
        self._put(keys.delta_hint_key(self.folder), data)

    def create_file(self, unique: str, data: bytes) -> bytes:
        """Create a data file of a table that is no topic. Returns the object's bytes afterwards."""
        return self._create(keys.table_file_key(self.folder, unique), data)

    def file(self, unique: str, most_bytes: int) -> bytes | None:
        """The first ``most_bytes`` bytes of such a data file, None where it does not exist."""
        try:
            return self._store.get_range(keys.table_file_key(self.folder, unique), 0, most_bytes)
        except ObjectNotFound:
            return None

    def overwrite_file(self, unique: str, data: bytes) -> None:
        """Overwrite such a data file, which was damaged."""
        self._put(keys.table_file_key(self.folder, unique), data)

    def file_size(self, unique: str) -> int | None:
        """The size of such a data file in bytes, None where it does not exist."""
        try:
            return self._store.info(keys.table_file_key(self.folder, unique)).size_bytes
        except ObjectNotFound:
            return None

    def files(self) -> Iterator[tuple[str, int]]:
        """All such data files, with their modification times in epoch milliseconds."""
        for info in self._store.list(f"{self.folder}/"):
            key = keys.parse_key(info.key)
            if isinstance(key, keys.TableFileKey):
                yield key.unique, info.modified_ms

    def delete_file(self, unique: str) -> None:
        """Delete such a data file."""
        self._store.delete(keys.table_file_key(self.folder, unique))

    def _create(self, key: str, data: bytes) -> bytes:
        try:
            found = occupy(self._store, self._runtime, key, data, attempts=_ATTEMPTS)
        except TxnLogError as error:
            self.writes += error.durable is Durable.MAYBE
            raise
        self.writes += found == data
        return found

    def _put(self, key: str, data: bytes) -> None:
        self.writes += 1  # also where the outcome of the write is unknown
        self._store.put(key, data)

    def _get(self, key: str) -> bytes | None:
        try:
            return self._store.get(key)
        except ObjectNotFound:
            return None


__all__ = ["COMMITS_AT_ONCE", "DeltaLog", "Listed"]
