"""Heartbeats of consumers whose place lasts for a lease: small objects outside of the log that are overwritten.

PROTOCOL.md calls such an object a hint.

They only say when it is worth trying: who takes over is decided by an entry. Nothing compares clocks: an observer keeps
what it saw, and how long it saw no change by its own elapsed time. What the store fails to do here fails nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from txnlog.common.limits import BEATS_PER_LEASE
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError
from txnlog.format import keys
from txnlog.store.base import ObjectNotFound, Store

_logger = LogLines("txnlog.consumer")

_MOST_BYTES: Final = 4_096
"""More than a heartbeat has: what else is in the object does not matter."""


class _Heartbeat(msgspec.Struct, frozen=True):
    """The content of the object. ``beat`` only has to differ each time."""

    consumer: str
    beat: int
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    epoch: int
    content: bytes
    since_ms: float


class Heartbeats:
    """The heartbeats that one client writes and watches. From any thread: of two at once both may write one."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._beaten: dict[int, tuple[int, float, int]] = {}
        self._seen: dict[int, _Seen] = {}

    def is_due(self, subscription: int, epoch: int, lease_ms: int) -> bool:
        """Whether the consumer of this epoch should show that it is alive."""
        known, last_ms, _ = self._beaten.get(subscription, (-1, 0.0, 0))
        return known != epoch or self._runtime.elapsed_ms() - last_ms >= lease_ms / BEATS_PER_LEASE

    def beat(self, subscription: int, epoch: int, consumer: str) -> None:
        """Show that the consumer of this epoch is alive."""
        _, _, count = self._beaten.get(subscription, (-1, 0.0, 0))
        self._beaten[subscription] = (epoch, self._runtime.elapsed_ms(), count + 1)
        self._put(subscription, epoch, _Heartbeat(consumer, count + 1))

    def end(self, subscription: int, epoch: int, consumer: str) -> None:
        """The consumer of this epoch has gone: nobody need wait for its lease."""
        _, _, count = self._beaten.pop(subscription, (-1, 0.0, 0))
        self._put(subscription, epoch, _Heartbeat(consumer, count + 1, closed=True))

    def forget(self, subscription: int, epoch: int) -> None:
        """An older epoch is over: its heartbeat is of no use to anybody."""
        try:
            self._store.delete(keys.heartbeat_key(subscription, epoch))
        except TxnLogError:
            _logger.debug(
                "The heartbeat object of an older epoch could not be deleted. It does no harm, and is deleted later.",
                exc_info=True,
            )

    def forget_where(self, over: Callable[[keys.HeartbeatKey], bool]) -> None:
        """Delete the heartbeats that are of no use to anybody; strangers' files stay."""
        try:
            for info in self._store.list(keys.HEARTBEAT_FOLDER):
                key = keys.parse_key(info.key)
                if isinstance(key, keys.HeartbeatKey) and over(key):
                    self.forget(key.subscription, key.epoch)
        except TxnLogError:
            _logger.warning(
                "Old heartbeat objects could not be deleted. They do no harm, and are deleted later.", exc_info=True
            )

    def _put(self, subscription: int, epoch: int, heartbeat: _Heartbeat) -> None:
        try:
            self._store.put(keys.heartbeat_key(subscription, epoch), msgspec.json.encode(heartbeat))
        except TxnLogError:
            _logger.warning("the heartbeat of the consumer %r was not written", heartbeat.consumer, exc_info=True)

    def lease_is_over(self, subscription: int, epoch: int, lease_ms: int) -> bool:
        """Look at an epoch's heartbeat: the lease is over once it was seen unchanged for that long, or says closed."""
        now_ms = self._runtime.elapsed_ms()
        try:
            content = self._store.get_range(keys.heartbeat_key(subscription, epoch), 0, _MOST_BYTES)
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


def can_be_read(content: bytes) -> bool:
    """Whether the content of such an object can be read."""
    return _decoded(content) is not None


def _says_closed(content: bytes) -> bool:
    found = _decoded(content)
    return found is not None and found.closed  # else missing, or a stranger's: one that does not change


def _decoded(content: bytes) -> _Heartbeat | None:
    try:
        return msgspec.json.decode(content, type=_Heartbeat)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


__all__ = ["Heartbeats", "can_be_read"]
