"""The object in the store that says who collects, and who is asked for a place in the log.

Best effort: no promise depends on it, and anybody with the right to mailboxes can write it.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from txnlog.engine.log_lines import LogLines
from txnlog.errors import AccessDenied, TxnLogError
from txnlog.format import keys
from txnlog.store.base import Store

_logger = LogLines("txnlog.proposals")

_MOST_BYTES: Final = 1_000

LONGEST_PLACE_MS: Final = 1_000
"""That a place may be kept for: whoever asks, and then dies, holds nobody up for longer."""


class Collecting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The object that says who collects, and who is asked for a place in the log.

    Attributes:
        writer: who collects; empty where nobody does.
        asked: who is asked to append nothing for a while, and to collect from then on; empty where nobody is.
        place_ms: the while. Where nobody is asked, who collects has begun it, and asks all others to do the same.
    """

    writer: str
    asked: str = ""
    place_ms: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_PLACE_MS)] = 0


_NOBODY: Final = Collecting("")


class CollectorLook:
    """One look at who collects: called in a thread, and then shown to ``Races.note``. Best effort."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found = _NOBODY
        self.is_made = False

    def __call__(self) -> None:
        """Make it."""
        try:
            data = self._store.get_range(keys.COLLECTOR_KEY, 0, _MOST_BYTES)
            self.found = msgspec.json.decode(data, type=Collecting)
        except Exception:  # noqa: BLE001 - whatever stands there, or fails, it names nobody
            self.found = _NOBODY
        self.is_made = True


def can_be_read(data: bytes) -> bool:
    """Whether the bytes of the object can be read."""
    try:
        msgspec.json.decode(data, type=Collecting)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def put_collecting(store: Store, said: Collecting) -> bool:
    """Write it. False where the right is missing; any other failure is as if it had been overwritten."""
    try:
        store.put_unsynced(keys.COLLECTOR_KEY, msgspec.json.encode(said))
    except TxnLogError as error:
        _logger.debug("put of %s: %s", keys.COLLECTOR_KEY, error.message)
        return not isinstance(error, AccessDenied)
    return True


__all__ = ["LONGEST_PLACE_MS", "Collecting", "CollectorLook", "can_be_read", "put_collecting"]
