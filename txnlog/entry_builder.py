"""Commands of one client decided into one entry. Pure; the appender carries it to the store.

Whatever is told must be in the log. What rests on the log alone, a refusal or an answer, is told at once; an entry
answers for the commands that it holds, as soon as it exists. What rests on another command of the same entry, or on an
overdue transaction that the entry ends, is not told at all: that may fall out of the entry yet, since time passes while
segments are made. Whoever asked is put off, and decided anew behind the entry.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from txnlog import numbers
from txnlog.actions import AnyAction, Header
from txnlog.apply import apply, finish_entry
from txnlog.codec import digest_of, encode_action, encode_entry
from txnlog.commands import Answer, Command, Piece
from txnlog.errors import LimitExceeded, TxnLogError
from txnlog.state import Draft


@dataclass(frozen=True, slots=True)
class SharedWave:
    """Segments of one entry: by topic the number, their actions, and the objects to put before the entry."""

    numbers: dict[int, int]
    actions: tuple[AnyAction, ...]
    objects: tuple[tuple[str, bytes], ...]


class Member:
    """Who takes part in an entry: a command, and whatever its owner adds."""

    __slots__ = ("command",)

    def __init__(self, command: Command[Any]) -> None:
        self.command = command


M = TypeVar("M", bound=Member)


class Reply(msgspec.Struct, Generic[M], frozen=True):
    """What a command came to: a value, or an error."""

    member: M
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Riders:
    """What goes along with any entry.

    Attributes:
        actions: the lines.
        ending: whether they end a transaction: answers may rest on that.
        looked: whether it was looked for what is overdue.
    """

    actions: tuple[AnyAction, ...] = ()
    ending: bool = False
    looked: bool = False


@dataclass(frozen=True, slots=True)
class MadeEntry(Generic[M]):
    """An entry that may be put, the draft that it makes true, and what it answers."""

    draft: Draft
    header: Header
    data: bytes
    riders: Riders
    sent: tuple[M, ...]
    replies: tuple[Reply[M], ...]


class Step(enum.Enum):
    """What must happen before an entry can be made."""

    AGAIN = "decide again"
    REFRESH = "look at the log: a refusal by an old state may be out of date"
    WAVE = "write the shared segments"
    DONE = "nobody is left"


class Attempt(Generic[M]):
    """One batch on its way into the log: who has no answer yet, and the shared segments made for whom.

    Whoever is put off has no rows in the segments of the entry, and keeps the place: without an entry nobody behind is
    told anything before. Where nobody is left but those who were put off, they are decided anew at once.

    Deciding comes to an end. Each look that gives no entry leaves fewer who are not put off, until all are. The first
    member rests on no other: once it is not accepted it has its answer, so there are fewer members each time that they
    are decided anew. Riders that end something may put it off, too, and are then an entry by themselves.

    Attributes:
        members: who has no answer yet, in order.
        wave: the shared segments; their objects are dropped once they are stored.
        refreshed: whether the log was looked at after the batch was taken, so that a refusal is up to date.
        sent: the members of an entry that was sent and whose fate is not known; empty otherwise.
        answers: replies to hand out now.
        returned: members that did not fit into the entry: they are for the next one.
    """

    def __init__(self, members: Iterable[M]) -> None:
        self.members = list(members)
        self.wave = SharedWave({}, (), ())
        self.refreshed = False
        self.lost_races = 0
        self.sent: tuple[M, ...] = ()
        self.answers: list[Reply[M]] = []
        self.returned: list[M] = []
        self._waved: list[M] = []
        self._put_off: set[M] = set()

    # --- shared segments --------------------------------------------------------------------------------------------

    def pieces(self) -> list[tuple[int, Piece]]:
        """The rows that the shared segments must hold, with their transactions, in commit order."""
        return [(member.command.txn_ids[0], piece) for member in self._with_rows() for piece in member.command.pieces]

    def _with_rows(self) -> list[M]:
        return [member for member in self.members if member.command.pieces and member not in self._put_off]

    def set_wave(self, wave: SharedWave) -> None:
        """The shared segments were made of ``pieces()``."""
        self.wave, self._waved = wave, self._with_rows()

    def wave_stored(self) -> None:
        """The objects of the wave are on the store."""
        self.wave = SharedWave(self.wave.numbers, self.wave.actions, ())

    def _wave_fits(self, draft: Draft) -> bool:
        """Whether the segments of the last try still serve: the same commands, every topic and number still there.

        Whoever lost a race may learn that an abort from outside used a number up (P-57).
        """
        return self._waved == self._with_rows() and all(
            (topic := draft.topics.get(number)) is not None
            and not topic.dropped
            and numbers.block_of(draft, segment) is not None
            and not numbers.is_used(draft, segment)
            for number, segment in self.wave.numbers.items()
        )

    # --- deciding ---------------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """Another entry took the slot."""
        self.lost_races += 1
        self.sent = ()

    def won(self, made: MadeEntry[M]) -> None:
        """The entry is in the log: it answers for whom it holds; whoever is left is decided behind it."""
        self.answers.extend(made.replies)  # an interrupt from here on: whoever leads next tells them
        told = set(made.sent)
        self.members = [member for member in self.members if member not in told]
        self._put_off.clear()
        self.sent = ()

    def make(self, draft: Draft, header: Header, riders: Riders) -> MadeEntry[M] | Step:
        """Decide the members at a draft that the header and the riders were applied to.

        Gives the entry, or what must be done first. ``answers`` and ``returned`` are to be looked at after every call.
        """
        if not self.members:
            return Step.DONE
        if not self._wave_fits(draft):
            return Step.WAVE
        accepted, lines, answers, resting = self._decide(draft, header, clean=not riders.ending)
        if not self.refreshed and any(not settled for _, settled in answers):
            return Step.REFRESH
        told = {reply.member for reply, _ in answers}
        self.answers.extend(reply for reply, _ in answers)
        self.members = [member for member in self.members if member not in told]
        self._put_off.update(resting)
        if any(member.command.pieces for member in (*told, *resting)):
            return Step.AGAIN  # the shared segments hold rows of somebody who fell out
        if not accepted and not (riders.ending and self._put_off):
            self._put_off.clear()
            return Step.AGAIN if self.members else Step.DONE
        return self._entry(draft, header, riders, accepted, lines)

    def _decide(
        self, draft: Draft, header: Header, *, clean: bool
    ) -> tuple[list[Reply[M]], list[bytes], list[tuple[Reply[M], bool]], list[M]]:
        """Apply the wave and every command to the draft; a refused one leaves no trace in it.

        Gives the replies that hold once the entry exists, its lines, the replies that rest on the log alone, each with
        whether it holds in every later state too, and whoever is to be put off.
        """
        for action in self.wave.actions:
            apply(draft, action, header)
        accepted: list[Reply[M]] = []
        lines: list[bytes] = []
        answers: list[tuple[Reply[M], bool]] = []
        resting: list[M] = []
        for member in self.members:
            if member in self._put_off:
                clean = False
                continue
            mark = draft.savepoint()
            try:
                decided = member.command.decide(draft, header, self.wave.numbers)
                if isinstance(decided, Answer):
                    reply, settled = Reply(member, decided.value), decided.settled
                else:
                    encoded = [encode_action(action) for action in decided]
                    for action in decided:
                        apply(draft, action, header)
                    accepted.append(Reply(member, member.command.result(draft, header)))
                    lines.extend(encoded)
                    clean = clean and not encoded
                    continue
            except Exception as error:  # noqa: BLE001 - a bug in one command must not fail the others
                draft.rollback(mark)
                reply, settled = Reply(member, None, error), not isinstance(error, TxnLogError)
            if clean:
                answers.append((reply, settled))
            else:
                resting.append(member)
        return accepted, lines, answers, resting

    def _entry(
        self, draft: Draft, header: Header, riders: Riders, accepted: Sequence[Reply[M]], lines: list[bytes]
    ) -> MadeEntry[M] | Step:
        finish_entry(draft, "")
        own = [encode_action(action) for action in (*riders.actions, *self.wave.actions)]
        try:
            data = encode_entry(header, [*own, *lines])
        except LimitExceeded as error:
            self._split([reply.member for reply in accepted], error)
            return Step.AGAIN
        draft.head = msgspec.structs.replace(draft.head, digest=digest_of(data))
        sent = tuple([reply.member for reply in accepted])
        return MadeEntry(draft, header, data, riders, sent, tuple(accepted))

    def _split(self, accepted: Sequence[M], error: LimitExceeded) -> None:
        """Too much for one entry: half of it stays; what is too much by itself is refused."""
        if len(accepted) == 1:
            self.answers.append(Reply(accepted[0], None, error))
            self.members.remove(accepted[0])
        else:
            kept = {id(member) for member in accepted[: len(accepted) // 2]}
            self.returned = [member for member in self.members if id(member) not in kept]
            self.members = [member for member in self.members if id(member) in kept]
        self._put_off.clear()


__all__ = ["Attempt", "MadeEntry", "Member", "Reply", "Riders", "SharedWave", "Step"]
