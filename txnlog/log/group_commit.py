"""Commands of one client decided into one entry. Pure; the appender carries it to the store.

Whatever is answered must be in the log, where commands stand in the order in which they were asked for.

- What the log alone gives, a refusal or an answer, is reported at once.
- What depends on another command of the entry is reported with the entry, if that was made from the same decisions: the
  other command may fall out of it yet, since time passes while segments are made.
- A command is put off, and decided again behind the entry,
  - if it needs rows, and the shared segments have none of it: its answer depended on others, which fell out since;
  - if the entry ends overdue transactions and this one would be refused or answered: more may be overdue than it ends;
  - if it came after such a command: nobody is overtaken.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from txnlog.errors import LimitExceeded, TxnLogError
from txnlog.fold import number_blocks as numbers
from txnlog.fold.apply import apply, begin_entry, finish_entry
from txnlog.fold.state import Draft, Unclaimed
from txnlog.format.actions import AnyAction, Header
from txnlog.format.codec import digest_of, encode_action, encode_entry
from txnlog.log.commands import BY_ITSELF, Answer, Command, Piece, SharedNumbers


@dataclass(frozen=True, slots=True)
class SharedWave:
    """Segments of one entry: by topic the number, their actions, and the objects to put before the entry.

    ``refused`` has by transaction why its rows cannot be in any: then there are no segments, and the others try again.
    """

    numbers: dict[int, int]
    actions: tuple[AnyAction, ...]
    objects: tuple[tuple[str, bytes], ...]
    refused: dict[int, Exception] = field(default_factory=dict)


class Member:
    """Who takes part in an entry: a command, and whatever its owner adds.

    Attributes:
        command: what it asks of the log.
        has_written: whether an entry in the log has actions of it that readers find.
    """

    __slots__ = ("command", "has_written")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.has_written = False


M = TypeVar("M", bound=Member)


class MemberReply(msgspec.Struct, Generic[M], frozen=True):
    """What a command came to: a value, or an error."""

    member: M
    value: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Riders:
    """What goes along with any entry.

    Attributes:
        actions: the lines.
        ending: whether they end a transaction: with them in the entry, nobody gets an answer.
        looked: whether it was looked for what is overdue, and none is left.
    """

    actions: tuple[AnyAction, ...] = ()
    ending: bool = False
    looked: bool = False


@dataclass(frozen=True, slots=True)
class MadeEntry(Generic[M]):
    """An entry that may be put, the draft that it makes true, and what it answers.

    Attributes:
        sent: whose lines it holds.
        replies: the answers once it is in the log, for them and for those who depend on them.
        writing: of ``sent`` those for whom it has what readers find.
    """

    draft: Draft
    header: Header
    data: bytes
    riders: Riders
    sent: tuple[M, ...]
    replies: tuple[MemberReply[M], ...]
    writing: tuple[M, ...] = ()


class _Look(Generic[M]):
    """One look at the members of an entry, in order.

    Attributes:
        sent: whose lines it would hold.
        writing: of these those who would have written something that readers find.
        lines: these.
        replies: what holds once it exists: for ``sent``, and for those who depend on them.
        dependent: the latter.
        answers: what depends on the log alone, each with whether it holds in every later state too.
        put_off: the rest, from the first on who needs rows and has none in the shared segments, or who may be refused
            for what is overdue: an entry need not end all of that.
    """

    __slots__ = ("answers", "dependent", "lines", "put_off", "replies", "sent", "writing")

    def __init__(self) -> None:
        self.sent: list[M] = []
        self.writing: list[M] = []
        self.lines: list[bytes] = []
        self.replies: list[MemberReply[M]] = []
        self.dependent: list[M] = []
        self.answers: list[tuple[MemberReply[M], bool]] = []
        self.put_off: list[M] = []


class Needed(enum.Enum):
    """What must happen before an entry can be made."""

    AGAIN = "decide again"
    REFRESH = "look at the log: a refusal by an old state may be out of date"
    WAVE = "write the shared segments"
    DONE = "nobody is left"


class Attempt(Generic[M]):
    """One batch on its way into the log: who has no answer yet, and the shared segments made for whom.

    The members of the entry at hand come first, then those who were put off: their turn comes when it is in the log or
    nobody is left in it.

    Deciding comes to an end. Each look that gives no entry leaves fewer members of the entry at hand, for it answers
    somebody or puts somebody off, or fewer with rows. Nobody is put off but for somebody in front, who is answered or
    in the entry, or for what the entry ends; so whenever it is the turn of those who were put off, fewer are without an
    answer than before, or fewer are overdue.

    Attributes:
        wave: the shared segments; their objects are dropped once they are stored.
        offered_to: the other writers to which it was proposed, each one once.
        proposed_as: the number under which it was proposed, as long as no other proposal may be in its place.
        knew_the_end: whether the client knew the end of the log as this began.
        refreshed: whether the log was looked at after the batch was chosen, so that a refusal is up to date.
        lost_races: how often another entry took the slot.
        sent: the members of an entry that was sent and whose fate is not known; empty otherwise.
        answers: replies to be given now.
        returned: members that did not fit into the entry: they are for the next one.
    """

    def __init__(self, members: Iterable[M]) -> None:
        self._now = list(members)
        self._later: list[M] = []
        self.wave = SharedWave({}, (), ())
        self.offered_to: set[str] = set()
        self.proposed_as: int | None = None
        self.knew_the_end = False
        self.refreshed = False
        self.lost_races = 0
        self.sent: tuple[M, ...] = ()
        self.answers: list[MemberReply[M]] = []
        self.returned: list[M] = []
        self._waved: list[M] = []
        self._given_pieces_of: list[M] = []
        self._rowless: set[M] = set()
        """Of the entry at hand, whose rows are in no shared segment, since they depended on others."""

    @property
    def members(self) -> list[M]:
        """Who has no answer yet, in order."""
        return [*self._now, *self._later]

    @property
    def is_by_itself(self) -> bool:
        """Whether nobody else may be in its entry."""
        return any(member.command.alone == BY_ITSELF for member in self._now)

    def add(self, members: Iterable[M]) -> None:
        """More members, behind the others, before anything is decided."""
        self._now.extend(members)

    def leave(self, whom: Callable[[M], bool]) -> bool:
        """Let members go of whom nothing was sent, without an answer; whether there were any."""
        before = len(self.members)
        self._now = [member for member in self._now if not whom(member)]
        self._later = [member for member in self._later if not whom(member)]
        return len(self.members) < before

    # --- shared segments --------------------------------------------------------------------------------------------

    def pieces(self) -> list[tuple[int, Piece]]:
        """The rows that the shared segments must hold, with their transactions, in commit order."""
        self._given_pieces_of = self._with_rows()
        return [
            (member.command.txn_ids[0], piece) for member in self._given_pieces_of for piece in member.command.pieces
        ]

    def _with_rows(self) -> list[M]:
        rowless = self._rowless
        return [member for member in self._now if member.command.pieces and member not in rowless]

    def has_rows_of_no_wave(self) -> bool:
        """Whether there are rows and no wave was made yet: to see that, no entry need be decided."""
        return not self._waved and bool(self._with_rows())

    def set_wave(self, wave: SharedWave, *, answers: bool = True) -> None:
        """The shared segments were made of what ``pieces()`` gave last: who left meanwhile has rows in them.

        Whose rows are refused leaves the entry, and hears it; or is put off, where the entry has to end something
        before anybody is answered.
        """
        if wave.refused:
            refused = [member for member in self._with_rows() if member.command.txn_ids[0] in wave.refused]
            if answers:
                self.answers += [MemberReply(one, None, wave.refused[one.command.txn_ids[0]]) for one in refused]
            else:
                self._later = [*refused, *self._later]
            self._now = [member for member in self._now if member not in refused]
            return
        self.wave, self._waved = wave, self._given_pieces_of

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
        self.answers.extend(made.replies)
        for member in made.writing:
            member.has_written = True
        self._next_turn()
        self.sent = ()

    def answer_settled(self, draft: Draft, header: Header) -> None:
        """What the state shows of a call and no later one takes back is its answer, whatever became of the attempt."""
        for member in (*self.members, *self.returned):
            if all(draft.outcomes.get(number) is None for number in member.command.txn_ids):
                continue  # nor may others be asked once more: what was sent of them may be in the log by now
            with suppress(Exception):  # a refusal is none: the error that ended the attempt says more
                decided = member.command.decide(draft, header, self.wave.numbers)
                if isinstance(decided, Answer) and decided.settled:
                    self.answers.append(MemberReply(member, decided.value))

    def settle(self, draft: Draft, header: Header) -> None:
        """Answer and let go of those whose outcome the log shows, whoever brought it there."""
        answered: list[M] = []
        for member in self.members:
            if not member.command.txn_ids and not member.command.travels:
                continue  # it was not proposed: only its own entry has an answer for it
            if any(draft.outcomes.get(number) is None for number in member.command.txn_ids):
                continue
            reply, settled, encoded = _decided(member, draft, header, {})
            if encoded is None and (settled or (reply.error is not None and member.command.txn_ids)):
                member.has_written = member.has_written or (reply.error is None and not member.command.is_upkeep)
                self.answers.append(reply)
                answered.append(member)
        self._now = [member for member in self._now if member not in answered]
        self._later = [member for member in self._later if member not in answered]

    def _next_turn(self) -> None:
        """Nobody is left in the entry: it is the turn of those who were put off, each with its rows."""
        self._now, self._later = self._later, []
        self._rowless.clear()

    def make(self, draft: Draft, header: Header, riders: Riders) -> MadeEntry[M] | Needed:
        """Decide the members at a draft that the header and the riders were applied to.

        Gives the entry, or what must be done first. ``answers`` and ``returned`` are to be looked at after every call.
        """
        if not self.members:
            return Needed.DONE
        if not self._wave_fits(draft):
            if riders.ending:
                self._put_off_refused(draft, header)
            return Needed.WAVE
        look = self._decide(draft, header, riders)
        # Who depends on others as well: with the look comes another for what is overdue.
        if not self.refreshed and (look.dependent or any(not settled for _, settled in look.answers)):
            known = {reply.member: reply for reply, settled in look.answers if settled}
            self.answers.extend(known.values())
            self._now = [member for member in self._now if member not in known]
            return Needed.REFRESH
        self.answers.extend(reply for reply, _ in look.answers)
        self._later = [*look.put_off, *self._later]
        self._now = [reply.member for reply in look.replies]
        self._rowless.update([member for member in look.dependent if member.command.pieces])
        if not look.replies and not (riders.ending and self._later):
            self._next_turn()
            return Needed.AGAIN if self._now else Needed.DONE
        if self._waved != self._with_rows():
            return Needed.AGAIN
        return self._entry(draft, header, riders, look)

    def _put_off_refused(self, draft: Draft, header: Header) -> None:
        """Before segments are made for nothing: see whom an entry that ends overdue transactions would not take."""
        for place, member in enumerate(self._now):
            _, _, encoded = _decided(member, draft, header, _supposed_rows(member, draft))
            if encoded is None:
                self._later = [*self._now[place:], *self._later]
                self._now = self._now[:place]
                return

    def _decide(self, draft: Draft, header: Header, riders: Riders) -> _Look[M]:
        """Apply the wave and every command to the draft; a refused one leaves no trace in it."""
        for action in self.wave.actions:
            apply(draft, action, header)
        look: _Look[M] = _Look()
        clean = True
        for place, member in enumerate(self._now):
            rowless = member in self._rowless
            reply, settled, encoded = (_supposed if rowless else _decided)(member, draft, header, self.wave.numbers)
            needs_rows = rowless and encoded is not None
            answered_with_ends = riders.ending and encoded is None
            if needs_rows or answered_with_ends:
                look.put_off = self._now[place:]  # whoever is behind must not overtake
                break
            if encoded is None:
                answer = (reply, settled) if clean else self._answer_of_the_log(reply, draft, header, riders, look)
                if answer is not None:
                    look.answers.append(answer)
                    continue
                look.dependent.append(member)
            else:
                look.sent.append(member)
                look.lines.extend(encoded)
                if encoded and not member.command.is_upkeep:
                    look.writing.append(member)
                clean = clean and not encoded
            look.replies.append(reply)
        return look

    def _answer_of_the_log(
        self, reply: MemberReply[M], draft: Draft, header: Header, riders: Riders, look: _Look[M]
    ) -> tuple[MemberReply[M], bool] | None:
        """What a refusal or an answer is without the other members, if it is that without them, too."""
        if look.dependent:
            return None  # who depends on others in front may have to go first, behind the entry
        before = draft.anew()
        begin_entry(before, header)
        for action in (*riders.actions, *self.wave.actions):
            apply(before, action, header)
        decided = _supposed if reply.member in self._rowless else _decided
        again, settled, encoded = decided(reply.member, before, header, self.wave.numbers)
        same = encoded is None and again.value == reply.value and type(again.error) is type(reply.error)
        return (again, settled) if same else None

    def _entry(self, draft: Draft, header: Header, riders: Riders, look: _Look[M]) -> MadeEntry[M] | Needed:
        finish_entry(draft, "")
        own = [encode_action(action) for action in (*riders.actions, *self.wave.actions)]
        try:
            data = encode_entry(header, [*own, *look.lines])
        except LimitExceeded as error:
            self._split(look.sent, error, put_off=riders.ending)
            return Needed.AGAIN
        draft.head = msgspec.structs.replace(draft.head, digest=digest_of(data))
        return MadeEntry(draft, header, data, riders, tuple(look.sent), tuple(look.replies), tuple(look.writing))

    def _split(self, sent: Sequence[M], error: LimitExceeded, *, put_off: bool) -> None:
        """Too much for one entry: half of it stays; what is too much by itself is refused, or put off before that."""
        if not sent:
            raise error
        if len(sent) == 1:
            if put_off:
                self._later = [sent[0], *self._later]
            else:
                self.answers.append(MemberReply(sent[0], None, error))
            self._now.remove(sent[0])
        else:
            place = self._now.index(sent[len(sent) // 2])
            self.returned = [*self._now[place:], *self._later]
            self._now, self._later = self._now[:place], []


def _decided(
    member: M, draft: Draft, header: Header, shared: SharedNumbers
) -> tuple[MemberReply[M], bool, list[bytes] | None]:
    """Apply a command to the draft: its reply, whether that holds in every later state, and its lines.

    There are no lines where it is refused, which leaves no trace, or needs none for its answer.
    """
    mark = draft.savepoint()
    try:
        decided = member.command.decide(draft, header, shared)
        if isinstance(decided, Answer):
            return MemberReply(member, decided.value), decided.settled, None
        encoded = [encode_action(action) for action in decided]
        for action in decided:
            apply(draft, action, header)
        return MemberReply(member, member.command.result(draft, header)), False, encoded
    except Exception as error:  # noqa: BLE001 - a bug in one command must not fail the others
        draft.rollback(mark)
        return MemberReply(member, None, error), not isinstance(error, TxnLogError), None


def _supposed(
    member: M, draft: Draft, header: Header, _shared: SharedNumbers
) -> tuple[MemberReply[M], bool, list[bytes] | None]:
    """What ``_decided`` would give if segments had the member's rows, which none has. Leaves no trace."""
    mark = draft.savepoint()
    reply = _decided(member, draft, header, _supposed_rows(member, draft))
    draft.rollback(mark)
    return reply


def _supposed_rows(member: Member, draft: Draft) -> SharedNumbers:
    """Pretend in the draft that segments hold the member's rows, and give their numbers; a dropped topic gets none."""
    supposed: dict[int, int] = {}
    for piece in member.command.pieces:
        topic = draft.topics.get(piece.topic)
        if topic is None or topic.dropped:
            continue
        number = supposed.setdefault(piece.topic, draft.head.next_number + piece.topic)
        place = (number, piece.partition)
        claim = draft.unclaimed.get(place) or Unclaimed(piece.topic, draft.end_of(piece.topic, piece.partition), 0)
        draft.unclaimed.put(place, claim._replace(rows=claim.rows + piece.rows))
    return supposed


__all__ = ["Attempt", "MadeEntry", "Member", "MemberReply", "Needed", "Riders", "SharedWave"]
