"""Processes beside the workers of a crash run: a vacuum after every night, and who decides about what was prepared.

They are killed and stopped like workers, and have nothing of their own to recover: whoever comes next goes on.
"""

from __future__ import annotations

import time
from functools import partial
from typing import ClassVar

from tests.crash.plan import LONGEST_NIGHTS_MS, MINUTE_MS, decision, late
from tests.crash.worker import Worker, carry_out, persist
from txnlog.common.limits import MIN_GRACE_MS
from txnlog.errors import RetriableError, StoreError

_NIGHT_MINUTES = (62, 75)
"""More than the least grace of a vacuum: whoever did nothing since the evening has lost the rest of its numbers."""

_NIGHTS = 0.03
_FIRST_NIGHTS = 0.4
_VACUUMS = 0.3
"""Of each step of the vacuum: that a night goes by, and that it works without one (as after a kill)."""

_SOON_MS = 4 * _NIGHT_MINUTES[0] * MINUTE_MS
"""A short run has some nights, too."""


class Keeper(Worker):
    """A process that owns no producer and no consumer."""

    def _start(self) -> None:
        self._open()

    def _recover(self) -> None:
        self._board.note_recovered(self._worker, self._generation)

    def _is_over(self) -> bool:
        """Nothing fences a keeper that slept while its successor began: it ends its step, and would go on for ever."""
        return super()._is_over() or self._board.recovered(self._worker) > self._generation


class Vacuum(Keeper):
    """Lets nights go by, in which deadlines and leases end and writers fall silent, and deletes what nobody needs."""

    nights: ClassVar[float] = _NIGHTS

    def _step(self) -> None:
        drawn = self._chance.random()
        often = self._board.passed_ms < _SOON_MS
        night = drawn < (_FIRST_NIGHTS if often else self.nights) and self._board.passed_ms < LONGEST_NIGHTS_MS
        night = night and self._is_evening()
        self._begin_work()
        if night:
            self._board.pass_time(self._chance.randint(*_NIGHT_MINUTES) * MINUTE_MS)
            self._journal.write("night")
        if night or drawn < self.nights + _VACUUMS:
            try:
                done = self._ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS)
            except (RetriableError, StoreError) as error:
                self._journal.write("vacuum", error=repr(error))
            else:
                files = done.unnamed_files + done.aborted_files + done.replaced_files
                self._journal.write("vacuum", files=files, blocks=done.closed_blocks)
        time.sleep(self._chance.uniform(0, 0.6))

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
                self._journal.write("deciding", txn=txn, commit=decision(txn))
                state, version = persist(partial(carry_out, self._ns, txn))
                self._journal.write("decided", txn=txn, state=state, version=version)
        time.sleep(self._chance.uniform(0, 0.3))
