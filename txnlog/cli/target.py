"""Which namespace a command is about, and how its store is reached."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from txnlog.api.adoption import adopt_namespace
from txnlog.api.backups import backup, restore
from txnlog.api.checking import check_namespace, repair_namespace
from txnlog.api.namespace import Namespace
from txnlog.api.opening import open_namespace
from txnlog.api.paths import root_and_name
from txnlog.errors import InvalidInputError
from txnlog.results import BackedUp, CheckLevel, FsckReport, Repaired, Restored


class Target:
    """What every command is about: where the namespace is, and how its store is reached."""

    def __init__(self, path: str, storage_options: dict[str, Any]) -> None:
        self._path = path
        self._storage_options = storage_options

    def open(self, *, write: bool = False) -> Namespace:
        """Open the namespace, for reading unless the command appends."""
        return open_namespace(self._path, mode="rw" if write else "r", storage_options=self._storage_options)

    def root_and_name(self) -> tuple[str, str]:
        """The root, and the name of the namespace."""
        return root_and_name(self._path, None)

    def catalog(self, opening: Callable[[str, dict[str, Any]], Any], root: str | None = None) -> Any:
        """What opens the catalog of a root is called with it; without a root, with the whole path."""
        return opening(self._path if root is None else root, self._storage_options)

    def adopt(self, *, force: bool) -> tuple[str, int]:
        """Make the log in the folder a namespace of its root; its name and its new coordinator id."""
        return adopt_namespace(self._path, force=force, storage_options=self._storage_options)

    def check(self, level: CheckLevel, progress: Callable[[str, int, int], object]) -> FsckReport:
        """Check the namespace, also one that cannot be opened."""
        return check_namespace(self._path, level=level, storage_options=self._storage_options, progress=progress)

    def repair(self, source: str | None, options: dict[str, Any], **how: Any) -> Repaired:
        """Repair the namespace, also one that cannot be opened."""
        return repair_namespace(
            self._path,
            source=source,
            storage_options=self._storage_options,
            source_storage_options=options,
            **how,
        )

    def backup(self, destination: str, options: dict[str, Any], **how: Any) -> BackedUp:
        """Back up the namespace into a folder."""
        return backup(
            self._path,
            destination,
            storage_options=self._storage_options,
            destination_storage_options=options,
            **how,
        )

    def restore(self, source: str, options: dict[str, Any], **how: Any) -> Restored:
        """Make the namespace out of the backup in a folder."""
        return restore(
            source,
            self._path,
            storage_options=options,
            destination_storage_options=self._storage_options,
            **how,
        )


def storage_options_of(text: str | None) -> dict[str, Any]:
    """The storage options of a JSON object. Raises InvalidInputError for what is none."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        # Not shown: it may hold secrets.
        raise InvalidInputError("the storage options are not a JSON object", advice="pass e.g. '{\"anon\": true}'")
    return found


__all__ = ["Target", "storage_options_of"]
