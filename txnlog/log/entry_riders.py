"""What goes along with any entry of one writer. It asks nobody but the writer's own parts, and sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from txnlog.fold.apply import apply
from txnlog.fold.overdue import overdue
from txnlog.fold.state import Draft
from txnlog.format.actions import AbortReason, AnyAction, Header
from txnlog.log.group_commit import Riders
from txnlog.log.number_pool import NumberPool

_SCAN_MS: Final = 1_000
"""A look at all open transactions for overdue ones is not paid at every entry; their grace is five times this."""


class EntryRiders:
    """What makes proposals void, what the handle wants, the next block of numbers, and ends of what is overdue."""

    def __init__(
        self,
        numbers: NumberPool,
        own: Callable[[Draft], Sequence[AnyAction]],
        unlogged_aborts: Mapping[int, AbortReason],
        retractions: Callable[[Draft, Header], Sequence[AnyAction]],
    ) -> None:
        self._numbers = numbers
        self._own = own
        self._unlogged_aborts = unlogged_aborts
        self._retractions = retractions
        self._scanned_ms: int | None = None

    def apply_to(self, draft: Draft, header: Header) -> Riders:
        """Apply to a draft whatever goes along with an entry, and give it."""
        retracting = self._retractions(draft, header)
        actions: list[AnyAction] = [*retracting, *self._own(draft)]
        actions.extend(self._numbers.renewals(draft, header.timestamp_ms))
        if self._numbers.wants() or self._numbers.wants_to_say_client():
            actions.append(self._numbers.reservation(draft))
        last = self._scanned_ms
        looked = last is None or header.timestamp_ms - last >= _SCAN_MS
        ending = overdue(draft, header.timestamp_ms, self._unlogged_aborts) if looked else []
        actions.extend(ending)
        for action in actions:
            apply(draft, action, header)
        return Riders(tuple(actions), bool(ending or retracting), looked and not ending)

    def scan_next(self) -> None:
        """The next entry is to end what is overdue, however short ago that was looked for."""
        self._scanned_ms = None

    def appended(self, riders: Riders, header: Header) -> None:
        """An entry that they went along with is in the log."""
        if riders.looked:
            self._scanned_ms = header.timestamp_ms


__all__ = ["EntryRiders"]
