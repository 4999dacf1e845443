"""Processes beside the workers: a vacuum after every night, and who decides about what was prepared."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from tests.crash.harness.member import Member, carry_out, persist
from tests.crash.harness.plan import LONGEST_NIGHTS_MS, MINUTE_MS, late
from txnlog.common.format_limits import MIN_GRACE_MS
from txnlog.errors import RetriableError, StoreError

_NIGHT_MINUTES = (62, 75)
"""More than the least grace of a vacuum: whoever did nothing since the evening has lost the rest of its numbers."""

_NIGHTS = 0.03
_FIRST_NIGHTS = 0.4
_VACUUMS = 0.3
"""Of each step of the vacuum: that a night goes by, and that it works without one (as after a kill)."""

_SOON_MS = 4 * _NIGHT_MINUTES[0] * MINUTE_MS
"""A short run has some nights, too."""


class Keeper(Member):
    """A process that owns no producer and no consumer."""

    keeper: ClassVar[bool] = True
    pause_ms: ClassVar[float] = 300.0

    def _pause(self) -> float:
        return super()._pause() + self._chance.uniform(0, self.pause_ms)


class Vacuum(Keeper):
    """Lets nights go by, in which deadlines and leases end and writers fall silent, and deletes what nobody needs."""

    nights: ClassVar[float] = _NIGHTS
    pause_ms: ClassVar[float] = 600.0

    def _step(self) -> None:
        drawn = self._chance.random()
        often = self._board.passed_ms < _SOON_MS
        night = drawn < (_FIRST_NIGHTS if often else self.nights) and self._board.passed_ms < LONGEST_NIGHTS_MS
        night = night and self._is_evening()
        self._begin_work()
        if night:
            self._board.pass_time(self._chance.randint(*_NIGHT_MINUTES) * MINUTE_MS)
            self._note("night")
        if night or drawn < self.nights + _VACUUMS:
            try:
                done = self._client.call(
                    "vacuum",
                    lambda: self._ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS),
                    lambda done: {"oldest_readable": done.oldest_readable},
                )
            except (RetriableError, StoreError):
                return
            files = done.unnamed_files + done.aborted_files + done.replaced_files
            self._note("vacuum", files=files, blocks=done.closed_blocks)

    def _is_evening(self) -> bool:
        """Whether a night may go by."""
        return True


class Decider(Keeper):
    """Brings the decisions of the outside system, some at once, some after a night and its vacuum."""

    def _step(self) -> None:
        self._begin_work()
        for found in persist(lambda: self._ns.transactions(state="PREPARED")):
            txn = str(found.txn_id)
            waits = late(txn) and (found.age_ms or 0) < MIN_GRACE_MS
            if not waits and self._chance.random() < 0.4:
                persist(partial(carry_out, self._client, self._ns, txn))
