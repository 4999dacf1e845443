"""What a simulation adds to the actors that it draws. Each is a workload of its own: kept seeds do what they did."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from txnlog.testing.actors import COMPACTOR, COPIER, CROWD, ERASER, EXPIRER, OPTIMIZER, RETAINER, VACUUMER

Workload = Literal["plain", "maintained", "crowded", "retained", "erased", "expired", "restored", "compacted"]


class Addition(NamedTuple):
    """What a workload adds.

    Attributes:
        kind: of the actors that are added.
        counts: how many there may be.
        budget: how many times as many requests as a plain one it has.
        besides: kinds of which some are added as well.
        keyed: whether the topics have a key, by which they are to be compacted.
    """

    kind: str
    counts: tuple[int, ...]
    budget: int
    besides: tuple[str, ...] = ()
    keyed: bool = False


ADDITIONS: Final[dict[Workload, Addition]] = {
    "maintained": Addition(OPTIMIZER, (1, 1, 2), 2),
    "crowded": Addition(CROWD, (5, 6, 7), 3),
    "retained": Addition(RETAINER, (1, 1, 2), 2),
    "erased": Addition(ERASER, (1, 1, 2), 2),
    "expired": Addition(EXPIRER, (1, 1, 2), 2),
    "restored": Addition(COPIER, (1, 2, 2), 6, (VACUUMER, OPTIMIZER, EXPIRER, ERASER)),
    "compacted": Addition(COMPACTOR, (1, 2, 2), 4, (VACUUMER, OPTIMIZER), keyed=True),
}
"""By workload what it adds: "plain" nothing, "maintained" who merges segments and alters topics, "crowded" producers
that race in place of most other actors, "retained" who deletes messages and merges segments, "erased" who erases
single messages and merges, "expired" who deletes and merges, and lets messages expire, "restored" who backs the
namespace up and restores it, and some of those who change its files meanwhile, "compacted" who compacts topics by their
keys, and some who merge and vacuum meanwhile."""

WORKLOADS: Final[tuple[Workload, ...]] = get_args(Workload)

__all__ = ["ADDITIONS", "WORKLOADS", "Addition", "Workload"]
