"""What a caller hears of a call that fails: the one place that makes another error out of one.

The place that raises an error decides first what happened, what may be durable and what to do next (decision 0037). An
error that was raised is a value: several callers may have it, and nobody changes it. Whoever knows more about the
call than the place that raised (that it would have written, that an earlier part of it is in the log, what to do where
its outcome is unknown) raises another error of the same class, with the same text and cause, which says so.

Python itself changes an error that is raised: its traceback grows, and has the frames of the call, with all that is
local there. Whoever keeps an error to raise it later, or has one for several callers, keeps a copy, and each of them
gets another one (``copy_of``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from txnlog.errors import (
    OR_ABORT,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TxnLogError,
)
from txnlog.sentences import Argument, Call, Either, Words, up_to_last

E = TypeVar("E", bound=TxnLogError)
X = TypeVar("X", bound=BaseException | None)

_THEN: Final = "; then "
"""Behind it stands which call to make when that is done which stands before it."""

AGAIN_WITH_SEQUENCE: Final = "make the same call again, with the same sequence"


def reworded(
    error: E,
    *,
    message: str | None = None,
    advice: str | None = None,
    durable: Durable | None = None,
    says_nothing_written: bool | None = None,
) -> E:
    """The same error with other words, with its traceback, notes and cause.

    Args:
        error: it stays as it is.
        message: what happened.
        advice: what to do next.
        durable: whether effects of the call may be on the store.
        says_nothing_written: whether the text says so where that is the case.
    """
    other = _alike(error, error.message if message is None else message)
    if advice is not None:
        other._advice = advice
    if durable is not None:
        other._durable = durable
    if says_nothing_written is not None:
        other._unsaid = not says_nothing_written
    _take_origin(other, error)
    return other.with_traceback(error.__traceback__)


def _alike(error: E, message: str) -> E:
    other = type(error).__new__(type(error), message)
    other.__dict__.update(error.__dict__)
    if hasattr(error, "__notes__"):
        other.__notes__ = [*error.__notes__]
    other._message = message
    return other


def _take_origin(other: BaseException, error: BaseException) -> None:
    """What the one came of is what the other one came of."""
    other.__cause__, other.__context__ = error.__cause__, error.__context__
    other.__suppress_context__ = error.__suppress_context__


def copy_of(error: X) -> X:
    """The same error to keep, or to raise in place of a kept one: with its notes and cause, but without its traceback.

    Errors of others are not copied: nobody knows how.
    """
    return _copied(error, {}).with_traceback(None) if isinstance(error, TxnLogError) else error


def _copied(error: X, known: dict[int, Any]) -> X:
    """A copy also of what it came of: a caller may raise that, or add a note to it."""
    if not isinstance(error, TxnLogError):
        return error
    copy = known.get(id(error))
    if copy is None:
        copy = known[id(error)] = _alike(error, error.message)
        copy.__cause__, copy.__context__ = _copied(error.__cause__, known), _copied(error.__context__, known)
        copy.__suppress_context__ = error.__suppress_context__
        copy.__traceback__ = error.__traceback__
    return copy


def note(error: BaseException, text: str) -> None:
    """Add a note to an error, past what its class does with attributes: one of a program may be a frozen dataclass."""
    BaseException.__setattr__(error, "__notes__", [*notes_of(error), text])


def notes_of(error: BaseException) -> tuple[str, ...]:
    """The notes of an error, past what its class does with attributes."""
    try:
        return tuple(BaseException.__getattribute__(error, "__notes__"))
    except (AttributeError, TypeError):  # it has none, or something else under that name
        return ()


class Replying(contextlib.ContextDecorator):
    """Around a call, or a part of it: what it raises becomes what ``reply`` makes of it. Also a decorator."""

    def __init__(self, reply: Callable[[TxnLogError], TxnLogError]) -> None:
        self._reply = reply

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, TxnLogError | BaseExceptionGroup):
            other = _reply_to(error, self._reply)
            if other is not error:
                try:
                    raise other
                finally:
                    _take_origin(other, error)  # what it is raised in place of is not shown besides
                    del other  # its traceback refers to this frame


def _reply_to(error: BaseException, reply: Callable[[TxnLogError], TxnLogError]) -> BaseException:
    """The reply to an error; for a group, one with the replies to its errors."""
    if isinstance(error, TxnLogError):
        return reply(error)
    if not isinstance(error, BaseExceptionGroup):
        return error
    replies = [_reply_to(item, reply) for item in error.exceptions]
    if all(new is old for new, old in zip(replies, error.exceptions, strict=True)):
        return error
    other = error.derive(replies)
    if hasattr(error, "__notes__"):
        other.__notes__ = [*error.__notes__]
    _take_origin(other, error)
    return other.with_traceback(error.__traceback__)


# --- durability -------------------------------------------------------------------------------------------------------


def refused_write() -> Replying:
    """Around what a call looks for before it writes: an error says also what else goes without saying."""
    return Replying(partial(reworded, says_nothing_written=True))


def only_looking() -> Replying:
    """Around a call that could not write: that it is a wrong one says nothing of what is durable."""
    return Replying(_of_wrong_look)


def _of_wrong_look(error: TxnLogError) -> TxnLogError:
    return reworded(error, says_nothing_written=False) if isinstance(error, InvalidInputError) else error


def not_sent() -> Replying:
    """Around what comes before anything of a command is sent: of what the caller asked for nothing was done."""
    return Replying(_of_unsent)


def _of_unsent(error: TxnLogError) -> TxnLogError:
    return reworded(error, durable=Durable.NOTHING) if isinstance(error, StoreError) else error


class in_parts(Replying):  # noqa: N801 - a context like the others
    """Around a call that writes in several parts: an error says whether an earlier one is on the store.

    What this thread has written meanwhile was noted by ``note_written``: by the engine for each command that is in the
    log, by whoever writes objects that are found without one.
    """

    def __init__(self) -> None:
        super().__init__(after_part)

    def __enter__(self) -> None:
        _PARTS.set(_Parts(_PARTS.get()))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        parts = _PARTS.get()
        assert parts is not None, "it was entered"
        _PARTS.set(parts.outer)
        if parts.any:
            note_written()  # it may be a part of another call
            super().__exit__(kind, error, trace)


class _Parts:
    """Of one call.

    Attributes:
        any: whether one of its parts is on the store.
        outer: of the call that it is a part of.
    """

    __slots__ = ("any", "outer")

    def __init__(self, outer: _Parts | None) -> None:
        self.any = False
        self.outer = outer


_PARTS: Final[ContextVar[_Parts | None]] = ContextVar("txnlog_parts", default=None)


def note_written() -> None:
    """A part of the call that this thread makes is on the store, or may be: something that readers find."""
    parts = _PARTS.get()
    if parts is not None:
        parts.any = True


def after_part(error: E) -> E:
    """The error of a call, or of a part of it, behind one that is on the store, or may be."""
    return error if error.durable is Durable.MAYBE else reworded(error, durable=Durable.MAYBE)


def after_writing(again: str) -> Replying:
    """Around the rest of a call whose first part is in a log by now: an error says so, and how the call is finished."""
    return Replying(lambda error: after_part(_finishing(error, again)))


def finishing(again: str) -> Replying:
    """Around the rest of a call that is not simply made again: how it is finished."""
    return Replying(lambda error: _finishing(error, again))


def _finishing(error: TxnLogError, again: str) -> TxnLogError:
    if isinstance(error, RetriableError | InvalidTransactionState):  # they say it, or why the call is not made again
        return error
    return reworded(error, advice=Words(error.advice, _THEN, again))


# --- advice -----------------------------------------------------------------------------------------------------------


def advising(error: E, what: str) -> E:
    """The error with this advice in place of calling again. What has to be done before (``...; then``) stays."""
    return reworded(error, advice=Words(up_to_last(error.advice, _THEN), what))


def unknown_outcome(what: str) -> Replying:
    """Around a call that is not simply made again where the store does not say whether it was done: what to do then."""
    return advising_of(OutcomeUnknown, what)


def advising_of(kind: type[TxnLogError], what: str) -> Replying:
    """Around a call whose errors of one kind want another advice than elsewhere."""
    return Replying(lambda error: advising(error, what) if isinstance(error, kind) else error)


def as_part_of(whole: str) -> Replying:
    """Around a call that is a part of another: the advice is to make that one again, and not the part of it."""

    def reply(error: TxnLogError) -> TxnLogError:
        is_of_part = isinstance(error, OutcomeUnknown) or _THEN in error.advice
        return advising(error, whole) if is_of_part else error

    return Replying(reply)


_VACUUM_AGAIN: Final = Words("call ", Call("vacuum", "..."), " again, with the same arguments")


class IfUnknown:
    """By call what to do where its outcome is unknown. What is not here is simply made again."""

    PRODUCE: Final = Words(
        "do not produce the rows again before you looked: ", Call("transaction", "txn_id"), ", ", OR_ABORT
    )
    PRODUCE_WITH_SEQUENCE: Final = Words(AGAIN_WITH_SEQUENCE, ", ", OR_ABORT)
    COMMIT: Final = Words("call commit() again, ", OR_ABORT)
    PREPARE: Final = Words(
        "call prepare() again, or abort(); ", Call("transaction", "txn.id"), " shows what the log has"
    )
    TRANSACT: Final = Words("look how it ended before you call again: ", Call("transaction", "txn_id"), ", ", OR_ABORT)
    COMPLETE: Final = Words(
        "call ", Call("complete", "token", Argument("commit", ...)), " again, with the same decision"
    )
    SEEK: Final = "open another consumer, and look where the subscription stands: this one may be fenced"
    """A second one would undo what others did since."""
    DROP_TOPIC: Final = Words(
        "look whether it was done: ", Call("topics"), "; a topic of this name may be another one, made since"
    )
    DROP_SUBSCRIPTION: Final = Words(
        "look whether it was done: ", Call("subscriptions", "topic"), "; one of this name may be another, made since"
    )
    DROP_NAMESPACE: Final = "look whether it was done: namespaces(); one of this name may be another, made since"
    FENCE_PRODUCER: Final = (
        "look for a newer producer with this name before you fence it again: that would stop it as well"
    )
    FORGET_APP: Final = Words(
        "look whether it was done: ",
        Call("last_txn_version", "txn_app_id"),
        "; a version may have been committed since",
    )
    CREATE_LOG: Final = "make the same call again"
    """Who adopts a namespace does not open it."""
    REGISTER: Final = "call it again"
    CHECKPOINT: Final = "make a checkpoint again, any time: no commit depends on it"
    DELETE_RECORDS: Final = Words(
        "call ", Call("delete_records", "topic", "..."), " again: what was deleted stays deleted"
    )
    OPTIMIZE: Final = Words(
        "call ",
        Call("optimize", "topic", "..."),
        " again, with the same arguments: it goes on from what the log shows",
    )
    COMPACT: Final = Words("call ", Call("compact", "topic"), " again: it goes on from what the log shows")
    ERASE: Final = Words("call ", Call("erase", "topic", "..."), " again: what was erased stays erased")
    ANNOUNCE_VACUUM: Final = Words(_VACUUM_AGAIN, "; nothing was deleted")


class Rest:
    """By call how it is finished where its first part is in a log.

    Calls that delete are made again with the same arguments: others could delete what was to be kept.
    """

    OPEN: Final = "open it again"
    ADOPT: Final = "adopt it again"
    VACUUM: Final = _VACUUM_AGAIN
    MAINTAIN: Final = Words("call ", Call("maintain", "..."), " again, with the same arguments")
    BACKUP: Final = Words(
        Either("call txnlog.backup(...) again", "run the same command again"), ", which goes on where this one ended"
    )
    RESTORE: Final = Words(
        Either("call txnlog.restore(...) again", "run the same command again"), ", which goes on where this one ended"
    )
    DECIDE: Final = "commit again, or begin the next transaction of the producer, which settles this one first"
    """Of a transaction that is prepared, and which a Delta table decides."""


class IfClosed:
    """What to do about a transaction whose handle was closed, by what of it the log may have."""

    NOTHING: Final = "open it again and begin a new one: nothing of this becomes visible"
    PENDING: Final = Words(
        NOTHING,
        "; what the log shows stays pending until its deadline, unless ",
        Call("abort", "txn_id"),
        " ends it",
    )
    PREPARED: Final = Words(
        "open it again, and do not do its work again: it is prepared, and others decide about it; ",
        Call("transaction", "txn_id"),
        " shows whether they have, and ",
        Call("complete", "token", Argument("commit", ...)),
        " does",
    )
    PREPARE_UNKNOWN: Final = Words(
        "open it again, and look before you do its work again: the outcome of its prepare is unknown; ",
        Call("transaction", "txn_id"),
        " shows what the log has, and ",
        Call("abort", "txn_id", Argument("force", True)),
        " makes it definite",
    )
    COMMIT_UNKNOWN: Final = Words(
        "open it again, and look before you do its work again: the outcome of its commit is unknown; ",
        Call("abort", "txn_id"),
        " makes it definite",
    )
    COMMITTING: Final = "its commit is under way, and close() waits for it: call commit(), which gives its result"
    COMMITTED: Final = "open it again and begin a new one: this one was committed"


__all__ = [
    "AGAIN_WITH_SEQUENCE",
    "IfClosed",
    "IfUnknown",
    "Replying",
    "Rest",
    "advising",
    "advising_of",
    "after_part",
    "after_writing",
    "as_part_of",
    "copy_of",
    "finishing",
    "in_parts",
    "not_sent",
    "note",
    "note_written",
    "notes_of",
    "only_looking",
    "refused_write",
    "reworded",
    "unknown_outcome",
]
