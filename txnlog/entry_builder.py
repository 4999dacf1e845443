"""Commands of one client decided into one entry. Pure; the appender carries it to the store.

Whatever is told must be in the log. What rests on the log alone, a refusal or an answer, is told at once; an entry
answers for the commands that it holds, as soon as it exists. What rests on another command of the same entry, or on an
overdue transaction that the entry ends, is not told at all: that may fall out of the entry yet, since time passes while
segments are made. Whoever asked is put off, and decided anew behind the entry. So is everybody who asked later: nobody
is overtaken, commands stand in the log in the order in which they were asked for.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from txnlog import numbers
from txnlog.actions import AnyAction, Header
from txnlog.apply import apply, begin_entry, finish_entry
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
        looked: whether it was looked for what is overdue, and none is left.
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

    The members of the entry at hand come first, then those who were put off: these have no rows in its segments, and
    their turn comes when it is in the log or nobody is left in it.

    Deciding comes to an end. Each look that gives no entry leaves fewer members of the entry at hand: it tells
    somebody, or puts somebody off. The first one rests on no other, so it leaves with its answer only, or with the
    entry: whenever it is the turn of those who were put off, fewer are without an answer than before. Riders that end
    something may put the first one off, too, and are then an entry by themselves.

    Attributes:
        wave: the shared segments; their objects are dropped once they are stored.
        refreshed: whether the log was looked at after the batch was taken, so that a refusal is up to date.
        sent: the members of an entry that was sent and whose fate is not known; empty otherwise.
        answers: replies to hand out now.
        returned: members that did not fit into the entry: they are for the next one.
    """

    def __init__(self, members: Iterable[M]) -> None:
        self._now = list(members)
        self._later: list[M] = []
        self.wave = SharedWave({}, (), ())
        self.refreshed = False
        self.lost_races = 0
        self.sent: tuple[M, ...] = ()
        self.answers: list[Reply[M]] = []
        self.returned: list[M] = []
        self._waved: list[M] = []

    @property
    def members(self) -> list[M]:
        """Who has no answer yet, in order."""
        return [*self._now, *self._later]

    # --- shared segments --------------------------------------------------------------------------------------------

    def pieces(self) -> list[tuple[int, Piece]]:
        """The rows that the shared segments must hold, with their transactions, in commit order."""
        return [(member.command.txn_ids[0], piece) for member in self._with_rows() for piece in member.command.pieces]

    def _with_rows(self) -> list[M]:
        return [member for member in self._now if member.command.pieces]

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
        self._next_turn()
        self.sent = ()

    def _next_turn(self) -> None:
        """Nobody is left in the entry: it is the turn of those who were put off."""
        self._now, self._later = self._later, []

    def make(self, draft: Draft, header: Header, riders: Riders) -> MadeEntry[M] | Step:
        """Decide the members at a draft that the header and the riders were applied to.

        Gives the entry, or what must be done first. ``answers`` and ``returned`` are to be looked at after every call.
        """
        if not self.members:
            return Step.DONE
        if not self._wave_fits(draft):
            return Step.WAVE
        accepted, lines, answers, put_off = self._decide(draft, header, riders)
        if not self.refreshed and any(not settled for _, settled in answers):
            return Step.REFRESH
        self.answers.extend(reply for reply, _ in answers)
        self._later = [*put_off, *self._later]  # first: whoever leads next, after an interrupt, finds everybody
        self._now = [reply.member for reply in accepted]
        if not accepted and not (riders.ending and self._later):
            self._next_turn()
            return Step.AGAIN if self._now else Step.DONE
        if any(member.command.pieces for member in (*[reply.member for reply, _ in answers], *put_off)):
            return Step.AGAIN  # the shared segments hold rows of somebody who fell out
        return self._entry(draft, header, riders, accepted, lines)

    def _decide(
        self, draft: Draft, header: Header, riders: Riders
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
        put_off: list[M] = []
        clean = not riders.ending
        for place, member in enumerate(self._now):
            reply, settled, encoded = _decided(member, draft, header, self.wave)
            if encoded is not None:
                accepted.append(reply)
                lines.extend(encoded)
                clean = clean and not encoded
                continue
            told = (reply, settled) if clean else self._told_by_the_log(reply, draft, header, riders)
            if told is None:
                put_off = self._now[place:]  # whoever is behind must not overtake
                break
            answers.append(told)
        return accepted, lines, answers, put_off

    def _told_by_the_log(
        self, reply: Reply[M], draft: Draft, header: Header, riders: Riders
    ) -> tuple[Reply[M], bool] | None:
        """What a refusal or an answer is without the other members, if it is that without them, too."""
        if riders.ending:
            return None  # behind this entry others may be ended yet
        before = draft.anew()
        begin_entry(before, header)
        for action in (*riders.actions, *self.wave.actions):
            apply(before, action, header)
        again, settled, encoded = _decided(reply.member, before, header, self.wave)
        same = encoded is None and again.value == reply.value and type(again.error) is type(reply.error)
        return (again, settled) if same else None

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
            self._next_turn()
        else:
            half = len(accepted) // 2
            self.returned = [*accepted[half:], *self._later]
            self._now, self._later = list(accepted[:half]), []


def _decided(member: M, draft: Draft, header: Header, wave: SharedWave) -> tuple[Reply[M], bool, list[bytes] | None]:
    """Apply a command to the draft: its reply, whether that holds in every later state, and its lines.

    There are no lines where it is refused, which leaves no trace, or needs none for its answer.
    """
    mark = draft.savepoint()
    try:
        decided = member.command.decide(draft, header, wave.numbers)
        if isinstance(decided, Answer):
            return Reply(member, decided.value), decided.settled, None
        encoded = [encode_action(action) for action in decided]
        for action in decided:
            apply(draft, action, header)
        return Reply(member, member.command.result(draft, header)), False, encoded
    except Exception as error:  # noqa: BLE001 - a bug in one command must not fail the others
        draft.rollback(mark)
        return Reply(member, None, error), not isinstance(error, TxnLogError), None


__all__ = ["Attempt", "MadeEntry", "Member", "Reply", "Riders", "SharedWave", "Step"]
