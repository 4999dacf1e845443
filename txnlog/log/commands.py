"""What a client asks of the log: a command, decided against a state. Pure; the appender carries commands into entries.

``decide`` looks at a draft and gives the actions that would do it, or an :class:`Answer` where nothing needs to be
appended (a repetition, a skipped batch), or raises the refusal. The appender decides again after every lost race, so a
command holds no conclusion of its own: what it notes for its answer, it notes anew at each decision. A recorded outcome
is answered first, whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import xxhash

from txnlog.fold.state import Draft
from txnlog.format.actions import Acknowledgement, AnyAction, Header

# Kinds of commands of which one entry holds one (``Command.alone``). What drops a topic or a subscription is of no
# kind: ``apply`` refuses the second of two by itself.
ONE_CREATION: Final = "creation"
"""The id of a topic or a subscription is the version of its entry; a subscription may bring its dead-letter topic."""
ONE_REGISTRATION: Final = "register"
"""A registration's id is the version of its entry; a name that is dropped is given again in a later one."""
ONE_EPOCH: Final = "epoch"
"""The epoch of a consumer is the version of the entry that opens it, whoever asks."""
ONE_RESERVATION: Final = "reserve"
"""The caller of a reservation finds its numbers at the end of those that the entry gave."""
ONE_PROTOCOL: Final = "protocol"
"""A protocol action names all the features at once."""
ONE_RENEWAL: Final = "life"
"""With one entry every block is renewed that is due: a second renewal in it has nothing to do."""


def one_start_of(producer: str) -> Hashable:
    """The kind of commands that start a producer name: its epoch is the version of the entry."""
    return ("producer", producer)


BY_ITSELF: Final = "by itself"
"""No other command of a client is in its entry: what a truncation takes away is what the version before shows."""

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer that needs no entry. ``settled``: no later state gives another; else the log is looked at before."""

    value: T
    settled: bool = False


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Rows of one call for one partition, not yet in a file. ``content`` is opaque here; ``digest`` stands for it.

    The garbage collector has nothing to look for in it: rows refer to nothing that refers to them, and a transaction
    may have a hundred thousand of these.
    """

    topic: int
    partition: int
    rows: int
    size_bytes: int
    content: Any
    digest: int
    sequence: int | None = None

    def digest_text(self) -> str:
        """The text of the piece for the digest of a commit: its place, its sequence and its content."""
        return f"{self.topic},{self.partition},{self.rows},{self.sequence},{self.digest}"


def digest_of_call(pieces: Iterable[Piece], acknowledgements: Iterable[Acknowledgement] = ()) -> str:
    """The digest of a commit that is one call: another writer's commit under the same number has another one."""
    texts = [*map(repr, acknowledgements), *(piece.digest_text() for piece in pieces)]
    return xxhash.xxh3_64_hexdigest(";".join(texts).encode())


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
    def owned_topics(self) -> Collection[int]:
        """Topics in which segments of its own become visible with it, whenever they came into the log."""

    @property
    def alone(self) -> Hashable:
        """Commands of one entry must differ in this, unless it is None (ids and epochs are the entry's version)."""

    @property
    def is_upkeep(self) -> bool:
        """Whether what it writes is no effect of the call that asks for it: numbers, or what is overdue anyway."""

    @property
    def travels(self) -> bool:
        """Whether it is data and nothing else, so that another client can decide it: it may be proposed then."""

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[Any]:
        """The actions, or an answer. Raises the typed refusal; must not change the draft."""

    def result(self, draft: Draft, at: Header) -> R_co:
        """The value for the caller, as soon as the actions were applied to the draft: no other command was since."""


class CommandDefaults:
    """What most commands are: without rows, and together with any others in an entry."""

    __slots__ = ()
    pieces: Sequence[Piece] = ()
    owned_topics: Collection[int] = ()
    alone: Hashable = None
    is_upkeep: bool = False
    travels: bool = False


@dataclass(frozen=True)
class Simple(CommandDefaults, Generic[T]):
    """A command without rows: two functions of the draft."""

    decider: Callable[[Draft, Header], Sequence[AnyAction] | Answer[T]]
    resulter: Callable[[Draft, Header], T]
    alone: Hashable = None
    txn_ids: tuple[int, ...] = ()
    is_upkeep: bool = False

    def decide(self, draft: Draft, at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[T]:
        """See Command."""
        return self.decider(draft, at)

    def result(self, draft: Draft, at: Header) -> T:
        """See Command."""
        return self.resulter(draft, at)


def effect(
    decider: Callable[[Draft, Header], Sequence[AnyAction] | Answer[None]],
    alone: Hashable = None,
    *,
    is_upkeep: bool = False,
) -> Simple[None]:
    """A command without rows that answers nothing but that it is done."""
    return Simple(decider, _nothing, alone, is_upkeep=is_upkeep)


def _nothing(_draft: Draft, _at: Header) -> None:
    return None


__all__ = [
    "BY_ITSELF",
    "ONE_CREATION",
    "ONE_EPOCH",
    "ONE_PROTOCOL",
    "ONE_REGISTRATION",
    "ONE_RENEWAL",
    "ONE_RESERVATION",
    "Answer",
    "Command",
    "CommandDefaults",
    "Piece",
    "SharedNumbers",
    "Simple",
    "digest_of_call",
    "effect",
    "one_start_of",
]
