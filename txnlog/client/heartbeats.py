"""Signs of life of consumers whose place lasts for a lease: small objects outside of the log that are overwritten.

They only say when it is worth trying: who takes over is decided by an entry. Nothing compares clocks: an observer keeps
what it saw, and how long it saw no change by its own elapsed time. What the store fails to do here fails nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError
from txnlog.format import keys
from txnlog.store.base import ObjectNotFound, Store

_logger = LogLines("txnlog.consumer")

_MOST_BYTES: Final = 4_096
"""More than a hint has: what else is in the object does not matter."""


class _Hint(msgspec.Struct, frozen=True):
    """The content of a hint. ``beat`` only has to differ each time."""

    consumer: str
    beat: int
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    epoch: int
    content: bytes
    since_ms: float


class Heartbeats:
    """The hints that one client writes and watches. From any thread: of two that do so at once both may write one."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._beaten: dict[int, tuple[int, float, int]] = {}
        self._seen: dict[int, _Seen] = {}
        self._unknown_takeovers: dict[int, int] = {}
        self._abandoned: dict[int, int] = {}

    def is_due(self, subscription: int, epoch: int, lease_ms: int) -> bool:
        """Whether the consumer of this epoch should show that it is alive: at most once in a third of the lease."""
        known, last_ms, _ = self._beaten.get(subscription, (-1, 0.0, 0))
        return known != epoch or self._runtime.elapsed_ms() - last_ms >= lease_ms / 3

    def beat(self, subscription: int, epoch: int, consumer: str) -> None:
        """Show that the consumer of this epoch is alive."""
        _, _, count = self._beaten.get(subscription, (-1, 0.0, 0))
        self._beaten[subscription] = (epoch, self._runtime.elapsed_ms(), count + 1)
        self._put(subscription, epoch, _Hint(consumer, count + 1))

    def end(self, subscription: int, epoch: int, consumer: str) -> None:
        """The consumer of this epoch has gone: nobody need wait for its lease."""
        _, _, count = self._beaten.pop(subscription, (-1, 0.0, 0))
        self._put(subscription, epoch, _Hint(consumer, count + 1, closed=True))

    def forget(self, subscription: int, epoch: int) -> None:
        """An older epoch is over: its hint is of no use to anybody."""
        try:
            self._store.delete(keys.hint_key(subscription, epoch))
        except TxnLogError:
            _logger.debug(
                "The heartbeat object of an older epoch could not be deleted. It does no harm, and is deleted later.",
                exc_info=True,
            )

    def forget_where(self, over: Callable[[keys.HintKey], bool]) -> None:
        """Delete the hints that are of no use to anybody; strangers' files stay."""
        try:
            for info in self._store.list(keys.HINT_FOLDER):
                key = keys.parse_key(info.key)
                if isinstance(key, keys.HintKey) and over(key):
                    self.forget(key.subscription, key.epoch)
        except TxnLogError:
            _logger.warning(
                "Old heartbeat objects could not be deleted. They do no harm, and are deleted later.", exc_info=True
            )

    def _put(self, subscription: int, epoch: int, hint: _Hint) -> None:
        try:
            self._store.put(keys.hint_key(subscription, epoch), msgspec.json.encode(hint))
        except TxnLogError:
            _logger.warning("the heartbeat of the consumer %r was not written", hint.consumer, exc_info=True)

    def lease_is_over(self, subscription: int, epoch: int, lease_ms: int) -> bool:
        """Look at the hint of an epoch: the lease is over once it was seen unchanged for that long, or says closed."""
        if self._abandoned.get(subscription) == epoch:
            return True
        now_ms = self._runtime.elapsed_ms()
        try:
            content = self._store.get_range(keys.hint_key(subscription, epoch), 0, _MOST_BYTES)
        except ObjectNotFound:
            content = b""
        except TxnLogError:
            _logger.warning("the heartbeat of a consumer could not be read", exc_info=True)
            return False
        if _says_closed(content):
            return True
        seen = self._seen.get(subscription)
        if seen is None or (seen.epoch, seen.content) != (epoch, content):
            self._seen[subscription] = _Seen(epoch, content, self._runtime.elapsed_ms())
            return False
        return now_ms - seen.since_ms >= lease_ms

    # --- takeovers whose outcome is unknown -------------------------------------------------------------------------

    def note_unknown_takeover(self, subscription: int, epoch: int) -> None:
        """Note that a takeover or a seek of this client may have made this epoch: its outcome is unknown."""
        self._unknown_takeovers[subscription] = epoch

    def unknown_takeover(self, subscription: int) -> int | None:
        """The epoch of a takeover that was not settled yet."""
        return self._unknown_takeovers.get(subscription)

    def settle(self, subscription: int, epoch: int, *, abandoned: bool) -> None:
        """Note the outcome that the log shows. An epoch that is ``abandoned`` has no consumer, so no lease lasts."""
        self._unknown_takeovers.pop(subscription, None)
        if abandoned:
            self._abandoned[subscription] = epoch


def _says_closed(content: bytes) -> bool:
    try:
        return msgspec.json.decode(content, type=_Hint).closed
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # missing, or a stranger's: one that does not change


__all__ = ["Heartbeats"]
