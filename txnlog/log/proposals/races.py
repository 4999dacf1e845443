"""Races for the next slot of the log, and who ends them: a writer that collects what others propose.

A *place* is a short time in which the other writers append nothing, for one that loses each race to them.

All of it happens in the engine, but for ``say`` and ``timed``, which run in the thread of a request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from txnlog.engine.runtime import Runtime
from txnlog.log.append_counts import AppendCounts
from txnlog.log.follower import Follower
from txnlog.log.proposals.rhythm import LATELY_TRIPS, PATIENCE_TRIPS, RoundTrip
from txnlog.log.proposals.who_collects import LONGEST_PLACE_MS, Collecting, CollectorLook, put_collecting
from txnlog.store.base import Store

_RACE_PAUSE_MS: Final = 1.0
_LONGEST_RACE_PAUSE_MS: Final = 20.0
"""After n lost races: a random pause of at most n x 1 ms, and never more than 20 ms, less than a request to a far store
takes. Those who lost to one entry do not ask for the next slot in the same moment."""

_LEAST_TRIPS_A_LOOK: Final = 0.25
"""Of who waits for an entry of who collects: forty looks until its patience ends."""

T = TypeVar("T")

_LOST_BEFORE_ASKING: Final = 8
"""Races lost in a row: of two that are as near to the store, one loses so many once in 256 times."""

_MOST_WINNERS: Final = 3
"""Where more writers than this won them, a crowd in which nobody collects yet, a collector helps, and no place."""

_ASKED_EVERY_ENTRIES: Final = 128
_ASKED_EVERY_IN_RACES: Final = 8
"""Own entries between two looks of a writer that does not collect, whether somebody asks for a place: the first one of
who loses no race, the second one of who lost one lately."""

_PLACE_TRIPS: Final = 16.0
"""Of who asks. All others have looked within the first half; in the second one it hears of the newest entry, and puts
its own, whatever it is about just now."""

_PLACES_SHARE: Final = 10
"""Whoever may put a mailbox may ask, again and again: it takes a tenth of a writer's time at most."""

_MOST_BETWEEN: Final = 4
"""Entries of others between two of who collects. Its cycle is longer than a race, so it loses most of them against two
writers that append without a pause what cannot be proposed; and those who propose to it wait for its entries."""


class Place(NamedTuple):
    """For how many milliseconds to append nothing, and whether to collect from then on."""

    ms: int
    begins: bool


class Races:
    """What one writer knows of others that append at the same time.

    Attributes:
        trip: how long a put of an entry takes.
        counts: what this writer met.
    """

    def __init__(self, follower: Follower, store: Store, runtime: Runtime, writer: str) -> None:
        self._follower = follower
        self._store = store
        self._runtime = runtime
        self._writer = writer
        self.trip = RoundTrip()
        self.counts = AppendCounts()
        self._lost_ms: float | None = None
        self._named = ""
        self._named_ms = 0.0
        self._in_vain: tuple[str, float] = ("", 0.0)
        self._named_version = 0
        self._won = 0
        self._won_at_look = 0
        self._winners: list[str] = []
        self._place = Place(0, begins=False)
        self._no_place_before_ms = 0.0
        self._own_place_until_ms = 0.0

    def won(self) -> None:
        """An entry of this writer took the slot."""
        self._won += 1
        self._winners.clear()

    def note_brought(self) -> None:
        """Somebody else brought all that this writer had."""
        self.counts.brought += 1
        self._winners.clear()

    def note_winner(self, writer: str) -> None:
        """An entry of that writer took the slot that this one asked for."""
        self.counts.lost_races += 1
        self._winners.append(writer)

    def note_rivals(self) -> None:
        """Others append just now: a race was lost, and not only since this writer was behind."""
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
        """Ask who collects for a place, or else who won last: a few that are nearer to the store win each race."""
        if len(self._winners) < _LOST_BEFORE_ASKING:
            return
        winners, self._winners = self._winners, []
        if len(set(winners)) > _MOST_WINNERS:
            return
        place_ms = min(LONGEST_PLACE_MS, int(_PLACE_TRIPS * self.trip.ms))
        self._own_place_until_ms = self._runtime.elapsed_ms() + 2 * place_ms
        collector = self.collector
        said = Collecting(self._writer if self.is_named else collector or "", collector or winners[-1], place_ms)
        await self._runtime.request(partial(put_collecting, self._store, said))

    @property
    def is_time_to_look(self) -> bool:
        """Whether to look now whether somebody asks for a place: who wins all races does not hear of those who lose."""
        every = _ASKED_EVERY_IN_RACES if self.are_lost else _ASKED_EVERY_ENTRIES
        return self._won - self._won_at_look >= every

    def take_place(self) -> Place:
        """The place that is to be made now; once."""
        place, self._place = self._place, Place(0, begins=False)
        return place

    async def let_collector_in(self) -> None:
        """Append nothing until who collects has an entry in the log, where others have had several since its last one.

        For ten round trips at most. It reads the log meanwhile, which whoever appends next has to do anyway.
        """
        began_ms = self._runtime.elapsed_ms()
        while self._is_collector_behind():
            if self._runtime.elapsed_ms() - began_ms > PATIENCE_TRIPS * self.trip.ms:
                self._named_version = self._follower.version  # once for so many entries, also of one that is gone
                return
            look, asked_ms = self.look(), self._runtime.elapsed_ms()
            calls: list[Callable[[], Any]] = [*self._follower.reads_of_next(1), look]
            found = await self._runtime.requests(calls)
            self.note(look)
            self._follower.apply_next(found[0])
            # Where one put took far longer than a read does (the process was suspended), looks would be very many.
            rest_ms = _LEAST_TRIPS_A_LOOK * self.trip.ms - (self._runtime.elapsed_ms() - asked_ms)
            if rest_ms > 0:
                await self._runtime.pause(rest_ms)

    def _is_collector_behind(self) -> bool:
        collector = self.collector
        if collector is None:
            return False
        heard = self._follower.heard.get(collector)
        newest = self._named_version if heard is None else max(heard.version, self._named_version)
        return self._follower.version - newest >= _MOST_BETWEEN

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
            self._won_at_look = self._won
            found = look.found
            self.note_named(found.writer)
            now_ms = self._runtime.elapsed_ms()
            is_asked = found.asked == self._writer
            is_begun = not found.asked and found.writer != self._writer and now_ms >= self._own_place_until_ms
            if (is_asked or is_begun) and now_ms >= self._no_place_before_ms:
                self._place = Place(found.place_ms, begins=is_asked)
                self._no_place_before_ms = now_ms + _PLACES_SHARE * found.place_ms
            elif is_asked:
                self._place = Place(self._place.ms, begins=True)

    def note_named(self, writer: str) -> None:
        """This writer collects, as far as anybody says.

        A new name is a sign of life. That of who was waited for in vain is not: it may be dead, and named for ever.
        """
        if writer != self._named:
            self._named = writer
            self._named_ms = -math.inf if self._was_in_vain(writer) else self._runtime.elapsed_ms()
            self._named_version = self._follower.version

    def note_in_vain(self) -> None:
        """Whoever is named did not bring what was proposed: the next loss looks again."""
        self.counts.in_vain += 1
        self._in_vain = (self._named, self._runtime.elapsed_ms())
        self._won_at_look = self._won - _ASKED_EVERY_ENTRIES  # it may make a place, which others look for next
        self.note_named("")

    @property
    def collector(self) -> str | None:
        """Another writer that collects, if it has shown life lately: by an entry, or by being named."""
        if not self._named or self._named == self._writer:
            return None
        return self._named if self._is_lately(max(self._named_ms, self._heard_ms(self._named))) else None

    def _heard_ms(self, writer: str) -> float:
        heard = self._follower.heard.get(writer)
        return 0.0 if heard is None else heard.at_ms

    @property
    def is_open(self) -> bool:
        """Whether nobody else collects, or one who was waited for in vain and has appended nothing since."""
        collector = self.collector
        return collector is None or self._was_in_vain(collector)

    def _was_in_vain(self, writer: str) -> bool:
        in_vain, since_ms = self._in_vain
        return writer == in_vain and self._heard_ms(writer) < since_ms

    @property
    def is_named(self) -> bool:
        """Whether it is this writer that collects."""
        return self._named == self._writer

    def say(self, writer: str, place_ms: int = 0) -> bool:
        """Say who collects, nobody where that is empty. For a thread of a request; False where the right is missing.

        Args:
            writer: who collects.
            place_ms: for so long it appends nothing, and nor shall others.
        """
        return put_collecting(self._store, Collecting(writer, "", place_ms))

    def timed(self, put: Callable[[], T]) -> T:
        """What a put gives, which shows how long one takes. For a thread of a request."""
        began_ms = self._runtime.elapsed_ms()
        found = put()
        self.trip.note(self._runtime.elapsed_ms() - began_ms)
        return found


__all__ = ["Races"]
