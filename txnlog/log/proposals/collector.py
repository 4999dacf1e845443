"""Brings the commands of other writers into the log along with its own commands (PROTOCOL.md, "Proposals").

No promise needs it: a command with an effect has a number, which is accepted once, whoever brings it. So two may
collect at once, and whoever proposed something may append it by itself. All of it happens in the engine, but for
``_read`` and ``_list``, which run in the threads of requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import xxhash

from txnlog.common.format_limits import MAX_PROPOSAL_BYTES
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import AccessDenied, TxnLogError
from txnlog.fold.number_blocks import can_be_used, owner_of
from txnlog.fold.state import Draft
from txnlog.format import keys
from txnlog.format.actions import AnyAction, Header
from txnlog.log.append_queue import Asked
from txnlog.log.commands import Answer, Command, Piece, SharedNumbers
from txnlog.log.follower import Follower
from txnlog.log.proposals import proposal_codec
from txnlog.log.proposals.proposal_codec import Mailbox, can_be_proposed
from txnlog.log.proposals.proposer import can_have_no_effect
from txnlog.log.proposals.races import Races
from txnlog.log.transaction_commands import CommitCommand
from txnlog.store.base import ObjectInfo, Store

_logger = LogLines("txnlog.proposals")

_GATHER_TRIPS: Final = 0.45
"""Round trips that a collector waits for those whose outcome its last entry was: they are about to propose again."""

_IDLE_CYCLES: Final = 6
"""For how many cycles what a writer had to share counts where ``_pays`` asks whether collecting is worth it."""

_ASKED_MS: Final = 3_000.0
"""For so long who was asked collects, from the last proposal that it found on.

Its cycles are shorter than the way of one that is far, whose next commit would come too late for it to pay.
"""

_FIRST_PAUSE_TRIPS: Final = 100.0
_MOST_UNPAID: Final = 5
"""Round trips after which a writer begins again where it did not pay, twice as many each time, up to 2 ** 5 times."""

_OWN_IDLE_CYCLES: Final = 6
"""A writer without commands of its own for so many cycles collects no more: nobody works for others for ever."""

_LIST_EVERY: Final = 2
"""Cycles. Each one lists while that finds something, and a few at the beginning: others have just heard of it."""

_LIST_FIRST: Final = 6
"""Cycles at the beginning in each of which it lists, and looks who is named: several may have begun at once."""

_LOOK_EVERY: Final = 4
"""Cycles from then on: two that collect cost each other races, and a request in each cycle costs more."""

_LISTED: Final = 1_000
"""What one request of a listing shows on an object store: more of them would hold up the cycle."""

_MOST_MAILBOXES: Final = 256
"""Those of the writers that proposed last: each one is a request in a cycle."""

_MOST_STRANGERS: Final = 8
"""In one cycle, of writers that the log does not show: they want numbers, or anybody put any bytes there."""

_QUIET_CYCLES: Final = 4
_MOST_HALVINGS: Final = 5
"""A mailbox in which nothing new was for four cycles is looked into in every second one, and so on up to 2 ** 5."""

_CYCLE_BYTES: Final = 16 << 20
"""Of mailboxes that are decoded in one cycle. All that are looked into are read at once: 256 of a MiB at most."""


class Proposal:
    """What was found in one mailbox: commands of another writer, in order."""

    def __init__(self, mailbox: Mailbox, commands: Sequence[Command[Any]]) -> None:
        self._writer = mailbox.writer
        self._number = mailbox.number
        self._mailbox = mailbox
        self._txns = [command.txn_ids for command in commands]
        self._draft: Draft | None = None
        self._ended = 0
        self.commands = [_OfAnother(self, place, command) for place, command in enumerate(commands)]

    def is_void(self, draft: Draft, at: Header, place: int) -> bool:
        """Whether nothing may come of the command at a place.

        It is too old or late, the number was used, numbers are not the writer's, or the log shows a transaction.
        """
        if self._mailbox.is_over(at.version, at.timestamp_ms) or self._mailbox.is_late(place, at.timestamp_ms):
            return True
        if self._number is None:
            return False
        txn_ids = self._txns[place]
        if any(draft.transactions.get(txn) is not None for txn in txn_ids):
            return True
        if any(owner_of(draft, number) != self._writer for number in (self._number, *txn_ids)):
            return True
        return not can_be_used(draft, self._number)

    def is_next(self, draft: Draft, place: int) -> bool:
        """Whether all commands before one have come true, or never will.

        What is refused here its owner may append all the same: nothing of the same owner may overtake it.
        """
        if draft is not self._draft:
            self._draft, self._ended = draft, 0
        while self._ended < place and all(can_have_no_effect(draft, txn) for txn in self._txns[self._ended]):
            self._ended += 1
        return self._ended == place


class _OfAnother:
    """A command of another writer. Nobody waits for its answer: what its own client would refuse is not done."""

    alone = None
    owned_topics = ()
    is_upkeep = True
    travels = False

    def __init__(self, proposal: Proposal, place: int, command: Command[Any]) -> None:
        self._proposal = proposal
        self._place = place
        self._command = command

    @property
    def txn_ids(self) -> tuple[int, ...]:
        """See Command."""
        return self._command.txn_ids

    @property
    def pieces(self) -> Sequence[Piece]:
        """See Command."""
        return self._command.pieces

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[Any]:
        """See Command."""
        if self._proposal.is_void(draft, at, self._place) or not self._proposal.is_next(draft, self._place):
            return Answer(None, settled=True)
        try:
            return self._command.decide(draft, at, shared)
        except TxnLogError:
            return Answer(None, settled=True)

    def result(self, _draft: Draft, _at: Header) -> None:
        """See Command."""


class _Seen:
    """What is known of one mailbox.

    Attributes:
        digest: of what it had last.
        modified: size and time of what a listing showed last.
        quiet: for how many cycles it had nothing new.
    """

    __slots__ = ("digest", "modified", "quiet")

    def __init__(self) -> None:
        self.digest: int | None = None
        self.modified: tuple[int, int] | None = None
        self.quiet = 0


class Collector:
    """What one writer collects.

    Attributes:
        collects: whether it looks into the mailboxes of others before each entry.
    """

    def __init__(self, follower: Follower, store: Store, runtime: Runtime, writer: str, races: Races) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._writer = writer
        self._races = races
        self.collects = False
        self._is_said = False
        self._cycle = 0
        self._finds = False
        self._own_idle = 0
        self._committing: dict[str, int] = {}
        self._sharing: dict[str, int] = {}
        self._not_before_ms = 0.0
        self._asked_until_ms = 0.0
        self._unpaid = 0
        self._mailboxes: dict[str, _Seen] = {}
        self._is_denied = False

    def note_appended(self) -> None:
        """An entry of this writer is in the log. If races were lost lately, and nobody else collects, it does."""
        if self.collects or self._is_denied or self._runtime.elapsed_ms() < self._not_before_ms:
            return
        if self._races.are_lost and self._races.collector is None:
            self._begin()

    async def make_place(self) -> None:
        """Append nothing for a while where somebody asks for that, and begin to collect."""
        if not self.collects and self._races.is_time_to_look:
            look = self._races.look()
            await self._runtime.request(look)
            self._races.note(look)
        place = self._races.take_place()
        begins = place.begins and not self._is_denied
        if place.ms:
            if begins and self._races.is_open:
                self._races.note_named(self._writer)
                await self._runtime.request(partial(self._races.say, self._writer, place.ms))
            await self._runtime.pause(place.ms)
        if begins:
            self._asked_until_ms = self._runtime.elapsed_ms() + _ASKED_MS
            if not self.collects:
                self._begin()
            elif self._races.is_named:
                await self._runtime.request(partial(self._races.say, self._writer))

    def _begin(self) -> None:
        self.collects, self._is_said = True, False
        self._cycle = self._own_idle = 0
        self._committing.clear()
        self._sharing.clear()

    async def leave_off(self, error: Exception) -> None:
        """An entry with what others propose failed: it collects no more; never, where a right is missing."""
        self._is_denied = isinstance(error, AccessDenied)
        _logger.debug("proposals of others are left to them: %s", error)
        await self.resign()

    async def resign(self) -> None:
        """Collect no more, and say so."""
        self.collects = False
        if self._is_said and self._races.is_named:  # as far as the last look showed: it is not another one's
            await self._runtime.request(partial(self._races.say, ""))
            self._races.note_named("")

    async def collect(self, own: Callable[[], Iterable[Command[Any]]]) -> list[Asked]:
        """What others propose. It may find that another one collects, or that it is time to end it. Raises nothing.

        Args:
            own: the commands that this writer has for the next entry itself.
        """
        try:
            return await self._collect(own)
        except Exception:
            _logger.exception("proposals of others are left to them: a bug, which harms no commit of this client")
            self.collects = False
            return []

    async def _collect(self, own: Callable[[], Iterable[Command[Any]]]) -> list[Asked]:
        if not self._is_said and not await self._may_begin():
            self.collects = False
            return []
        if self._cycle:
            await self._runtime.pause(_GATHER_TRIPS * self._races.trip.ms)
        # Requests beyond the threads that there are cost a round trip: what can be left out for a cycle is.
        lists = self._cycle < _LIST_FIRST or self._finds or self._cycle % _LIST_EVERY == 0
        looks = self._cycle < _LIST_FIRST or self._cycle % _LOOK_EVERY == 1
        wanted = self._wanted()
        look = self._races.look()
        calls: list[Callable[[], Any]] = [partial(self._read, writer) for writer in wanted]
        calls += [self._list] if lists else []
        calls += [look] if looks else []
        found = await self._runtime.requests(calls)
        self._cycle += 1
        self._races.note(look)
        if not self._races.is_named:
            self.collects = False
            return []
        if lists:
            self._finds = self._note_listed(found[len(wanted)])
        members = self._members(dict(zip(wanted, found, strict=False)))
        if members and self._runtime.elapsed_ms() < self._asked_until_ms:
            self._asked_until_ms = self._runtime.elapsed_ms() + _ASKED_MS
        commands = list(own())
        self._own_idle = 0 if commands else self._own_idle + 1
        self._note_shared(self._writer, commands)
        pays = self._pays()
        if self._own_idle > _OWN_IDLE_CYCLES or not pays:
            await self.resign()
        return members

    async def _may_begin(self) -> bool:
        """Say that this writer collects, unless another one does: who rested for a while does not know of that one."""
        look = self._races.look()
        await self._runtime.request(look)
        self._races.note(look)
        if not self._races.is_open:
            return False
        if not await self._runtime.request(partial(self._races.say, self._writer)):
            self._is_denied = True  # nobody may hear of it then, so others would not come here
            return False
        self._is_said = True
        self._races.note_named(self._writer)
        return True

    def _note_shared(self, writer: str, commands: Iterable[Command[Any]]) -> None:
        """A writer has these commands in this cycle."""
        shared = [command for command in commands if can_be_proposed(command)]
        if shared:
            self._sharing[writer] = self._cycle
        if any(isinstance(command, CommitCommand) for command in shared):
            self._committing[writer] = self._cycle

    def _lately(self, found: dict[str, int]) -> dict[str, int]:
        return {writer: cycle for writer, cycle in found.items() if self._cycle - cycle <= _IDLE_CYCLES}

    def _pays(self) -> bool:
        """Whether two had commits in the last cycles that can share entries, or three had those or acknowledgements.

        One by itself is faster without. So is a producer next to a consumer, of which one acknowledgement takes many
        commits off. Where it does not pay, this one begins again later and later.
        """
        self._committing, self._sharing = self._lately(self._committing), self._lately(self._sharing)
        if len(self._committing) > 1 or len(self._sharing) > 2:
            self._unpaid = 0
        elif self._cycle > _IDLE_CYCLES and self._runtime.elapsed_ms() >= self._asked_until_ms:
            pause_ms = _FIRST_PAUSE_TRIPS * self._races.trip.ms * 2**self._unpaid
            self._not_before_ms = self._runtime.elapsed_ms() + pause_ms
            self._unpaid = min(self._unpaid + 1, _MOST_UNPAID)
            return False
        return True

    # --- mailboxes ----------------------------------------------------------------------------------------------------

    def _wanted(self) -> list[str]:
        """The writers into whose mailboxes to look in this cycle."""
        for writer in self._follower.heard:
            if writer != self._writer:
                self._mailboxes.setdefault(writer, _Seen())
        known = self._known_writers()
        self._drop_oldest(known)
        wanted = [
            writer
            for place, (writer, seen) in enumerate(self._mailboxes.items())
            if (self._cycle + place) % 2 ** min(seen.quiet // _QUIET_CYCLES, _MOST_HALVINGS) == 0
        ]
        strangers = [writer for writer in wanted if writer not in known]
        strangers.sort(key=self._put_ms, reverse=True)
        return [*(writer for writer in wanted if writer in known), *strangers[:_MOST_STRANGERS]]

    def _known_writers(self) -> set[str]:
        return {block.writer for block in self._follower.state.blocks.values()} | self._follower.heard.keys()

    def _drop_oldest(self, known: set[str]) -> None:
        """Look no more into mailboxes beyond a number: those of writers that nobody knows first, put longest ago."""
        if len(self._mailboxes) > _MOST_MAILBOXES:
            order = partial(nsmallest, _MOST_MAILBOXES, key=lambda writer: (writer not in known, -self._put_ms(writer)))
            kept = set(order(self._mailboxes))
            self._mailboxes = {writer: seen for writer, seen in self._mailboxes.items() if writer in kept}

    def _put_ms(self, writer: str) -> int:
        modified = self._mailboxes[writer].modified
        return 0 if modified is None else modified[1]

    def _read(self, writer: str) -> bytes | None:
        try:
            return self._store.get_range(keys.mailbox_key(writer), 0, MAX_PROPOSAL_BYTES + 1)
        except Exception:  # noqa: BLE001 - whatever it is: its owner races, and this client's own commands go on
            return None

    def _list(self) -> list[ObjectInfo]:
        try:
            return list(islice(self._store.list(keys.PROPOSAL_FOLDER), _LISTED))
        except Exception:  # noqa: BLE001 - as above
            return []

    def _note_listed(self, found: Iterable[ObjectInfo]) -> bool:
        """Mailboxes that were put, or put again, since the last listing; whether there are new ones."""
        before = frozenset(self._mailboxes)
        for item in found:
            parsed = keys.parse_key(item.key)
            if isinstance(parsed, keys.MailboxKey) and parsed.writer is not None and parsed.writer != self._writer:
                seen = self._mailboxes.setdefault(parsed.writer, _Seen())
                modified = (item.size_bytes, item.modified_ms)
                if seen.modified != modified:
                    seen.modified, seen.quiet = modified, 0
        self._drop_oldest(self._known_writers())  # else what it drops is new in each listing
        return not before.issuperset(self._mailboxes)

    def _members(self, found: Mapping[str, bytes | None]) -> list[Asked]:
        """The commands of mailboxes in which there is something new."""
        members: list[Asked] = []
        size = 0
        for writer, data in found.items():
            seen = self._mailboxes.get(writer)
            if seen is None or size > _CYCLE_BYTES:
                continue
            seen.quiet += 1
            if data is None or (digest := xxhash.xxh3_64_intdigest(data)) == seen.digest:
                continue
            seen.digest, seen.quiet = digest, 0
            size += len(data)
            members += self._members_of(writer, data)
        return members

    def _members_of(self, writer: str, data: bytes) -> list[Asked]:
        state = self._follower.state
        try:
            mailbox = proposal_codec.decode(data, writer)
            if mailbox.number is not None and not can_be_used(state, mailbox.number):
                return []
            commands = proposal_codec.commands_of(mailbox, state)
        except Exception as error:  # noqa: BLE001 - whatever somebody put there, it stops nobody
            counts = self._races.counts
            counts.malformed += 1
            level = logging.WARNING if counts.malformed == 1 else logging.DEBUG
            _logger.log(level, "the proposal of the writer %s is passed over: %s", writer, error)
            return []
        self._races.counts.collected += 1
        self._note_shared(writer, commands)
        return [Asked(command, is_of_another=True) for command in Proposal(mailbox, commands).commands]


__all__ = ["Collector", "Proposal"]
