"""Opened namespaces, kept for the life of a process: every micro-batch would open cold otherwise.

Spark reuses the Python processes that plan reads and commit writes, so what one batch opened the next one finds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_ext.paths import Location, locate, normal
from spark_ext.process import ProcessLock, digest_of

if TYPE_CHECKING:
    from txnlog.namespace import Namespace

_MOST: Final = 32
"""Handles kept; the one that was not used for the longest time goes first, and ends when nobody uses it any more."""

_Key = tuple[str, str, str, str]

_handles: Final[OrderedDict[_Key, Namespace]] = OrderedDict()
_locations: Final[OrderedDict[tuple[str, bool, str], Location]] = OrderedDict()
_lock: Final = ProcessLock(_handles.clear)  # handles belong to the parent's threads and connections


def namespace_at(
    location: Location, mode: Literal["r", "rw"], storage_options: Mapping[str, Any] | None = None
) -> Namespace:
    """The handle of a namespace, opened at the first use. It is shared: do not close it.

    What it knows of the log may be old; ``snapshot()`` and every write look at the log first.
    """
    from txnlog.namespace import open_namespace  # noqa: PLC0415 - needs what executors may not have

    key = (location.root, location.namespace, mode, digest_of(storage_options))
    with _lock:
        found = _handles.get(key)
        if found is not None:
            _handles.move_to_end(key)
            return found
    opened = open_namespace(location.root, location.namespace, mode=mode, storage_options=storage_options)
    with _lock:
        found = _handles.setdefault(key, opened)
        while len(_handles) > _MOST:
            _handles.popitem(last=False)
    if found is not opened:
        opened.close()
    return found


def use(
    namespace: Namespace, mode: Literal["r", "rw"] = "rw", storage_options: Mapping[str, Any] | None = None
) -> None:
    """From here on this process takes a handle of one's own for a namespace: over a wrapped store, with another clock.

    It stays the caller's to close. What Spark starts besides (planning and executor processes) opens handles for
    itself: of a driver this is the side that commits for ``transaction`` and ``write_stream``.
    """
    key = (normal(namespace.root), namespace.name, mode, digest_of(storage_options))
    with _lock:
        _handles[key] = namespace


def location_of(path: str, storage_options: Mapping[str, Any] | None = None, *, topics_named: bool = False) -> Location:
    """What a path names (see ``spark_ext.paths.locate``), remembered: a namespace does not become something else."""
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


__all__ = ["location_of", "namespace_at", "use"]
