"""What a publisher needs of a table: what it shows at each version of the namespace, and the bytes that say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from catalog.delta_log.commit import Identity, TableVersion

Action = Mapping[str, Mapping[str, Any]]


class View(Protocol):
    """What a table shows after some version of the namespace, by one look at the materialized state."""

    newest: int

    def next_version(self, after: int) -> int | None:
        """The version to show after one; None where nothing changed."""

    def least_version(self, after: int) -> int | None:
        """The nearest version that may be shown after one: the same for every publisher."""

    def may_show(self, version: int) -> bool:
        """Whether a publisher may have chosen to show a version: one at which something changed."""

    def time_of(self, version: int) -> int:
        """The timestamp of an entry."""

    def commit(self, shown: TableVersion) -> bytes:
        """The bytes of a Delta version's commit. Writes data files that it names if they are missing or damaged."""

    def file_count(self, version: int) -> int:
        """How many files the table has at a version."""

    def checkpoint(self, shown: TableVersion) -> Sequence[Action]:
        """The actions of a checkpoint at a Delta version. Writes data files as :meth:`commit` does."""


class Table(Protocol):
    """A table to be published."""

    @property
    def name(self) -> str:
        """The table's name, for messages."""

    @property
    def identity(self) -> Identity:
        """The identity that the table's commits state."""

    @property
    def begins(self) -> bool:
        """Whether the table is created if it does not exist."""

    def view(self, after: int) -> View:
        """A view of the materialized state as this process knows it."""

    def refresh(self) -> None:
        """Read the entries that were appended meanwhile."""

    def tidy(self, shown: TableVersion) -> None:
        """Delete data files that no version with readers names any more. Called after a checkpoint was made."""


__all__ = ["Action", "Table", "View"]
