"""Keeping a block of numbers open while a long job works under them and the log shows nothing of it yet (P-45)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from txnlog.common.limits import RENEW_AFTER_MS
from txnlog.engine.runtime import Background, Runtime
from txnlog.errors import TxnLogError
from txnlog.fold.id_blocks import block_of
from txnlog.fold.state import Draft
from txnlog.format.actions import Header, Renew
from txnlog.log.commands import Answer, Simple, effect

_logger = logging.getLogger("txnlog.block_keeper")

_LOOK_MS: Final = RENEW_AFTER_MS // 4
"""Between two looks: a renewal is late by so much at most, and one that failed is tried again in time."""


class BlockKeeper:
    """Renews the block of a number whenever nothing else showed life of it. As a context manager, in the background.

    A renewal that fails is logged and tried again: at worst the block is closed, and the job's commit refused.
    """

    def __init__(self, number: int, call: Callable[[Simple[None]], None], runtime: Runtime) -> None:
        self._number = number
        self._call = call
        self._runtime = runtime
        self._stop = threading.Event()
        self._thread: Background | None = None

    def __enter__(self) -> BlockKeeper:
        self._thread = self._runtime.start(self._work, "txnlog-block-keeper")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def _work(self) -> None:
        while not self._runtime.wait_at_most(self._stop, _LOOK_MS):
            self.renew_if_due()

    def renew_if_due(self) -> None:
        """Renew the block if nothing showed life of it for a third of the least grace; nothing where it was closed."""

        def decide(draft: Draft, at: Header) -> list[Renew] | Answer[None]:
            block = block_of(draft, self._number)
            if block is None or at.timestamp_ms - block.touched_ms < RENEW_AFTER_MS:
                return Answer(None)
            return [Renew(block.first)]

        try:
            self._call(effect(decide, is_upkeep=True))
        except TxnLogError as error:
            _logger.warning("the block of number %d was not renewed: %s", self._number, error.message)


__all__ = ["BlockKeeper"]
