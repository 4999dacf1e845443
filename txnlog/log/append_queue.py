"""Commands that wait for an entry: what a command of the engine awaits to have another one carried out in the log.

All of it happens in the engine, but for ``ride``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

from txnlog.common.limits import BUFFER_BYTES, TARGET_ENTRY_BYTES
from txnlog.engine.effects import Effect, Result, Waiting
from txnlog.errors import TxnLogError
from txnlog.log.append_errors import note_unsent
from txnlog.log.commands import BY_ITSELF, Command
from txnlog.log.group_commit import Attempt, Member
from txnlog.replies import copy_of

R = TypeVar("R")

_GROUP_COMMANDS: Final = 1_024
"""Deciding them takes some 30 ms of the engine, which is about what an entry costs on a store that is not local."""


_COMMAND_BYTES: Final = 200
_PIECE_BYTES: Final = 64
"""About what a command, and each of its shares, takes in an entry: what is too much all the same is divided later."""


def _nothing(_reply: Result[Any]) -> None:
    pass


class Ride(Protocol):
    """What rides along: ``outcome`` is its answer and its error, one of which is None, once there is one."""

    @property
    def outcome(self) -> tuple[Any, BaseException | None] | None:
        """See above."""


class Asked(Member):
    """A command that somebody waits for, and the ``reply`` to it, which never changes.

    With ``is_of_another`` it is another client's, which finds its outcome in the log: nobody here waits for it.
    """

    __slots__ = ("_heard", "in_background", "is_of_another", "reply")

    def __init__(
        self,
        command: Command[Any],
        heard: Callable[[Result[Any]], object] = _nothing,
        *,
        in_background: bool = False,
        is_of_another: bool = False,
    ) -> None:
        super().__init__(command)
        self.is_of_another = is_of_another
        self._heard = heard
        self.in_background = in_background
        self.reply: Result[Any] | None = None

    def answer(self, value: Any, error: BaseException | None = None) -> None:
        """Reply to it, once: a second reply changes nothing.

        An error that is none of the library's says that nothing was sent: of what was, the outcome is unknown.
        """
        if self.reply is None:
            if isinstance(error, Exception) and not isinstance(error, TxnLogError):
                note_unsent(error)
            self.reply = Result(value, error)
            heard, self._heard = self._heard, _nothing  # it refers to this: rows would wait for the garbage collector
            heard(self.reply)

    @property
    def outcome(self) -> tuple[Any, BaseException | None] | None:
        """The answer and the error, one of which is None, once there is one."""
        return None if self.reply is None else (self.reply.value, self.reply.error)


class Append(Effect[R], Generic[R]):
    """Carries out a command with one of the next entries.

    Where its caller is gone it is withdrawn while it waits. On its way into the log it goes on: its outcome is heard.
    With ``goes_on`` the command that awaits it goes on to its own end behind that, too: something is to be settled.
    """

    can_be_cancelled = True

    def __init__(self, queue: AppendQueue, command: Command[R], *, in_background: bool, goes_on: bool) -> None:
        self._queue = queue
        self._command = command
        self._in_background = in_background
        self._goes_on = goes_on

    def begin(self, waiting: Waiting) -> None:
        """See Effect. Raises what refuses new commands."""
        self._waiting = waiting
        self._asked = asked = Asked(self._command, self._hear, in_background=self._in_background)
        self._queue.add(asked)

    def _hear(self, reply: Result[Any]) -> None:
        waiting = self._waiting
        if self._asked.has_written:
            waiting.note_written()
        if self._goes_on and reply.error is None:
            waiting.go_on()
        waiting.resume_here(self, reply)

    def cancel(self, waiting: Waiting) -> bool:  # noqa: ARG002 - see Effect
        """See Effect."""
        return self._queue.take_out(self._asked)


class AppendQueue:
    """The commands that wait for the entries of one handle, in the order in which they came.

    Args:
        begin: has the appender begin, unless it is at work.

    Attributes:
        refusal: the error for every new command; None while the queue is open.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._asked: deque[Asked] = deque()
        self._riding: deque[Asked] = deque()
        self._last_batch = 0
        self.refusal: TxnLogError | None = None

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def is_next_by_itself(self) -> bool:
        """Whether nobody else may be in the next entry."""
        return bool(self._asked) and self._asked[0].command.alone == BY_ITSELF

    def commands(self) -> list[Command[Any]]:
        """All that wait."""
        return [asked.command for asked in self._asked]

    def add(self, asked: Asked) -> None:
        """Have a command carried out. Raises the refusal."""
        if self.refusal is not None:
            raise copy_of(self.refusal)
        self._asked.append(asked)
        self._begin()

    def ride(self, command: Command[object]) -> Ride:
        """Let a command go along with whatever comes next. From any thread."""
        asked = Asked(command)
        self._riding.append(asked)
        return asked

    def take_out(self, asked: Asked) -> bool:
        """Withdraw a command, and whether it was there yet."""
        try:
            self._asked.remove(asked)
        except ValueError:
            return False
        return True

    def expects_company(self, seen: int) -> bool:
        """Whether more commands of the background come, beyond those that were seen, up to as many as the last time."""
        return seen < len(self._asked) < self._last_batch and self._asked[0].in_background

    def take_batch(self) -> Attempt[Asked] | None:
        """The commands of the next entry: in order, those that must be alone in their kind one at a time.

        One that has an entry by itself is overtaken by nobody, and overtakes nobody. Nor do rows overtake the segments
        of a command before theirs: shared segments come first in an entry.
        """
        batch: list[Asked] = []
        kept: list[Asked] = []
        alone: set[Hashable] = set()
        owned: set[int] = set()
        size = rows_bytes = 0
        queue = self._asked
        while queue and len(batch) < _GROUP_COMMANDS and size < TARGET_ENTRY_BYTES and rows_bytes < BUFFER_BYTES:
            asked = queue.popleft()
            kind = asked.command.alone
            if kind == BY_ITSELF:
                if batch:
                    queue.appendleft(asked)
                else:
                    batch.append(asked)
                break
            if owned and any(piece.topic in owned for piece in asked.command.pieces):
                queue.appendleft(asked)
                break
            if kind is not None and kind in alone:
                kept.append(asked)
                continue
            if kind is not None:
                alone.add(kind)
            batch.append(asked)
            owned.update(asked.command.owned_topics)
            size += _COMMAND_BYTES + _PIECE_BYTES * len(asked.command.pieces)
            rows_bytes += sum(piece.size_bytes for piece in asked.command.pieces)
        self.put_back(kept)
        self._last_batch = len(batch)
        if not batch:
            return None
        while self._riding and batch[0].command.alone != BY_ITSELF:
            batch.append(self._riding.popleft())
        return Attempt(batch)

    def put_back(self, asked: list[Asked]) -> None:
        """Commands of a batch are for the next entry, before all others. Those of other clients come again anyway."""
        self._asked.extendleft([item for item in reversed(asked) if not item.is_of_another])

    def fail(self, error: TxnLogError) -> None:
        """Answer all that wait with an error."""
        while self._asked:
            self._asked.popleft().answer(None, copy_of(error))


__all__ = ["Append", "AppendQueue", "Asked", "Ride"]
