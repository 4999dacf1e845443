"""Races for the next slot of the log, and who ends them: a writer that collects what others propose.

All of it happens in the engine, but for a look, ``say`` and ``timed``, which run in the thread of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import AccessDenied, TxnLogError
from txnlog.format import keys
from txnlog.log.follower import Follower
from txnlog.log.proposals.rhythm import LATELY_TRIPS, RoundTrip
from txnlog.store.base import Store

_logger = LogLines("txnlog.proposals")

_MOST_BYTES: Final = 1_000

_RACE_PAUSE_MS: Final = 1.0
_LONGEST_RACE_PAUSE_MS: Final = 20.0
"""The most that is waited for each race that a batch lost, and for all of them, by chance less: those who lost to one
entry do not ask for the next slot in the same moment, and wait for less than a request to a far store takes."""

T = TypeVar("T")


class _Collecting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object that says who collects; nobody does where ``writer`` is empty."""

    writer: str


class CollectorLook:
    """One look at who collects: called in a thread, and then shown to ``Races.note``. Best effort."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.found = ""
        self.is_made = False

    def __call__(self) -> None:
        """Make it."""
        try:
            data = self._store.get_range(keys.COLLECTOR_KEY, 0, _MOST_BYTES)
            self.found = msgspec.json.decode(data, type=_Collecting).writer
        except Exception:  # noqa: BLE001 - whatever stands there, or fails, it names nobody
            self.found = ""
        self.is_made = True


class Races:
    """What one writer knows of others that append at the same time.

    Attributes:
        trip: how long a put of an entry takes.
    """

    def __init__(self, follower: Follower, store: Store, runtime: Runtime, writer: str) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._writer = writer
        self.trip = RoundTrip()
        self._lost_ms: float | None = None
        self._named = ""
        self._named_ms = 0.0
        self._in_vain: tuple[str, float] = ("", 0.0)

    def lost(self) -> None:
        """Another entry took the slot."""
        self._lost_ms = self._runtime.elapsed_ms()

    def pause_ms(self, lost: int) -> float:
        """How long to wait before the next race, where so many were lost for one entry."""
        return self._runtime.jitter(min(_LONGEST_RACE_PAUSE_MS, _RACE_PAUSE_MS * lost))

    @property
    def knows_the_end(self) -> bool:
        """Whether this writer knows the log's end, or did lately: else a slot that is occupied says nothing."""
        return self._is_lately(self._follower.applied_ms)

    @property
    def are_lost(self) -> bool:
        """Whether one was lost lately: to bring the commands of others along may pay then."""
        return self._lost_ms is not None and self._is_lately(self._lost_ms)

    def _is_lately(self, moment_ms: float) -> bool:
        return self._runtime.elapsed_ms() - moment_ms <= LATELY_TRIPS * self.trip.ms

    # --- who collects -------------------------------------------------------------------------------------------------

    def look(self) -> CollectorLook:
        """A look at who collects, to be made."""
        return CollectorLook(self._store, self._runtime)

    def looks_at_loss(self) -> list[CollectorLook]:
        """What to look at where the race at hand is lost: a single one that is lost in a while says nothing."""
        return [self.look()] if self.are_lost else []

    def note(self, look: CollectorLook) -> None:
        """A look was made, or was not needed."""
        if look.is_made:
            self.note_named(look.found)

    def note_named(self, writer: str) -> None:
        """This writer collects, as far as anybody says."""
        if writer != self._named:
            self._named, self._named_ms = writer, self._runtime.elapsed_ms()

    def note_in_vain(self) -> None:
        """Whoever is named did not bring what was proposed: the next loss looks again."""
        self._in_vain = (self._named, self._runtime.elapsed_ms())
        self.note_named("")

    @property
    def collector(self) -> str | None:
        """Another writer that collects, if it has shown life lately: by an entry, or by being named."""
        if not self._named or self._named == self._writer:
            return None
        shown_ms = max(self._named_ms, self._follower.heard.get(self._named, 0.0))
        return self._named if self._is_lately(shown_ms) else None

    @property
    def is_open(self) -> bool:
        """Whether nobody else collects, or one who was waited for in vain and has appended nothing since."""
        collector = self.collector
        in_vain, since_ms = self._in_vain
        return collector is None or (collector == in_vain and self._follower.heard.get(collector, 0.0) < since_ms)

    @property
    def is_named(self) -> bool:
        """Whether it is this writer that collects."""
        return self._named == self._writer

    def say(self, writer: str) -> bool:
        """Say who collects, nobody where that is empty. For a thread of a request; False where the right is missing."""
        try:
            self._store.put_hint(keys.COLLECTOR_KEY, msgspec.json.encode(_Collecting(writer)))
        except TxnLogError as error:
            _logger.debug("put of %s: %s", keys.COLLECTOR_KEY, error.message)
            return not isinstance(error, AccessDenied)
        return True

    def timed(self, put: Callable[[], T]) -> T:
        """What a put gives, which shows how long one takes. For a thread of a request."""
        began_ms = self._runtime.elapsed_ms()
        found = put()
        self.trip.note(self._runtime.elapsed_ms() - began_ms)
        return found


__all__ = ["CollectorLook", "Races"]
