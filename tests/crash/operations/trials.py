"""One operation that is killed, looked at, repeated, perhaps killed again, and judged, as often as is asked for."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.crash.operations import children, judging
from tests.crash.operations.deaths import MIDDLE, Deaths, Made, Place
from tests.crash.operations.judging import End
from tests.crash.operations.looking import Shown
from tests.crash.operations.operations import MINUTE_MS, Operation, Site, prepare

T = TypeVar("T")

RANDOM_SHARE = 0.1
"""So many kills come at a random time, and not at a call."""

AGAIN_SHARES = (0.3, 0.3, 0.4)
"""Of the trials, by how often the operation is killed before it may end: once, twice, three times."""

MOST_FINDINGS = 3
"""An operation with so many is not killed any more."""


@dataclass
class Result:
    """What came of one operation.

    Attributes:
        operation: its name.
        calls: of the store, that an undisturbed run makes.
        counts: what was tried.
        covered: the numbers of the calls at which a process died, one that repeated the operation included.
        findings: what is wrong.
    """

    operation: str
    calls: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    covered: set[int] = field(default_factory=set)
    findings: list[str] = field(default_factory=list)


class Trials:
    """Prepares an operation once, lets it end undisturbed, and then kills it."""

    def __init__(self, operation: Operation, folder: Path, chance: random.Random) -> None:
        self._operation = operation
        self._chance = chance
        self._kept = folder / "kept"
        self._site = Site(folder / "site", time.time_ns() // 1_000_000)
        _in_child(lambda: _prepare(operation, self._site))
        self._site.folder.rename(self._kept)
        self._site.begin(self._kept)
        self._before: Shown = _in_child(lambda: judging.look(operation, self._site))
        self._made, self._seconds = children.run(partial(_call, operation, self._site, None)).result
        self._end: End = _in_child(lambda: judging.end(operation, self._site))
        self.result = Result(operation.name, len(self._made))
        self.result.findings = [f"{operation.name}, not killed at all: {text}" for text in self._end.problems]

    # --- where to die -------------------------------------------------------------------------------------------------

    def in_order(self, wanted: Callable[[Made], bool]) -> list[Place]:
        """The places of some calls, from the first one on."""
        return [
            Place(number, moment)
            for number, made in sorted(self._made.items())
            if wanted(made)
            for moment in made.moments
        ]

    def _places(self, *, changes: bool) -> list[Place]:
        """All places at changes, or at reads, so that each call has had a moment of its own before any has two."""
        by_call = [
            [Place(number, moment) for moment in self._shuffled(made.moments)]
            for number, made in sorted(self._made.items())
            if made.changes == changes
        ]
        rounds = itertools.zip_longest(*by_call)
        return [place for places in rounds for place in self._shuffled([item for item in places if item is not None])]

    def _shuffled(self, items: Sequence[T]) -> list[T]:
        return self._chance.sample(items, len(items))

    # --- trials -------------------------------------------------------------------------------------------------------

    def run(self, kills: int, progress: Callable[[int], object] = lambda _kills: None) -> Result:
        """Kill it so often at least, and at each of its calls that changes something."""
        places = itertools.cycle([*self._places(changes=True), *self._places(changes=False)])
        waiting = {number for number, made in self._made.items() if made.changes}
        while (self.result.counts["kills"] < kills or waiting) and len(self.result.findings) < MOST_FINDINGS:
            times = self._chance.choices(range(1, len(AGAIN_SHARES) + 1), AGAIN_SHARES)[0]
            chosen = [None if self._chance.random() < RANDOM_SHARE else next(places) for _ in range(times)]
            self.try_at(chosen)
            waiting -= self.result.covered
            if chosen[0] is not None:
                waiting.discard(chosen[0].call)  # one that is not always made is not waited for
            progress(self.result.counts["kills"])
        return self.result

    def try_each(self, places: Iterable[Place], most_findings: int = MOST_FINDINGS) -> Result:
        """Kill it once at each of some places, until there are so many findings."""
        for place in places:
            if len(self.result.findings) >= most_findings:
                break
            self.try_at([place])
        return self.result

    def try_at(self, places: Sequence[Place | None]) -> None:
        """One trial: die at a place (None: at a random time), and in each repetition at the next, then end; compare."""
        self._site.begin(self._kept)
        died: list[str] = []
        try:
            problems = list(self._problems(places, died))
        except children.ChildFailed as error:
            problems = [str(error)]
        self.result.counts["trials"] += bool(died)
        where = f"killed {', then '.join(died)}" if died else "not killed"
        self.result.findings += [f"{self._operation.name}, {where}: {problem}" for problem in problems]

    def _problems(self, places: Sequence[Place | None], died: list[str]) -> Iterator[str]:
        operation, site = self._operation, self._site
        ended = False
        for place in places:
            ended = not self._is_killed(place, site, died)
            if ended:
                break
            site = site.later(MINUTE_MS)
            now = site
            yield from _in_child(lambda: judging.amid(operation, now, self._before, self._end.shown))  # noqa: B023
        if not died:
            return
        if not ended:
            children.run(partial(_call, operation, site, None))
        end: End = _in_child(lambda: judging.end(operation, site))
        self.result.counts["kept"] += max(0, end.left.kept - self._end.left.kept)
        yield from end.problems
        yield from judging.compared(end, self._end, self._before)

    def _is_killed(self, place: Place | None, site: Site, died: list[str]) -> bool:
        """Call the operation; whether it was killed, and did not end before."""
        named = self._chance.random() < 0.5
        after_s = None if place is not None else self._chance.uniform(0, self._seconds)
        if not children.run(partial(_call, self._operation, site, place, named=named), after_s).killed:
            return False
        counts = self.result.counts
        counts["kills"] += 1
        counts["of repetitions"] += bool(died)
        if place is None:
            counts["at a random time"] += 1
            died.append("at a random time")
            return True
        counts["amid a write" if place.moment in MIDDLE else place.moment] += 1
        self.result.covered.add(place.call)
        if died:
            died.append(f"{place.moment} call {place.call} of the repetition")
        else:
            made = self._made[place.call]
            died.append(f"{place.moment} call {place.call}, {made.call.value} of {made.key}")
        return True


def _in_child(work: Callable[[], Any]) -> Any:
    return children.run(lambda _begun: work()).result


def _prepare(operation: Operation, site: Site) -> None:
    prepare(site)
    operation.prepare(site)


def _call(
    operation: Operation, site: Site, place: Place | None, begun: Callable[[], None], *, named: bool = False
) -> tuple[dict[int, Made], float]:
    """Carry an operation out; the calls of the store that it made, and how long it took."""
    deaths = Deaths(place)
    deaths.install(named=named)
    begun()
    began = time.monotonic()
    operation.call(site, deaths)
    return deaths.made, time.monotonic() - began


__all__ = ["Result", "Trials"]
