"""A store on anything that fsspec opens: S3 by s3fs, Azure by adlfs, Google Cloud Storage by gcsfs.

With ``pipe_file(mode="create")`` these three send the condition with the bytes (If-None-Match, ifGenerationMatch=0) and
the service decides. Of other file systems most look first and write then; they can be wrapped for reading, and the
probe refuses them (``docs/stores.md``).
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from txnlog.engine.log_lines import LogLines
from txnlog.engine.main_thread import outside_main_thread
from txnlog.errors import Durable, StoreError
from txnlog.store import fsspec_errors
from txnlog.store.base import Created, ObjectInfo, ObjectNotFound
from txnlog.store.identity import StoreIdentity
from txnlog.store.key_guard import check_key, check_prefix, is_key, split_prefix
from txnlog.store.rights import denied

T = TypeVar("T")

MAX_CREATE_BYTES: Final = 32 << 20
"""All three libraries send this much in one conditional request (s3fs 100 MB, adlfs 64 MiB, gcsfs 50 MiB)."""

_READ_ATTEMPTS: Final = 3
"""For answers that break off in the middle; everything else is repeated by the libraries themselves, with jitter."""


_logger: Final = LogLines("txnlog.store")


def _anything(_answer: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Backend:
    """How to reach a store, and what is known of it.

    Attributes:
        open_filesystem: makes a file system of fsspec's; called again after a fork.
        root: path of the root in that file system, without a ``/`` at its end.
        url: the same as a URL.
        identity: what a verdict is recorded for.
        create_options: extra arguments of ``pipe_file`` for a create.
        confirms: whether what ``pipe_file`` returned comes from the service.
        read_options: extra arguments of ``cat_file`` for a whole object.
        secrets: texts that no message may contain.
    """

    open_filesystem: Callable[[], Any]
    root: str
    url: str
    identity: StoreIdentity
    create_options: dict[str, Any] = field(default_factory=dict)
    confirms: Callable[[object], bool] = _anything
    read_options: dict[str, Any] = field(default_factory=dict)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


class FsspecStore:
    """Objects below one path of an fsspec file system. Made by :func:`txnlog.store.open_store`.

    Requests are retried by the library below, bounded and with finite timeouts; a create whose outcome stays open is
    UNKNOWN. Listings are never cached. A forked process opens connections of its own.

    Attributes:
        service: the endpoint and the bucket, as a hash.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.service = backend.identity.endpoint_hash
        self._opened: dict[int, Any] = {}  # by process: what its parent opened is not closed in a child

    @property
    def identity(self) -> StoreIdentity:
        """Protocol and library, hashed with endpoint and bucket."""
        return self._backend.identity

    @outside_main_thread
    def create(self, key: str, data: bytes) -> Created:
        """One conditional request. Whatever is not a clear yes or a lasting no of the service is UNKNOWN."""
        path = self._path(key)
        if len(data) > MAX_CREATE_BYTES:
            raise StoreError(
                f"create of {key!r} with {len(data)} bytes: at most {MAX_CREATE_BYTES} fit one conditional request",
                advice="put big objects under unique names, and create small ones",
                durable=Durable.NOTHING,
            )
        filesystem = self._filesystem("create", key)
        try:
            answer = filesystem.pipe_file(path, data, mode="create", **self._backend.create_options)
        except Exception as error:  # noqa: BLE001 - each library raises what it likes, and any of it leaves the outcome unknown
            if not fsspec_errors.is_refused(error, path):
                level = logging.DEBUG if fsspec_errors.is_conflict(error) else logging.WARNING
                text = fsspec_errors.describe(error, self._backend.secrets)
                _logger.log(level, "create of %s in %s: outcome unknown: %s", key, self._backend.url, text)
                return Created.UNKNOWN
            refusal = self._failure("create", key, path, error, Durable.NOTHING)
        else:
            return Created.CREATED if self._backend.confirms(answer) else Created.UNKNOWN
        raise refusal

    def put(self, key: str, data: bytes) -> None:
        """Replace in one request, or in parts that become visible together."""
        path = self._path(key)
        self._request("put", key, path, lambda fs: fs.pipe_file(path, data), Durable.MAYBE)

    put_unsynced = put

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        path = self._path(key)
        return self._request("get", key, path, lambda fs: fs.cat_file(path, **self._backend.read_options))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes ``[start, end)``; shorter where the object ends. Raises ObjectNotFound."""
        assert 0 <= start <= end, (start, end)
        path = self._path(key)
        if start == end:
            self.info(key)
            return b""

        def read(filesystem: Any) -> bytes:
            try:
                return filesystem.cat_file(path, start=start, end=end)
            except Exception as error:
                if fsspec_errors.is_empty_range(error):
                    return b""
                raise

        return self._request("get_range", key, path, read)

    def info(self, key: str) -> ObjectInfo:
        """Size and modification time (the service's Last-Modified). Raises ObjectNotFound."""
        path = self._path(key)
        found = self._request("info", key, path, lambda fs: fs.info(path))
        if found.get("type") != "file":
            # A "folder" is only a shared beginning of other keys.
            raise ObjectNotFound(key)
        return self._object_info(key, found)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, sorted and filtered here: some services do neither."""
        folder, rest = split_prefix(check_prefix(prefix))
        base = f"{self._backend.root}/{folder}" if folder else self._backend.root
        found = self._listing(prefix, base, rest)
        start = len(self._backend.root) + 1
        infos = []
        for path, info in found.items():
            key = path[start:]
            if info.get("type") == "file" and key.startswith(prefix) and is_key(key):
                infos.append(self._object_info(key, info))
        return iter(sorted(infos, key=lambda info: info.key))

    def delete(self, key: str) -> None:
        """Remove ``key``; an absent key is fine."""
        path = self._path(key)
        try:
            self._request("delete", key, path, lambda fs: fs.rm_file(path), Durable.MAYBE)
        except ObjectNotFound:
            return

    def url(self, key: str) -> str:
        """The address below the URL that the store was opened with."""
        return f"{self._backend.url}/{check_key(key)}"

    def sync(self, key: str) -> None:
        """Nothing to do: an object that can be read from the service is durable there."""
        check_key(key)

    def __repr__(self) -> str:
        return f"<FsspecStore {self._backend.url}>"

    def _path(self, key: str) -> str:
        return f"{self._backend.root}/{check_key(key)}"

    def _listing(self, prefix: str, base: str, rest: str) -> dict[str, dict[str, Any]]:
        try:
            return self._request("list", prefix, base, lambda fs: fs.find(base, prefix=rest, detail=True))
        except ObjectNotFound:
            return {}

    @outside_main_thread
    def _request(
        self, call: str, key: str, path: str, request: Callable[[Any], T], durable: Durable = Durable.NOTHING
    ) -> T:
        filesystem = self._filesystem(call, key)
        failure: Exception
        attempt = 0
        while True:
            attempt += 1
            try:
                return request(filesystem)
            except Exception as error:  # noqa: BLE001 - each library raises what it likes; all of it becomes StoreError
                if fsspec_errors.is_broken_body(error) and attempt < _READ_ATTEMPTS:
                    continue
                if fsspec_errors.is_absent(error, path) and call != "put":
                    failure = ObjectNotFound(key)
                else:
                    refused = fsspec_errors.is_refused(error, path)
                    failure = self._failure(call, key, path, error, Durable.NOTHING if refused else durable)
            # Outside the except block: the library's exception may quote credentials, and would be chained in it.
            raise failure

    def _failure(self, call: str, key: str, path: str, error: Exception, durable: Durable) -> StoreError:
        text = fsspec_errors.describe(error, self._backend.secrets)
        if fsspec_errors.is_denied(error, path):
            return denied(call, key, f"{self._backend.url}/{key}", text, durable)
        return StoreError(
            f"{call} of {key!r} in {self._backend.url} failed: {text}",
            advice=fsspec_errors.advice_for(error, path),
            durable=durable,
        )

    def _filesystem(self, call: str, key: str) -> Any:
        found = self._opened.get(os.getpid())
        if found is not None:
            return found
        try:
            made = self._backend.open_filesystem()
        except Exception as error:  # noqa: BLE001 - opening reads credentials, profiles and plug-ins
            failure = self._failure(call, key, self._backend.root, error, Durable.NOTHING)
        else:
            # Without a lock, which the handler of a signal may find taken: of several the first one counts.
            return self._opened.setdefault(os.getpid(), made)
        raise failure

    def _object_info(self, key: str, found: dict[str, Any]) -> ObjectInfo:
        return ObjectInfo(key, int(found["size"]), self._modified_ms(key, found))

    def _modified_ms(self, key: str, found: dict[str, Any]) -> int:
        for name in ("LastModified", "last_modified", "mtime", "updated", "modified", "created"):
            value = found.get(name)
            if isinstance(value, dt.datetime):
                return int(value.timestamp() * 1000)
            if isinstance(value, (int, float)):
                return int(value * 1000)
        raise StoreError(f"{self._backend.url} reports no modification time of {key!r}", advice="use another store")


__all__ = ["MAX_CREATE_BYTES", "Backend", "FsspecStore"]
