"""A state of named tables, and drafts of it.

A draft sees the state through its own changes; the state itself stays as it was until the draft is merged. That is what
"check, then append with compare, then apply: a failed append changes nothing in memory" needs, and a savepoint inside a
draft is what a refused command among accepted ones needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Absent:
    """Marks a key that a draft has not touched (None marks a removed one)."""


_ABSENT: Final = _Absent()
_Journal = list[tuple[dict[Any, Any], Any, Any]]


class DraftTable(Generic[K, V]):
    """One table of a draft. Values are immutable and never None; reads fall through to the state's table."""

    __slots__ = ("_base", "_changes", "_journal")

    def __init__(self, base: dict[K, V], journal: _Journal) -> None:
        self._base = base
        self._changes: dict[K, Any] = {}
        self._journal = journal

    def get(self, key: K) -> V | None:
        """The value, or None where the key is absent or removed."""
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            return self._base.get(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key) is not None

    def put(self, key: K, value: V) -> None:
        """Insert or replace."""
        self._journal.append((self._changes, key, self._changes.get(key, _ABSENT)))
        self._changes[key] = value

    def remove(self, key: K) -> None:
        """Remove; an absent key is fine."""
        self._journal.append((self._changes, key, self._changes.get(key, _ABSENT)))
        self._changes[key] = None

    def items(self) -> Iterator[tuple[K, V]]:
        """All rows, the draft's changes included, in no stated order."""
        for key, value in self._base.items():
            if key not in self._changes:
                yield key, value
        for key, value in self._changes.items():
            if value is not None:
                yield key, value

    def __len__(self) -> int:
        return (
            len(self._base)
            + sum(value is not None and key not in self._base for key, value in self._changes.items())
            - sum(value is None and key in self._base for key, value in self._changes.items())
        )

    def changed(self) -> dict[K, V | None]:
        """What this draft changed; None stands for removed."""
        return self._changes

    def merge(self) -> None:
        """Carry the changes into the state's table."""
        base = self._base
        for key, value in self._changes.items():
            if value is None:
                base.pop(key, None)
            else:
                base[key] = value
        self._changes = {}


def rollback(journal: _Journal, mark: int) -> None:
    """Undo every change after the journal had ``mark`` records."""
    while len(journal) > mark:
        changes, key, old = journal.pop()
        if old is _ABSENT:
            del changes[key]
        else:
            changes[key] = old


__all__ = ["DraftTable", "rollback"]
