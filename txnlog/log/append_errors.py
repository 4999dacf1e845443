"""What callers hear of an entry that may have been sent, and of those that wait behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txnlog.common.ids import TxnId
from txnlog.errors import CorruptionError, OutcomeUnknown, RetriableError, TxnLogError, UnsupportedFeature
from txnlog.replies import advising, copy_of, note, notes_of, reworded
from txnlog.sentences import Call, Words

_ALL_THE_SAME: Final = "and may take effect all the same"
_UNSENT: Final = "txnlog: nothing was sent of this call, and nothing of it takes effect"


def answer_of(error: BaseException, txn_ids: Iterable[TxnId], *, may_land: bool) -> BaseException:
    """What one of those hears who waited for an entry that failed; ``may_land``: what was sent of it may be logged."""
    if not isinstance(error, Exception):
        return error  # no answer at all: nobody takes it for one
    if may_land:
        return outcome_unknown(txn_ids, error)
    return blocked(error.__cause__) if isinstance(error, OutcomeUnknown) else error


def outcome_unknown(txn_ids: Iterable[TxnId], error: BaseException) -> OutcomeUnknown:
    """For a call whose entry was sent. ``error`` is what the append ended with."""
    message, first = "the store did not say whether the entry of this call exists", Words()
    if isinstance(error.__cause__, TxnLogError):
        message += f" ({error.__cause__.message})"
    if isinstance(error, CorruptionError | UnsupportedFeature):
        message = f"the slot of this call's entry holds what cannot be read, its own or another's: {error.message}"
        first = Words(error.advice, "; then ")
    unknown = OutcomeUnknown(message, txn_ids=tuple(map(str, txn_ids)))
    unknown = reworded(unknown, advice=Words(first, unknown.advice))
    # A copy: there may be several calls, and the traceback has the rows of all that wait for the entry.
    unknown.__cause__ = copy_of(error).__cause__ if isinstance(error, OutcomeUnknown) else copy_of(error)
    return unknown


def note_interrupted(error: BaseException, txn_ids: Iterable[TxnId]) -> None:
    """Say in an exception that interrupted a call, as Ctrl-C does, what may become of the call all the same.

    Whoever handles it would otherwise take the work for undone, and do it again.
    """
    ids = ", ".join(map(str, txn_ids))
    if not ids:
        note(error, f"txnlog: this call was interrupted, {_ALL_THE_SAME}")
        return
    note(
        error,
        Words(
            f"txnlog: this call of the transaction {ids} was interrupted, {_ALL_THE_SAME}: ",
            Call("transaction", "txn_id"),
            " shows its outcome, and ",
            Call("abort", "txn_id"),
            " makes it definite",
        ),
    )


def note_unsent(error: Exception) -> None:
    """Say in an exception that is none of the library's, once, that nothing was sent of the calls that it ended."""
    if _UNSENT not in notes_of(error):
        note(error, _UNSENT)


def note_repeatable(error: BaseException, how: str) -> None:
    """Say first, in an exception that interrupted a call, that the call may be made again: that is the shorter way."""
    notes: list[str] = getattr(error, "__notes__", [])
    if notes and notes[-1].startswith("txnlog:"):
        before, rest = f"{_ALL_THE_SAME}:", f"{_ALL_THE_SAME}: {how}; or"
        parts = Words(notes[-1]).parts
        notes[-1] = Words(*(part.replace(before, rest, 1) if isinstance(part, str) else part for part in parts))


def blocked(cause: BaseException | None) -> RetriableError:
    """For calls that wait behind an entry of unknown outcome. What the store said last may have to be fixed first."""
    why, advice = "", RetriableError._default_advice
    if isinstance(cause, TxnLogError):
        why, advice = f" ({cause.message})", Words(cause.advice, "; then ", advice)
    # Not as its cause: with its traceback the error would keep the calls of others in memory.
    return RetriableError(
        f"the outcome of an earlier entry of this handle is still unknown{why}; of this call nothing was sent",
        advice=advice,
    )


def no_numbers(unknown: TxnLogError) -> TxnLogError:
    """For a call whose TxnID is still to be reserved: whatever became of that entry, nothing of the call was done."""
    if not isinstance(unknown, OutcomeUnknown):
        return unknown
    error = RetriableError(
        f"no TxnID could be reserved: {unknown.message}; of this call nothing was sent",
        advice=advising(unknown, RetriableError._default_advice).advice,
    )
    error.__cause__ = unknown.__cause__
    return error


__all__ = [
    "answer_of",
    "blocked",
    "no_numbers",
    "note_interrupted",
    "note_repeatable",
    "note_unsent",
    "outcome_unknown",
]
