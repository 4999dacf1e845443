"""What a simulation adds to the actors that it draws.

Each addition is a workload of its own: what a seed does depends on the kinds of actors that it draws from, and seeds
that found something once are kept.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

from txnlog.testing.actors import COMPACTOR, COPIER, CROWD, ERASER, EXPIRER, OPTIMIZER, RETAINER, TRUNCATOR, VACUUMER

Workload = Literal[
    "plain", "maintained", "crowded", "retained", "erased", "expired", "restored", "compacted", "truncated"
]


class Addition(NamedTuple):
    """What a workload adds.

    Attributes:
        kind: of the actors that are added.
        counts: how many there may be.
        budget: how many times as many requests as a plain one it has.
        text: what its flag says on the command line.
        besides: kinds of which some are added as well.
        keyed: whether the topics have a key, by which they are to be compacted.
    """

    kind: str
    counts: tuple[int, ...]
    budget: int
    text: str
    besides: tuple[str, ...] = ()
    keyed: bool = False


ADDITIONS: Final[dict[Workload, Addition]] = {
    "maintained": Addition(OPTIMIZER, (1, 1, 2), 2, "Let somebody merge segments and alter topics besides."),
    "crowded": Addition(CROWD, (5, 6, 7), 3, "Let several more producers race, in place of most other actors."),
    "retained": Addition(RETAINER, (1, 1, 2), 2, "Let somebody delete messages, and merge segments, besides."),
    "erased": Addition(ERASER, (1, 1, 2), 2, "Let somebody erase single messages, and merge segments, besides."),
    "expired": Addition(
        EXPIRER, (1, 1, 2), 2, "Let somebody delete messages and let them expire, and merge segments, besides."
    ),
    "restored": Addition(
        COPIER,
        (1, 2, 2),
        6,
        "Let somebody back up and restore besides, next to some who change the files of the namespace.",
        (VACUUMER, OPTIMIZER, EXPIRER, ERASER),
    ),
    "compacted": Addition(
        COMPACTOR,
        (1, 2, 2),
        4,
        "Give topics a key, and let somebody compact them besides, next to some who merge and vacuum.",
        (VACUUMER, OPTIMIZER),
        keyed=True,
    ),
    "truncated": Addition(
        TRUNCATOR,
        (1, 2, 2),
        3,
        "Let somebody replace the content of topics besides, next to some who delete, merge, vacuum or race.",
        (VACUUMER, OPTIMIZER, RETAINER, CROWD),
    ),
}
"""By workload what it adds; "plain" adds nothing."""

WORKLOADS: Final[tuple[Workload, ...]] = get_args(Workload)

__all__ = ["ADDITIONS", "WORKLOADS", "Addition", "Workload"]
