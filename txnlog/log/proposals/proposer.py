"""Has another writer bring commands into the log: who collects finds them in a mailbox (PROTOCOL.md, "Proposals").

A proposal is what a delayed request is: it may come true until the log shows its number used, which whoever proposed it
sees to before it says that something was refused. All of it happens in the engine.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import AccessDenied, TxnLogError
from txnlog.fold.number_blocks import can_be_used, owner_of
from txnlog.fold.state import Draft, State
from txnlog.format import keys
from txnlog.format.actions import Abort, AnyAction, Header
from txnlog.log.append_queue import Asked
from txnlog.log.commands import Command
from txnlog.log.follower import Follower
from txnlog.log.group_commit import Attempt
from txnlog.log.number_pool import NumberPool, NumbersWanted
from txnlog.log.proposals import proposal_codec
from txnlog.log.proposals.proposal_codec import can_be_proposed, is_over
from txnlog.log.proposals.races import Races
from txnlog.log.proposals.rhythm import PATIENCE_TRIPS, Rhythm
from txnlog.store.base import Store

_logger = LogLines("txnlog.proposals")

_LONGEST_TRIPS: Final = 40.0
"""Round trips from the put of a mailbox, after which it races in any case."""

_PASSED_OVER_ENTRIES: Final = 3
_ENTRIES_OF_OTHERS: Final = 6
"""Entries of who collects, or of others, without an outcome of what was proposed. A proposer races then: somebody else
may collect by now."""

_LATE_LOOKS: Final = 4
_READ_AT_ONCE: Final = 8
"""After so many looks in a row that found what was there already, so many entries are read at once: the way to the
store is longer than these are apart, and whoever reads one in each round trip falls behind more and more."""


class _OpenProposal(NamedTuple):
    """A proposal that was put: its transactions, and what its mailbox says of its time."""

    txns: tuple[int, ...]
    version: int
    time_ms: int


class Proposer:
    """What one writer proposes."""

    def __init__(
        self, follower: Follower, store: Store, runtime: Runtime, writer: str, numbers: NumberPool, races: Races
    ) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._writer = writer
        self._numbers = numbers
        self._races = races
        self._rhythm = Rhythm(races.trip)
        self._open: dict[int, _OpenProposal] = {}
        self._is_denied = False
        self._has_mailbox = False
        self._awaits_numbers = False
        self._numbers_from = 0

    # --- what is out --------------------------------------------------------------------------------------------------

    @property
    def awaits(self) -> bool:
        """Whether the next entry may hold something that was proposed."""
        return bool(self._open) or self._awaits_numbers

    def open_txn_ids(self) -> frozenset[int]:
        """The transactions of proposals that may come true yet."""
        return frozenset(txn for item in self._still_open().values() for txn in item.txns)

    def _still_open(self) -> dict[int, _OpenProposal]:
        state = self._follower.state
        return self._open_at(state, state.head.version + 1, state.head.timestamp_ms)

    def _open_at(self, state: Draft | State, version: int, timestamp_ms: int) -> dict[int, _OpenProposal]:
        """Those of which something may come true in the entry of a version and a time, or behind it."""
        return {
            number: item
            for number, item in self._open.items()
            if can_be_used(state, number)
            and not all(can_have_no_effect(state, txn) for txn in item.txns)
            and not is_over(item.version, item.time_ms, version, timestamp_ms)
        }

    def retractions(self, draft: Draft, at: Header) -> list[AnyAction]:
        """What makes void, in an entry, the proposals that may come true yet. No refusal is one before it is there.

        The time of this entry says nothing: what is refused needs none, and the next entry may be that of somebody
        whose clock is behind this one.
        """
        self._open = self._still_open()
        head_ms = self._follower.state.head.timestamp_ms
        return [Abort(number, "failed") for number in self._open_at(draft, at.version, head_ms)]

    def add_numbers(self) -> None:
        """Take over the block that somebody else reserved for this writer since it proposed that, and no other one.

        Its older blocks may be those of jobs, whose tasks give the numbers out.
        """
        if self._awaits_numbers:
            for block in self._follower.state.blocks.values():
                if block.writer == self._writer and block.first >= self._numbers_from:
                    self._numbers.add(block)

    async def close(self) -> None:
        """Nothing is proposed any more: rows do not stay in the mailbox. Best effort."""
        if self._has_mailbox:
            try:
                await self._runtime.request(partial(self._store.delete, keys.mailbox_key(self._writer)))
                self._has_mailbox = False
            except TxnLogError as error:
                _logger.debug("the mailbox stays until the next vacuum: %s", error.message)

    # --- proposing ----------------------------------------------------------------------------------------------------

    def wants(self, attempt: Attempt[Asked]) -> bool:
        """Whether the commands are to be proposed: somebody collects who was not asked yet, and they are of the kind.

        Nothing new while an older proposal may come true: it would be overtaken. The same may be proposed once more:
        were it not, all who waited for one that ended would have to win a race each before they could share entries.
        """
        collector = self._races.collector
        members = attempt.members
        self._open = self._still_open()
        return (
            collector is not None
            and collector not in attempt.offered_to
            and (not attempt.offered_to or attempt.proposed_as is not None)  # who has no numbers is known to nobody
            and not self._is_denied
            and bool(members)
            and all(self._can_propose(member.command) for member in members)
            and (not self._open or self._open.keys() == {attempt.proposed_as})
        )

    def _can_propose(self, command: Command[Any]) -> bool:
        """Whether it can be of this writer's proposals: these are void where they are about transactions of others.

        Nor of one that the log shows: who could put any mailbox would commit half of somebody's transaction.
        """
        if not can_be_proposed(command):
            return False
        state = self._follower.state
        if any(state.transactions.get(txn) is not None for txn in command.txn_ids):
            return False
        return all(owner_of(state, txn) == self._writer for txn in command.txn_ids)

    async def propose(self, attempt: Attempt[Asked]) -> None:
        """Have somebody else bring the commands into the log. Whoever is left in the attempt then has to race."""
        attempt.offered_to.add(self._races.collector or "")
        commands = [member.command for member in attempt.members]
        txns = tuple([txn for command in commands for txn in command.txn_ids])
        known = self._open.get(attempt.proposed_as) if attempt.proposed_as is not None else None
        number = None
        if known is not None:
            number = attempt.proposed_as
            txns = (*known.txns, *(txn for txn in txns if txn not in known.txns))
        elif txns:
            taken = self._numbers.take()
            if taken is None:
                return
            number = attempt.proposed_as = taken[0]
        head = self._follower.state.head
        now_ms = head.log_time_ms(self._runtime.now_ms())
        try:
            data = proposal_codec.encode(self._writer, number, commands, self._follower.state, now_ms)
        except TxnLogError:
            return  # past a deadline, which whoever races is told
        if data is None:
            return
        if number is not None:
            # Of all that was put under the number: an earlier put may arrive late, and a clock may have been set back.
            version, time_ms = (0, 0) if known is None else (known.version, known.time_ms)
            self._open[number] = _OpenProposal(txns, max(version, head.version), max(time_ms, now_ms))
        self._awaits_numbers = any(isinstance(command, NumbersWanted) for command in commands)
        self._numbers_from = head.next_number
        try:
            if await self._put(data):
                await self._follow(attempt)
        finally:
            self._awaits_numbers = False
            if attempt.members:
                self._races.note_in_vain()
            else:
                self._races.note_brought()

    async def _put(self, data: bytes) -> bool:
        """Put the mailbox. Where that fails it may be there all the same: whoever races makes it void first."""
        self._has_mailbox = True
        try:
            put = partial(self._store.put_unsynced, keys.mailbox_key(self._writer), data)
            await self._runtime.request(put)
        except TxnLogError as error:
            self._is_denied = isinstance(error, AccessDenied)
            _logger.debug("nothing is proposed: %s", error.message)
            return False
        return True

    async def _follow(self, attempt: Attempt[Asked]) -> None:
        """Apply one entry after the other until all have their outcome, or it is time to race."""
        try:
            if not attempt.knew_the_end:
                await self._follower.refreshing()  # what was written long ago has no rhythm
            await self._follow_in_rhythm(attempt)
        except TxnLogError as error:
            _logger.debug("a proposal is not waited for: %s", error.message)  # a race asks the store again and again

    async def _follow_in_rhythm(self, attempt: Attempt[Asked]) -> None:
        races, rhythm, runtime = self._races, self._rhythm, self._runtime
        began_ms = seen_ms = runtime.elapsed_ms()
        is_at_end = False
        passed_over = by_others = late = 0
        while attempt.members and passed_over < _PASSED_OVER_ENTRIES and by_others < _ENTRIES_OF_OTHERS:
            pause_ms = rhythm.pause_ms(runtime.elapsed_ms())
            if pause_ms > 0:
                await runtime.pause(pause_ms)
            is_at_end = is_at_end or rhythm.is_aimed  # what comes then was not there when the mailbox was put
            left = len(attempt.members)
            sent_ms = runtime.elapsed_ms()
            count = _READ_AT_ONCE if late >= _LATE_LOOKS else 1
            found = await runtime.requests(self._follower.reads_of_next(count))
            headers = []
            for item in found:
                if (entry := self._follower.apply_next(item)) is None:
                    break
                headers.append(entry.header)
            late = 0 if rhythm.is_aimed or not headers else late + 1
            now_ms = runtime.elapsed_ms()
            if now_ms - began_ms > _LONGEST_TRIPS * races.trip.ms:
                return
            if not headers:
                is_at_end = True
                rhythm.missed()
                if now_ms - seen_ms > PATIENCE_TRIPS * races.trip.ms:
                    return
                continue
            seen_ms = now_ms
            newest = headers[-1]
            rhythm.found(sent_ms, newest.writer, newest.timestamp_ms)
            if len(attempt.members) < left:
                races.note_named(newest.writer)
            # Those that are read at once are one: who is behind does not know which came behind the mailbox.
            if is_at_end and newest.writer == races.collector:
                passed_over += 1
            elif is_at_end:
                by_others += 1


def can_have_no_effect(state: Draft | State, txn: int) -> bool:
    """Whether nothing can come of a transaction any more: it is not open, and its number cannot be used anew."""
    return state.transactions.get(txn) is None and not can_be_used(state, txn)


__all__ = ["Proposer", "can_have_no_effect"]
