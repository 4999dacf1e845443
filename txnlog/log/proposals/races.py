"""Races for the next slot of the log, and who ends them: a writer that collects what others propose.

All of it happens in the engine, but for ``say`` and ``timed``, which run in the thread of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from txnlog.engine.runtime import Runtime
from txnlog.log.follower import Follower
from txnlog.log.proposals.rhythm import LATELY_TRIPS, RoundTrip
from txnlog.log.proposals.who_collects import LONGEST_PLACE_MS, Collecting, CollectorLook, put_collecting
from txnlog.store.base import Store

_RACE_PAUSE_MS: Final = 1.0
_LONGEST_RACE_PAUSE_MS: Final = 20.0
"""The most that is waited for each race that a batch lost, and for all of them, by chance less: those who lost to one
entry do not ask for the next slot in the same moment, and wait for less than a request to a far store takes."""

T = TypeVar("T")


_LOST_BEFORE_ASKING: Final = 8
"""Races lost to one writer in a row: of two that are as near to the store, one loses so many once in 256 times."""

_ASKED_EVERY_ENTRIES: Final = 128
"""Own entries between two looks of a writer that does not collect, whether somebody asks it for a place."""

_PLACE_TRIPS: Final = 8.0
"""Of who asks: in so long it hears of the newest entry, and puts its own, whatever it is about just now."""

_BETWEEN_PLACES_MS: Final = 10_000.0
"""Whoever may put a mailbox may ask, again and again: it takes a tenth of a writer's time at most."""


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
        self._won = 0
        self._looks = 0
        self._winner = ""
        self._lost_to_winner = 0
        self._place_ms = 0
        self._not_asked_before_ms = 0.0

    def won(self) -> None:
        """An entry of this writer took the slot."""
        self._won += 1
        self._lost_to_winner = 0

    def note_winner(self, writer: str) -> None:
        """An entry of that writer took the slot that this one asked for."""
        self._lost_to_winner = self._lost_to_winner + 1 if writer == self._winner else 1
        self._winner = writer

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

    # --- a place for others -------------------------------------------------------------------------------------------

    async def ask_for_a_place(self) -> None:
        """Ask for a place whoever won all the last races: it is nearer to the store, and wins each one."""
        if self._lost_to_winner % _LOST_BEFORE_ASKING:
            return
        place_ms = min(LONGEST_PLACE_MS, int(_PLACE_TRIPS * self.trip.ms))
        said = Collecting(self.collector or "", self._winner, place_ms)
        await self._runtime.request(partial(put_collecting, self._store, said))

    @property
    def is_time_to_look(self) -> bool:
        """Whether to look now whether somebody asks for a place: who wins all races does not hear of those who lose."""
        return self._won // _ASKED_EVERY_ENTRIES > self._looks

    def take_place_ms(self) -> int:
        """For how long to append nothing, since somebody asked for that; once."""
        place_ms, self._place_ms = self._place_ms, 0
        return place_ms

    # --- who collects -------------------------------------------------------------------------------------------------

    def look(self) -> CollectorLook:
        """A look at who collects, to be made."""
        return CollectorLook(self._store)

    def looks_at_loss(self) -> list[CollectorLook]:
        """What to look at where the race at hand is lost: a single one that is lost in a while says nothing."""
        return [self.look()] if self.are_lost else []

    def note(self, look: CollectorLook) -> None:
        """A look was made, or was not needed."""
        if look.is_made:
            # Once for so many entries: one who proposes from here on, and wins no more, would look each time.
            self._looks = self._won // _ASKED_EVERY_ENTRIES
            self.note_named(look.found.writer)
            now_ms = self._runtime.elapsed_ms()
            if look.found.asked == self._writer and now_ms >= self._not_asked_before_ms:
                self._place_ms, self._not_asked_before_ms = look.found.place_ms, now_ms + _BETWEEN_PLACES_MS

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
        return put_collecting(self._store, Collecting(writer))

    def timed(self, put: Callable[[], T]) -> T:
        """What a put gives, which shows how long one takes. For a thread of a request."""
        began_ms = self._runtime.elapsed_ms()
        found = put()
        self.trip.note(self._runtime.elapsed_ms() - began_ms)
        return found


__all__ = ["Races"]
