"""Keeping a block of numbers open while a long job works under them and the log shows nothing of it yet (P-45)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txnlog.common.limits import RENEW_AFTER_MS
from txnlog.engine.effects import Effect, Pause, Step
from txnlog.engine.engine import Engine
from txnlog.engine.log_lines import LogLines
from txnlog.errors import TxnLogError
from txnlog.fold.number_blocks import block_of
from txnlog.fold.state import Draft
from txnlog.format.actions import Header, Renew
from txnlog.log.commands import Answer, Simple, effect

_logger = LogLines("txnlog.block_keeper")

_LOOK_MS: Final = RENEW_AFTER_MS // 4
"""Between two looks: a renewal is late by so much at most, and one that failed is tried again in time."""


class BlockKeeper:
    """Renews the block of a number whenever nothing else showed life of it. As a context manager, in the background.

    A renewal that fails is logged and tried again: at worst the block is closed, and the job's commit refused.

    Args:
        number: of the block.
        carry_out: has a command carried out with one of the next entries.
        engine: does that.
    """

    def __init__(self, number: int, carry_out: Callable[[Simple[None]], Effect[None]], engine: Engine) -> None:
        self._number = number
        self._carry_out = carry_out
        self._engine = engine
        self._end: Step | None = None

    def __enter__(self) -> BlockKeeper:
        self._end = self._engine.post(self._keep, keeps_process=False)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._end is not None:
            self._end()

    async def _keep(self) -> None:
        while True:
            await Pause(_LOOK_MS)
            await self.renew_if_due()

    async def renew_if_due(self) -> None:
        """Renew the block if nothing showed life of it for a third of the least grace; nothing where it was closed."""

        def decide(draft: Draft, at: Header) -> list[Renew] | Answer[None]:
            block = block_of(draft, self._number)
            if block is None or at.timestamp_ms - block.touched_ms < RENEW_AFTER_MS:
                return Answer(None)
            return [Renew(block.first)]

        try:
            await self._carry_out(effect(decide, is_upkeep=True))
        except TxnLogError as error:
            _logger.warning("the block of number %d was not renewed: %s", self._number, error.message)


__all__ = ["BlockKeeper"]
