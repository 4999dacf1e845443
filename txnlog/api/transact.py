"""Running a function in a transaction again and again, where that may help: ``ns.transact``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from txnlog.client import delivery
from txnlog.common.pauses import Backoff
from txnlog.common.validation import shown, whole_number
from txnlog.errors import (
    AbortableError,
    CoordinatorFenced,
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    TransactionAborted,
    TxnLogError,
)
from txnlog.replies import IfUnknown, Replying, advising, after_part
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.api.transaction import Transaction
    from txnlog.client.connection import Connection

T = TypeVar("T")

_BACKOFF: Final = Backoff(20.0, 5_000.0)
"""Chance chooses below these pauses: whoever lost to each other does not meet again."""

_MOST_ATTEMPTS: Final = 1_000
"""More than an hour of the longest pauses is no way to wait: whoever needs it has another problem than a conflict."""


def transact(
    connection: Connection, begin: Callable[[], Transaction], work: Callable[[Transaction], T], attempts: int
) -> T:
    """See ``Namespace.transact``."""
    _check_function(work)
    attempts = whole_number("attempts", attempts, 1, _MOST_ATTEMPTS)
    for attempt in range(attempts):
        if attempt:
            connection.runtime.sleep_ms(connection.runtime.spread(_BACKOFF.after(attempt)))
        last = attempt + 1 == attempts
        try:
            txn = begin()
        except RetriableError:  # numbers were missing: nothing of the function was run
            if last:
                raise
            continue
        txn._refuse_prepare()
        error: TxnLogError
        with Replying(partial(_of_pending, txn)), delivery.attempt() as received:
            try:
                return _run(txn, work)
            except BaseException as failure:
                if txn.state == "ABORTED":
                    received.release()
                elif txn.state != "COMMITTED":
                    # Ctrl-C came before its end, or in it, or nobody knows that. What it acknowledged is claimed until
                    # then; the rest is redelivered before anything else is received.
                    connection.runtime.engine.step(received.fail)
                    txn._discard_soon()
                if not isinstance(failure, _Lost):
                    raise
                error = failure.error
        if last:
            raise error
    raise AssertionError("the last attempt returns or raises")


def _of_pending(txn: Transaction, error: TxnLogError) -> TxnLogError:
    """The reply where the log may show what the function flushed."""
    return after_part(error) if txn._is_pending else error


class _Lost(Exception):
    """The attempt was aborted, and another one can succeed."""

    def __init__(self, error: TxnLogError) -> None:
        super().__init__(error)
        self.error = error


def _run(txn: Transaction, work: Callable[[Transaction], T]) -> T:
    """One attempt. Raises _Lost where another one can succeed."""
    try:
        value = work(txn)
        _check_not_awaited(txn, value)
        if _committed(txn):
            return value
    except OutcomeUnknown as unknown:
        if unknown.txn_ids != (str(txn.id),) or not _aborted(txn):
            txn._discard()
            raise  # of something that the next attempt would do again
        raise _Lost(unknown) from None
    except (AbortableError, RetriableError, CoordinatorFenced) as lost:
        if not (txn._discard() or _aborted(txn)):
            raise  # the function committed by itself, and something after that went wrong
        raise _Lost(lost) from None
    except BaseException:
        txn._discard()
        raise
    raise _Lost(TransactionAborted(f"the transaction {txn.id} was aborted: its commit got no answer"))


def _check_function(work: object) -> None:
    if not callable(work):
        raise InvalidInputError(
            f"transact runs a function of a transaction, not {shown(work)}",
            advice=Words("pass one: ", Call("transact", "work")),
        )
    if inspect.iscoroutinefunction(work) or inspect.isasyncgenfunction(work):
        raise _not_awaited("an async function")
    if inspect.isgeneratorfunction(work):
        raise InvalidInputError(
            "transact runs a plain function of a transaction, not a generator: nobody would go through it",
            advice="pass a function without yield",
        )


def _check_not_awaited(txn: Transaction, value: object) -> None:
    """Raise InvalidInputError where the function has still to be run: it would be after the commit.

    One that committed by itself has run, whatever it gives.
    """
    if txn.state != "COMMITTED" and inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise _not_awaited(f"a function that gives {type(value).__name__}")


def _not_awaited(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"transact runs a plain function of a transaction, not {what}: nobody would await it",
        advice="pass a plain function: asyncio.to_thread(ns.transact, work)",
    )


def _committed(txn: Transaction) -> bool:
    """Commit. If the outcome is unknown, ask again: the log answers the same commit, and an abort makes it definite."""
    try:
        txn.commit()
    except OutcomeUnknown as unknown:
        try:
            txn.commit()
        except RetriableError:
            if _aborted(txn):
                return False
            if txn.state != "COMMITTED":
                raise advising(unknown, IfUnknown.TRANSACT) from None
    return True


def _aborted(txn: Transaction) -> bool:
    """Abort by the transaction's own hand: where that is its end, its messages are redelivered.

    False where it was committed, or where the store does not say (its state is OPEN then).
    """
    try:
        txn.abort()
    except (RetriableError, InvalidTransactionState):
        return False
    return True


__all__ = ["transact"]
