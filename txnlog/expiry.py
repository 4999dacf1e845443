"""The end of transactions that are past their deadline: whoever appends next brings it along."""

from __future__ import annotations

from typing import Final

from txnlog.actions import Abort
from txnlog.limits import EXPIRY_GRACE_MS
from txnlog.state import Draft

_MAX_EXPIRED: Final = 100
"""Overdue transactions ended by one entry: enough to keep up, few enough not to delay the entry's own commands."""


def overdue(draft: Draft, now_ms: int) -> list[Abort]:
    """Aborts for transactions whose deadline is longer than the grace ago: whoever appends next ends them."""
    found = [
        Abort(number, "timeout")
        for number, transaction in draft.transactions.items()
        if transaction.deadline_ms is not None and transaction.deadline_ms + EXPIRY_GRACE_MS <= now_ms
    ]
    return found[:_MAX_EXPIRED]


__all__ = ["overdue"]
