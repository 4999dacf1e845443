"""Ending a transaction in the log, and how it ended. Commands of the engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from txnlog.errors import CoordinatorFenced, InvalidTransactionState, TransactionNotFound

if TYPE_CHECKING:
    from txnlog.fold.state import Outcome
    from txnlog.log.appender import Appender
    from txnlog.log.follower import Follower
    from txnlog.log.transaction_commands import AbortCommand


async def end(appender: Appender, follower: Follower, command: AbortCommand) -> Outcome:
    """Append an abort. An end that the log records is the answer instead, also one that only a checkpoint holds."""
    try:
        return await appender.carry_out(command)
    except (CoordinatorFenced, InvalidTransactionState, TransactionNotFound):
        outcome = await recorded_outcome(follower, command.txn)
        if outcome is None:
            raise
        return outcome


async def recorded_outcome(follower: Follower, number: int) -> Outcome | None:
    """How a transaction ended, also where only a checkpoint remembers it."""
    outcome = follower.state.outcomes.get(number)
    if outcome is not None or follower.base is None:
        return outcome
    return await follower.runtime.job(partial(follower.outcome, number))


__all__ = ["end", "recorded_outcome"]
