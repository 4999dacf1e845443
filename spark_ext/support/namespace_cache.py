"""Opened namespaces, kept for the life of a process: every micro-batch would open cold otherwise.

Spark reuses the Python processes that plan reads and commit writes, so what one batch opened the next one finds.
"""

from __future__ import annotations

import json
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_ext.support.options import storage_of_call
from spark_ext.support.paths import Location, check_absolute, locate, normal
from spark_ext.support.python_process import ProcessLock, digest_of, keep_modules
from txnlog.api.internals import connection_of
from txnlog.common.validation import options_json
from txnlog.errors import InvalidInputError, refused_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.client.connection import Connection
    from txnlog.client.session_owner import Mode

_MOST: Final = 32
"""Handles kept; the one that was not used for the longest time goes first, and ends when nobody uses it any more."""

_Key = tuple[str, str, str, str]

_LOOK_S: Final = 1.0
"""What was compared so lately is not compared again: the steps of a batch follow each other quickly."""


@dataclass(slots=True)
class _Kept:
    """A handle, whether it is the caller's own, and when its log was looked at."""

    namespace: Namespace
    own: bool = False
    looked_s: float = 0.0

    def is_there(self) -> bool:
        """Whether the log still holds what the handle has read of it. The caller's own is there until it was closed."""
        connection = connection_of(self.namespace)
        if connection.is_closed:
            return False
        now_s = time.monotonic()
        if self.own or now_s - self.looked_s < _LOOK_S:
            return True
        self.looked_s = now_s
        return connection.is_in_log()


_logs: Final[weakref.WeakKeyDictionary[Connection, str]] = weakref.WeakKeyDictionary()


def log_of(connection: Connection) -> str:
    """What tells a namespace's log from all others but its copies: a digest of its first entry, which has a random id.

    Names and numbers do not: roots that one script made have them all alike.
    """
    found = _logs.get(connection)
    if found is None:
        found = _logs[connection] = short_digest(connection, 0)
    return found


_shown: Final[weakref.WeakKeyDictionary[Connection, set[tuple[int, str]]]] = weakref.WeakKeyDictionary()

_MOST_SHOWN: Final = 64
"""Entries remembered of a log: those of the sources of some queries, each of which has a new one in each batch."""


def shows(connection: Connection, entry: tuple[int, str]) -> bool:
    """Whether the log holds this very entry, by version and digest.

    At most one request for each: the steps of a batch ask for the same entry, and none is ever replaced.
    """
    known = entry in _shown.get(connection, ()) or connection.has_entry(*entry)
    if known:
        remember_shown(connection, entry)
    return known


def remember_shown(connection: Connection, entry: tuple[int, str]) -> None:
    """Ask no more for an entry that was read from the log."""
    shown = _shown.setdefault(connection, set())
    if len(shown) >= _MOST_SHOWN:
        shown.clear()
    shown.add(entry)


def short_digest(connection: Connection, version: int) -> str:
    """What tells an entry from that of another log: 64 bits. Raises CorruptionError where it is gone."""
    return connection.follower.log.entry(version).digest[:16]


_handles: Final[OrderedDict[_Key, _Kept]] = OrderedDict()
_locations: Final[OrderedDict[tuple[str, bool, str], Location]] = OrderedDict()
_lock: Final = ProcessLock(_handles.clear)  # handles belong to the parent's threads and connections


def namespace_at(location: Location, mode: Mode, storage_options: Mapping[str, Any] | None = None) -> Namespace:
    """The handle of a namespace, opened at the first use. It is shared: do not close it.

    What it knows of the log may be old; ``snapshot()`` and every write look at the log first.
    """
    from txnlog.api.opening import open_namespace  # noqa: PLC0415 - needs what executors may not have

    keep_modules()
    key = (location.root, location.namespace, mode, digest_of(storage_options))
    with _lock:
        kept = _handles.get(key)
        if kept is not None:
            _handles.move_to_end(key)
    if kept is not None and kept.is_there():
        return kept.namespace
    opened = open_namespace(location.root, location.namespace, mode=mode, storage_options=storage_options)
    made = _Kept(opened, looked_s=time.monotonic())
    with _lock:
        found = _handles.get(key)
        if found is None or found is kept:
            found = _handles[key] = made
        while len(_handles) > _MOST:
            _handles.popitem(last=False)
    if found is not made:
        opened.close()
    return found.namespace


def use(namespace: Namespace, mode: Mode = "rw", storage_options: Mapping[str, Any] | None = None) -> None:
    """From here on this process takes a handle of one's own for a namespace: over a wrapped store, with another clock.

    It stays the caller's to close. What Spark starts besides (planning and executor processes) opens handles for
    itself: of a driver this is the side that commits for ``transaction``, ``write_stream`` and ``process``.

    Raises InvalidInputError for a handle of another mode: by a read-only one nothing could be written.
    """
    opened = connection_of(namespace).mode
    if opened != mode:
        raise InvalidInputError(
            f"the handle was opened with mode={opened!r}, and is to serve calls with mode={mode!r}",
            advice=f"open it with mode={mode!r}, or say use(ns, mode={opened!r})",
        )
    key = (normal(namespace.root), namespace.name, mode, digest_of(storage_options))
    with _lock:
        _handles[key] = _Kept(namespace, own=True)


def location_of(path: str, storage_options: Mapping[str, Any] | None = None, *, topics_named: bool = False) -> Location:
    """What a path names (see ``paths.locate``), remembered: a namespace does not become something else."""
    check_absolute(path)
    key = (path, topics_named, digest_of(storage_options))
    with _lock:
        found = _locations.get(key)
    if found is None:
        found = locate(path, storage_options, topics_named=topics_named)
        with _lock:
            _locations[key] = found
            while len(_locations) > _MOST * 8:
                _locations.popitem(last=False)
    return found


# --- what is written to -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """Where a job, a query or a transaction writes, as it travels by pickle: each process opens it for itself.

    ``storage`` is the storage options as tasks get them.
    """

    location: Location
    storage: str = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As they were given."""
        options: dict[str, Any] = json.loads(self.storage)
        return options

    def open(self) -> Namespace:
        """This process's handle. Raises NamespaceNotFound."""
        return namespace_at(self.location, "rw", self.storage_options)


def target_at(path: str, storage_options: Mapping[str, Any], *, topics_named: bool = False) -> Target:
    """What a path names. Raises InvalidInputError, also for storage options that are no JSON; it shows none of them."""
    storage = options_json(storage_options)
    with refused_write():
        return Target(location_of(path, storage_options, topics_named=topics_named), storage)


def target_of(spark: SparkSession, path: str, storage_options: Mapping[str, Any] | None, *, advice: str) -> Target:
    """The namespace of a call that may write to all of its topics; ``advice`` says where it is told which.

    Raises InvalidInputError: the path names a topic, or see :func:`target_at`.
    """
    target = target_at(path, storage_of_call(spark, storage_options))
    if target.location.topic is not None:
        raise InvalidInputError(
            f"the path names the topic {target.location.topic!r}: any topic of a namespace can be written to",
            advice=f"leave the topic out of the path, and {advice}",
        )
    return target


__all__ = [
    "Target",
    "location_of",
    "log_of",
    "namespace_at",
    "remember_shown",
    "short_digest",
    "shows",
    "target_at",
    "target_of",
    "use",
]
