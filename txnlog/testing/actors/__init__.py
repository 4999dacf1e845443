"""What simulated clients do: a table of kinds of actor, each a function that lives until the schedule is over.

A kind is a callable ``(client) -> None``: it opens the namespace, works through ``client.call`` so that every operation
stands in the history, and returns when ``client.over()``. After a crash the same function starts again from nothing.
Users add their own: ``Simulation(seed, kinds={**ACTOR_KINDS, "mine": my_function})``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txnlog.testing.actors.admin import admin
from txnlog.testing.actors.checkpointer import checkpointer
from txnlog.testing.actors.compactor import compactor
from txnlog.testing.actors.copier import copier
from txnlog.testing.actors.crowd import crowd
from txnlog.testing.actors.eraser import eraser
from txnlog.testing.actors.failover import failover
from txnlog.testing.actors.optimizer import optimizer
from txnlog.testing.actors.pipeline import pipeline
from txnlog.testing.actors.reader import reader
from txnlog.testing.actors.resolver import resolver
from txnlog.testing.actors.retainer import expirer, retainer
from txnlog.testing.actors.shared import shared
from txnlog.testing.actors.truncator import truncator
from txnlog.testing.actors.vacuumer import vacuumer
from txnlog.testing.actors.writer import writer
from txnlog.testing.client import Client

ActorKind = Callable[[Client], None]
ACTOR_KINDS: Final[dict[str, ActorKind]] = {
    "writer": writer,
    "pipeline": pipeline,
    "shared": shared,
    "failover": failover,
    "reader": reader,
    "checkpointer": checkpointer,
    "admin": admin,
    "resolver": resolver,
    "vacuumer": vacuumer,
}
"""What an actor may be; the first is in every run."""

VACUUMER: Final = "vacuumer"
OPTIMIZER: Final = "optimizer"
CROWD: Final = "crowd"
RETAINER: Final = "retainer"
ERASER: Final = "eraser"
EXPIRER: Final = "expirer"
COPIER: Final = "copier"
COMPACTOR: Final = "compactor"
TRUNCATOR: Final = "truncator"
MORE_KINDS: Final[dict[str, ActorKind]] = {
    OPTIMIZER: optimizer,
    CROWD: crowd,
    RETAINER: retainer,
    ERASER: eraser,
    EXPIRER: expirer,
    COPIER: copier,
    COMPACTOR: compactor,
    TRUNCATOR: truncator,
}
"""What an actor may be in other workloads than the plain one (``txnlog.testing.workloads.ADDITIONS``)."""

__all__ = [
    "ACTOR_KINDS",
    "COMPACTOR",
    "COPIER",
    "CROWD",
    "ERASER",
    "EXPIRER",
    "MORE_KINDS",
    "OPTIMIZER",
    "RETAINER",
    "TRUNCATOR",
    "VACUUMER",
    "ActorKind",
]
