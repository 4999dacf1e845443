"""Which faults a simulated run has, and how often: drawn once for a seed, then asked at every request.

A request meets at most one fault: one of the kinds that are on is picked evenly, then its rate decides. So the share of
faulty writes is the mean of the rates, and a run with every kind on still gets somewhere. Reads meet an eighth of that:
they are most of the requests, and a failed one teaches little (a store's own client would have asked again).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

REQUEST_FAULTS: Final = {
    "lost": "applied, the client sees a timeout",
    "dropped": "not applied, the client sees a timeout",
    "delayed": "times out now, is applied any time later, even after the client's next request or its death",
    "duplicated": "applied now and again later",
    "storm": "a number of requests in a row get 429, 500, 503, 409 for 412, or find the credentials expired",
    "torn": "the upload of a segment or checkpoint breaks off: its object appears late, whole, or never",
    "stale_list": "a listing omits the newest keys, or random ones, or all",
}
"""What may become of one request."""

ACTOR_FAULTS: Final = {
    "crash": "the actor starts again from nothing; its requests in flight are dropped, applied or delayed",
    "pause": "the actor is frozen for up to 10^6 ms and goes on with stale state",
    "clock": "the actor's clock is skewed, jumps, or stops",
}
"""What may befall an actor, at any request, sleep or look at its clock."""

REST_FAULTS: Final = {"damage": "an object at rest is deleted, cut, swapped with another, or has a bit flipped"}
"""What may happen to an object at rest. It is repaired before the end: damage has to be noticed, not survived, unless
it is that of a checkpoint."""

ALL_FAULTS: Final = (*REQUEST_FAULTS, *ACTOR_FAULTS, *REST_FAULTS)

STORMS: Final = ("429", "500", "503", "409", "expired")
LONGEST_PAUSE_MS: Final = 1_000_000.0
MOST_OFTEN: Final = 0.6

_ON: Final = 0.55
_READ_SHARE: Final = 0.125
_ACTOR_SHARE: Final = {"crash": 0.06, "pause": 0.15, "clock": 0.15}
"""Of the drawn rate: opening a namespace takes a dozen requests, and an actor that never gets there shows nothing."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one run: the rate of each kind that is on, between 0 and 0.6."""

    rates: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def draw(cls, chance: random.Random) -> Faults:
        """Each kind is on with probability 0.55, at an even rate between 0 and 0.6."""
        return cls({kind: chance.uniform(0, MOST_OFTEN) for kind in ALL_FAULTS if chance.random() < _ON})

    def __str__(self) -> str:
        return ", ".join(f"{kind} {rate:.2f}" for kind, rate in self.rates.items()) or "none"


class FaultDice:
    """Draws what happens, by the rates of one run; quiet where nothing is on."""

    def __init__(self, faults: Faults, chance: random.Random) -> None:
        self._chance = chance
        self._requests = [(kind, rate) for kind, rate in faults.rates.items() if kind in REQUEST_FAULTS]
        self._actors = [
            (kind, faults.rates[kind] * share) for kind, share in _ACTOR_SHARE.items() if kind in faults.rates
        ]
        self._rest = faults.rates.get("damage", 0.0)

    def for_request(self, *, writes: bool) -> str:
        """The fault that a request meets, or ``""``."""
        if writes or self._chance.random() < _READ_SHARE:
            return self._pick(self._requests)
        return ""

    def for_actor(self) -> str:
        """The fault that befalls an actor at this point, or ``""``."""
        return self._pick(self._actors)

    def damages(self) -> bool:
        """Whether an object at rest is damaged now: a few times in a run."""
        return bool(self._rest) and self._chance.random() < self._rest

    def _pick(self, kinds: list[tuple[str, float]]) -> str:
        if not kinds:
            return ""
        drawn = self._chance.random() * len(kinds)
        number = int(drawn)
        kind, rate = kinds[number]
        return kind if drawn - number < rate else ""


NO_FAULTS: Final = Faults()

__all__ = [
    "ACTOR_FAULTS",
    "ALL_FAULTS",
    "LONGEST_PAUSE_MS",
    "MOST_OFTEN",
    "NO_FAULTS",
    "REQUEST_FAULTS",
    "REST_FAULTS",
    "STORMS",
    "FaultDice",
    "Faults",
]
