"""The end of transactions that are past their deadline: whoever appends next brings it along."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from txnlog.common.format_limits import EXPIRY_GRACE_MS
from txnlog.fold.state import Draft, TransactionRecord
from txnlog.format.actions import Abort, AbortReason

_MAX_EXPIRED: Final = 100
"""Overdue transactions ended by one entry: enough to keep up, few enough not to delay the entry's own commands."""

_NOTHING: Final[Mapping[int, AbortReason]] = MappingProxyType({})


def is_overdue(transaction: TransactionRecord, now_ms: int) -> bool:
    """Whether the deadline of a transaction is longer than the grace ago, at a time of the log."""
    return transaction.deadline_ms is not None and transaction.deadline_ms + EXPIRY_GRACE_MS <= now_ms


def overdue(draft: Draft, now_ms: int, unlogged_aborts: Mapping[int, AbortReason] = _NOTHING) -> list[Abort]:
    """Aborts for transactions whose deadline is longer than the grace ago: whoever appends next ends them.

    Also for open ones with an unlogged abort, and its reason: their owner's abort did not reach the log.
    """
    found = [
        Abort(number, unlogged_aborts.get(number, "timeout"))
        for number, transaction in draft.transactions.items()
        if is_overdue(transaction, now_ms) or (number in unlogged_aborts and transaction.state == "OPEN")
    ]
    return found[:_MAX_EXPIRED]


__all__ = ["is_overdue", "overdue"]
