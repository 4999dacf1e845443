"""Counts the transactions that end in the log while a handle follows it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from txnlog.engine.runtime import Runtime
from txnlog.fold.state import Draft
from txnlog.log.follower import Follower

COMMITTED: Final = ""
"""In place of the reason of an abort."""


class EndedTransactions:
    """The transactions that ended in the entries which a handle applied, by the reason of their abort.

    The log has no count of all: it forgets outcomes after their retention. So a handle counts from the first time on
    that somebody asks. That answer is zero, which shows everybody who compares values that it began anew.
    """

    def __init__(self, follower: Follower, runtime: Runtime) -> None:
        self._follower = follower
        self._runtime = runtime
        self._counts: Counter[str] = Counter()
        self._since_ms: int | None = None

    def begin(self) -> int:
        """Count from now on, unless it does so already. Returns the time from which it counts."""
        found = self._since_ms
        return self._runtime.engine.look(self._begin) if found is None else found

    def _begin(self) -> int:
        if self._since_ms is None:
            self._since_ms = self._runtime.now_ms()
            self._follower.watch(self._note)
        return self._since_ms

    def _note(self, draft: Draft) -> None:
        for outcome in draft.outcomes.changed().values():
            if outcome is not None:
                self._counts[COMMITTED if outcome.state == "COMMITTED" else outcome.reason] += 1

    def counts(self) -> dict[str, int]:
        """So many ended: committed ones under ``COMMITTED``. Within a look at the state it is of the same version."""
        return self._counts.copy()


__all__ = ["COMMITTED", "EndedTransactions"]
