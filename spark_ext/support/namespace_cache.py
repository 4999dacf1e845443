"""A cache of opened namespaces for the life of a process: otherwise every micro-batch would open its namespace anew.

Spark reuses the Python processes that plan reads and commit writes, so that a batch finds what an earlier one opened.
"""

from __future__ import annotations

import json
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_ext.support.options import storage_of_call
from spark_ext.support.paths import Location, check_absolute, locate, normal
from spark_ext.support.python_process import ProcessLock, digest_of, keep_modules
from txnlog.api.internals import connection_of
from txnlog.common.validation import options_json
from txnlog.errors import InvalidInputError
from txnlog.replies import refused_write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace
    from txnlog.client.connection import Connection
    from txnlog.client.session_owner import Mode

_MOST: Final = 32
"""The most cached handles. The least recently used one is dropped first, and ends when nobody uses it any more."""

_Key = tuple[str, str, str, str]

_LOOK_S: Final = 1.0
"""How long a handle is not checked again after a check: the steps of a batch follow each other quickly."""


@dataclass(slots=True)
class _Kept:
    """A cached handle, whether it is the caller's own, and when it was checked last."""

    namespace: Namespace
    own: bool = False
    looked_s: float = 0.0

    def is_there(self) -> bool:
        """Whether the log is still the one that was read. A caller's own handle is usable until it is closed."""
        connection = connection_of(self.namespace)
        if connection.is_closed:
            return False
        now_s = time.monotonic()
        if self.own or now_s - self.looked_s < _LOOK_S:
            return True
        self.looked_s = now_s
        return connection.is_in_log()


_shown: Final[weakref.WeakKeyDictionary[Connection, set[tuple[int, str]]]] = weakref.WeakKeyDictionary()

_MOST_SHOWN: Final = 64
"""The most remembered entries of a log: those of the sources of some queries, with a new one in each batch."""


def shows(connection: Connection, entry: tuple[int, str]) -> bool:
    """Whether the log has an entry with this version and digest.

    It sends at most one request for each entry: the steps of a batch ask for the same one, and entries never change.
    """
    known = entry in _shown.get(connection, ()) or connection.has_entry(*entry)
    if known:
        remember_shown(connection, entry)
    return known


def remember_shown(connection: Connection, entry: tuple[int, str]) -> None:
    """Remember an entry that was read from the log, so that ``shows`` sends no request for it."""
    shown = _shown.setdefault(connection, set())
    if len(shown) >= _MOST_SHOWN:
        shown.clear()
    shown.add(entry)


def short_digest(connection: Connection, version: int) -> str:
    """64 bits of an entry's digest, to distinguish it from those of other logs. Raises CorruptionError."""
    return connection.follower.log.entry(version).digest[:16]


_handles: Final[OrderedDict[_Key, _Kept]] = OrderedDict()
_locations: Final[OrderedDict[tuple[str, bool, str], Location]] = OrderedDict()
_lock: Final = ProcessLock(_handles.clear)  # handles belong to the parent's threads and connections


def namespace_at(location: Location, mode: Mode, storage_options: Mapping[str, Any] | None = None) -> Namespace:
    """The handle of a namespace, opened at the first use. It is shared: do not close it.

    Its state of the log may be old; ``snapshot()`` and every write read the log first.
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


def cached_handle(wanted: Callable[[Connection], bool]) -> Namespace | None:
    """The newest handle that this process has opened, or was given to use, if one is wanted. Do not close it."""
    with _lock:
        known = list(_handles.values())
    for kept in reversed(known):
        connection = connection_of(kept.namespace)
        if not connection.is_closed and wanted(connection) and kept.is_there():
            return kept.namespace
    return None


def use(namespace: Namespace, mode: Mode = "rw", storage_options: Mapping[str, Any] | None = None) -> None:
    """Make this process use the caller's own handle for a namespace: over a wrapped store, or with another clock.

    The caller still has to close it. Other processes of Spark (for planning, and executors) open handles of their own:
    in a driver it serves the commits of ``transaction``, ``write_stream`` and ``process``.

    Raises InvalidInputError for a handle of another mode: nothing can be written with a read-only one.
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
    """The location that a path names (see ``paths.locate``). It is cached, since a namespace stays one."""
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


def location_of_namespace(path: str, storage_options: Mapping[str, Any], *, what: str, more: str = "") -> Location:
    """The namespace that a path names, for a call about ``what`` in it. Raises InvalidInputError for a topic."""
    location = location_of(path, storage_options)
    if location.topic is not None:
        raise InvalidInputError(
            f"the path names the topic {location.topic!r}: {what} a whole namespace",
            advice=f"leave the topic out of the path, which then ends in {location.namespace!r}{more}",
        )
    return location


# --- what is written to -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a job, a query or a transaction, which can be pickled: each process opens it for itself.

    ``storage`` is the storage options as JSON, as tasks get them.
    """

    location: Location
    storage: str = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """The storage options of the caller."""
        options: dict[str, Any] = json.loads(self.storage)
        return options

    def open(self) -> Namespace:
        """This process's handle. Raises NamespaceNotFound."""
        return namespace_at(self.location, "rw", self.storage_options)


def target_at(path: str, storage_options: Mapping[str, Any], *, topics_named: bool = False) -> Target:
    """The target that a path names. Raises InvalidInputError, also for storage options that are not JSON values."""
    storage = options_json(storage_options)
    with refused_write():
        return Target(location_of(path, storage_options, topics_named=topics_named), storage)


def target_of(spark: SparkSession, path: str, storage_options: Mapping[str, Any] | None, *, advice: str) -> Target:
    """The namespace of a call that may write to all of its topics; ``advice`` says how the call names a topic.

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
    "cached_handle",
    "location_of",
    "location_of_namespace",
    "namespace_at",
    "remember_shown",
    "short_digest",
    "shows",
    "target_at",
    "target_of",
    "use",
]
