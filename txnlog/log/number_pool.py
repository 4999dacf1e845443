"""A writer's pool of numbers: blocks reserved in the log, each number given out once."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import length_hint
from typing import Final, Protocol

from txnlog.common.format_limits import MAX_PROPOSED_NUMBERS
from txnlog.common.limits import DEFAULT_GRACE_MS, RENEW_AFTER_MS
from txnlog.common.writer_text import client_of, writer_of
from txnlog.fold.number_blocks import CHUNK, TOUCH_MS, block_of, is_used
from txnlog.fold.state import Block, Draft
from txnlog.format.actions import AnyAction, Header, Renew, Reserve
from txnlog.log.commands import Answer, CommandDefaults, SharedNumbers

_FIRST_BLOCK = 4 * CHUNK
_LARGEST_BLOCK = MAX_PROPOSED_NUMBERS
_LOW_WATER = 8
"""The next block is reserved when less than an eighth of its size is left: taking a number almost never waits."""

_LONGEST_WORK_MS: Final = DEFAULT_GRACE_MS
"""A handle that somebody forgot, and that stays in memory, keeps vacuum from its block for a day and no longer."""


class UnloggedWork(Protocol):
    """Work of a transaction, with numbers that may yet be logged. It is asked in the engine.

    Attributes:
        since_ms: when it began, by the client's clock.
    """

    since_ms: int

    def unlogged_numbers(self) -> Sequence[int]:
        """The numbers."""


class _Range:
    """A block of this writer, and those of its numbers that nobody was given."""

    __slots__ = ("_numbers", "first", "take")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self._numbers = iter(range(first, first + count))
        self.take = partial(next, self._numbers, None)

    @property
    def left(self) -> int:
        """How many numbers it has."""
        return length_hint(self._numbers)


class NumberPool:
    """Numbers that this writer may use. It never blocks: an empty pool says so.

    Any thread may take numbers, also in the handler of a signal, so there is no lock: each step is one that the
    interpreter does not divide. All else happens in the engine.

    ``is_used`` says whether somebody aborted a number before it was given out (P-57): it is passed over.

    Attributes:
        writer_text: whose blocks are; behind the writer's id perhaps its client.
    """

    def __init__(self, writer_text: str, is_used: Callable[[int], bool] = lambda _: False) -> None:
        self.writer_text = writer_text
        self._says_client = client_of(writer_text) is None
        self._is_used = is_used
        self._ranges: tuple[_Range, ...] = ()
        self._returned: deque[int] = deque()
        self._added: set[int] = set()
        self._next_count = _FIRST_BLOCK
        self._demanded = 1
        self._work: dict[int, weakref.ref[UnloggedWork]] = {}  # no WeakSet: a fifth of what it takes to begin
        self._kept_blocks: list[int] = []
        self._looked_ms = 0

    # --- from any thread --------------------------------------------------------------------------------------------

    def take(self, count: int = 1) -> list[int] | None:
        """``count`` numbers, None where the pool does not have that many."""
        taken: list[int] = []
        while len(taken) < count:
            number = self._take_one()
            if number is None:
                self._returned.extend(taken)
                return None
            if not self._is_used(number):
                taken.append(number)
        return taken

    def _take_one(self) -> int | None:
        if self._returned:
            with suppress(IndexError):
                return self._returned.popleft()
        for item in self._ranges:
            number = item.take()
            if number is not None:
                return number
        return None

    @property
    def _left(self) -> int:
        return len(self._returned) + sum([item.left for item in self._ranges])

    def demand(self, count: int) -> None:
        """Somebody waits for this many numbers, and demands them again where another one was faster."""
        self._demanded = max(self._demanded, count)

    def has_any(self) -> bool:
        """Whether there are numbers."""
        return self._left > 0

    def keep_for(self, number: int, work: UnloggedWork) -> None:
        """Renew the blocks of its numbers too, until ``release`` or while it is in memory, for a day at most.

        Renewals ride in entries: of a handle that appends nothing, no block is renewed.
        """
        self._work[number] = weakref.ref(work)

    def release(self, number: int) -> None:
        """The work of this number is logged, or was dropped."""
        self._work.pop(number, None)

    # --- in the engine ----------------------------------------------------------------------------------------------

    def wants(self) -> bool:
        """Whether it is time to reserve the next block."""
        return self._left < max(self._demanded, self._next_count // _LOW_WATER)

    def reservation(self, draft: Draft) -> Reserve:
        """The action that reserves the next block at the draft's state."""
        return Reserve(self.writer_text, draft.head.next_number, self.wanted)

    def wants_to_say_client(self) -> bool:
        """Whether no block says the client yet: those that another writer reserved for this one do not."""
        return not self._says_client

    @property
    def wanted(self) -> int:
        """How many numbers the next block is to have."""
        return max(self._next_count, -(-self._demanded // CHUNK) * CHUNK)

    def renewals(self, draft: Draft, now_ms: int) -> list[Renew]:
        """Actions that show life of the blocks whose numbers are in use here, where nothing showed it for long."""
        if now_ms - self._looked_ms >= TOUCH_MS:  # they may be thousands, and this is done for every entry
            self._looked_ms = now_ms
            self._kept_blocks = self._look(draft, now_ms)
        mine = [item.first for item in self._ranges if item.left]
        blocks = _blocks(draft, [*mine, *list(self._returned), *self._kept_blocks])
        return [Renew(block.first) for block in blocks.values() if now_ms - block.touched_ms >= RENEW_AFTER_MS]

    def _look(self, draft: Draft, now_ms: int) -> list[int]:
        """Blocks with numbers that somebody holds and that the log does not show: for what it shows it keeps them."""
        numbers: list[int] = []
        for number, found in list(self._work.items()):
            item = found()
            if item is None or now_ms - item.since_ms >= _LONGEST_WORK_MS:
                self._work.pop(number, None)
            else:
                numbers.extend(item.unlogged_numbers())
        return sorted(_blocks(draft, [number for number in numbers if not is_used(draft, number)]))

    def drop_closed(self, draft: Draft) -> None:
        """Let go of numbers whose block was closed: nobody may use them any more."""
        self._ranges = tuple([item for item in self._ranges if item.left and block_of(draft, item.first) is not None])
        for number in list(self._returned):
            if block_of(draft, number) is None:
                with suppress(ValueError):  # somebody has just taken it
                    self._returned.remove(number)

    def add_own(self, actions: Iterable[AnyAction]) -> None:
        """An entry of this writer with these actions is in the log."""
        for action in actions:
            if isinstance(action, Reserve) and writer_of(action.writer) == writer_of(self.writer_text):
                self._says_client = True
                self.add(action)

    def add(self, granted: Reserve | Block) -> None:
        """A reservation is in the log; again it changes nothing."""
        if granted.first in self._added:
            return
        self._added.add(granted.first)
        self._ranges = (*self._ranges, _Range(granted.first, granted.count))
        self._next_count = min(2 * self._next_count, _LARGEST_BLOCK)
        self._demanded = 1


class NumbersWanted(CommandDefaults):
    """A command that needs numbers now: it makes an entry, with which the reservation rides."""

    txn_ids: tuple[int, ...] = ()
    is_upkeep = True
    travels = True

    def __init__(self, pool: NumberPool) -> None:
        self.pool = pool

    def decide(self, _draft: Draft, _at: Header, _shared: SharedNumbers) -> Sequence[AnyAction] | Answer[None]:
        """See Command."""
        return [] if self.pool.wants() else Answer(None, settled=True)

    def result(self, _draft: Draft, _at: Header) -> None:
        """See Command."""


def _blocks(draft: Draft, numbers: Iterable[int]) -> dict[int, Block]:
    """The open blocks that hold these numbers, by their first."""
    return {block.first: block for number in numbers if (block := block_of(draft, number)) is not None}


__all__ = ["NumberPool", "NumbersWanted", "UnloggedWork"]
