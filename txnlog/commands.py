"""What a client asks of the log: a command, decided against a state. Pure; the appender carries commands into entries.

``decide`` looks at a draft and gives the actions that would do it, or an :class:`Answer` where nothing needs to be
appended (a repetition, a skipped batch), or raises the refusal. The appender decides again after every lost race, so a
command holds no conclusion of its own. A recorded outcome is answered first, whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from txnlog.actions import AnyAction, Header
from txnlog.state import Draft

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that needs no entry. ``settled``: no later state gives another; else the log is looked at before."""

    value: T
    settled: bool = False


class Piece(msgspec.Struct, frozen=True):
    """Rows of one call for one partition, not yet in a file. ``content`` is opaque here; ``digest`` stands for it."""

    topic: int
    partition: int
    rows: int
    size_bytes: int
    content: Any
    digest: int
    sequence: int | None = None


SharedNumbers = Mapping[int, int]
"""Of each topic the number of the segment that this entry's commits share."""


class Command(Protocol[R_co]):
    """One request to the log."""

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """Numbers to ask for when the outcome stays unknown."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """Rows that must be in the entry's shared segments."""

    @property
    def alone(self) -> Hashable:
        """Commands of one entry must differ in this, unless it is None (ids and epochs are the entry's version)."""

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[Any]:
        """The actions, or an answer. Raises the typed refusal; must not change the draft."""

    def result(self, draft: Draft, at: Header) -> R_co:
        """The value for the caller, once the actions were applied to the draft."""


@dataclass(frozen=True, slots=True)
class Simple(Generic[T]):
    """A command without rows: two functions of the draft."""

    decider: Callable[[Draft, Header], Sequence[AnyAction] | Answer[T]]
    resulter: Callable[[Draft, Header], T]
    alone: Hashable = None
    txn_ids: tuple[int, ...] = ()
    pieces: Sequence[Piece] = ()

    def decide(self, draft: Draft, at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[T]:
        """See Command."""
        return self.decider(draft, at)

    def result(self, draft: Draft, at: Header) -> T:
        """See Command."""
        return self.resulter(draft, at)


__all__ = ["Answer", "Command", "Piece", "SharedNumbers", "Simple"]
