"""Whoever keeps an error, or has one for several callers, keeps a copy, and each of them gets another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from txnlog import errors
from txnlog.errors import (
    AccessDenied,
    CorruptionError,
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
    TxnLogError,
)
from txnlog.log.append_errors import outcome_unknown
from txnlog.log.append_queue import AppendQueue, Asked
from txnlog.log.commands import effect
from txnlog.replies import copy_of

KINDS = [getattr(errors, name) for name in errors.__all__ if name != "Durable"]


def raised(error: BaseException, *, cause: BaseException | None = None) -> BaseException:
    """The error as its first caller got it."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - any class
        return caught


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_an_error_of_any_class_has_all_but_its_traceback(kind: type[TxnLogError]) -> None:
    error = kind("x", advice="do y", durable=Durable.MAYBE)
    error.__dict__["own"] = 7
    error.add_note("a note")
    raised(error, cause=OSError("disk"))
    copy = copy_of(error)
    assert copy is not error
    assert (type(copy), str(copy), copy.args) == (kind, str(error), ("x",))
    assert copy.__dict__ == error.__dict__
    assert copy.__cause__ is error.__cause__
    assert copy.__traceback__ is None
    assert error.__traceback__ is not None
    copy.add_note("another note")
    assert error.__notes__ == ["a note"]


def test_a_copy_came_of_copies_with_their_tracebacks() -> None:
    """They say where the work failed, and no call that hands the copy on is in them."""
    cause = raised(StoreError("no answer"), cause=OSError("disk"))
    error = raised(OutcomeUnknown("x"), cause=cause)
    copies = [copy_of(error) for _ in range(2)]
    causes = [copy.__cause__ for copy in copies]
    assert len({id(found) for found in (cause, *causes)}) == 3
    for found in causes:
        assert isinstance(found, StoreError)
        assert found.__traceback__ is cause.__traceback__
        assert found.__cause__ is cause.__cause__


@pytest.mark.parametrize("suppressed", [False, True])
def test_a_copy_has_the_context_of_its_error_and_hides_it_where_that_does(suppressed: bool) -> None:
    error = AccessDenied("x", right="write")
    error.__context__ = OSError("disk")
    error.__suppress_context__ = suppressed
    copy = copy_of(error)
    assert copy.__context__ is error.__context__
    assert (copy.__cause__, copy.__suppress_context__) == (None, suppressed)


def test_errors_that_came_of_each_other_are_copied() -> None:
    one, other = StoreError("x"), StoreError("y")
    one.__cause__, other.__cause__ = other, one
    copy = copy_of(one)
    assert copy is not one
    assert copy.__cause__ is not other
    assert copy.__cause__ is not None
    assert copy.__cause__.__cause__ is copy


def test_errors_of_others_are_kept_as_they_are() -> None:
    error = raised(ZeroDivisionError())
    assert copy_of(error) is error
    assert error.__traceback__ is not None
    assert copy_of(None) is None


def _asked() -> Asked:
    return Asked(effect(lambda draft, at: []))


def test_all_whom_a_closed_queue_answers_or_refuses_get_errors_of_their_own() -> None:
    queue = AppendQueue(lambda: None)
    kept = InvalidTransactionState("closed")
    waiting = [_asked() for _ in range(2)]
    for asked in waiting:
        queue.add(asked)
    queue.fail(kept)
    found: list[BaseException | None] = [asked.reply.error for asked in waiting if asked.reply is not None]
    queue.refusal = kept
    for _ in range(2):
        with pytest.raises(InvalidTransactionState) as caught:
            queue.add(_asked())
        found.append(caught.value)
    assert [str(error) for error in found] == [str(kept)] * 4
    assert len({id(error) for error in (kept, *found)}) == 5
    assert kept.__traceback__ is None


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda cause: raised(OutcomeUnknown("x"), cause=cause), "no answer"),
        (lambda _cause: raised(CorruptionError("damaged")), "damaged"),
    ],
)
def test_calls_of_one_entry_of_unknown_outcome_do_not_share_its_cause(
    make: Callable[[BaseException], BaseException], text: str
) -> None:
    """The traceback of what the append ended with has the rows of all of them."""
    error = make(raised(StoreError("no answer")))
    causes = [outcome_unknown((), error).__cause__ for _ in range(2)]
    assert [cause.message for cause in causes if isinstance(cause, TxnLogError)] == [text] * 2
    assert len({id(cause) for cause in (error, error.__cause__, *causes)}) == 4
    if isinstance(error, CorruptionError):
        assert [cause.__traceback__ for cause in causes if cause is not None] == [None, None]
