"""Killing a pipeline with SIGKILL, at a chosen place of a chosen batch.

A process gets at most one :class:`Kill`. It tells its :class:`KillSwitch` which batch it is in and which places
it comes through; at the chosen one the switch kills the whole process group: Python, the JVM, everything. Nothing is
flushed, closed or rolled back. ``runs`` starts such processes one after the other.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from txnlog.format.keys import kind_of
from txnlog.store import Created, ForwardingStore, Store


class Place(enum.Enum):
    """Where in a batch a pipeline can die."""

    BEFORE_DATA = "before-data"
    """The batch has begun and nothing of it is written."""
    BEFORE_ENTRY = "before-entry"
    """The data is written, the entry is not. The control: between its two appends."""
    BEFORE_SPARK = "before-spark"
    """The entry exists, Spark's own commit log does not say so. The control: after both appends."""

    @property
    def title(self) -> str:
        """For tables and pictures."""
        return {
            Place.BEFORE_DATA: "before the data",
            Place.BEFORE_ENTRY: "between data and entry",
            Place.BEFORE_SPARK: "between entry and Spark's commit log",
        }[self]


@dataclass(frozen=True)
class Kill:
    """One death: at a place of a batch."""

    place: Place
    batch: int

    def __str__(self) -> str:
        return f"{self.place.value}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> Kill:
        """The kill that ``str`` wrote; ValueError for anything else."""
        place, _, batch = text.partition(":")
        return cls(Place(place), int(batch))


def kill_plan(per_place: int, batches: int) -> list[Kill]:
    """``per_place`` kills at each place, each in a batch of its own, in order and spread over the run.

    The first and the last batch stay undisturbed: what comes before and after a kill is part of the test.
    """
    places = [*Place] * per_place
    if len(places) > batches - 2:
        raise ValueError(f"{len(places)} kills need {len(places) + 2} batches, not {batches}")
    step = (batches - 2) / max(1, len(places))
    return [Kill(place, 1 + int(index * step)) for index, place in enumerate(places)]


def batches_for(per_place: int) -> int:
    """Batches enough for a plan, with some between the kills."""
    return max(12, 5 * per_place)


def say(event: str, **details: object) -> None:
    """Tell the parent process; one line, unbuffered, so that it is out before the process dies."""
    line = json.dumps({"event": event, "at_ms": time.time_ns() // 1_000_000, **details})
    os.write(1, f"{line}\n".encode())


def kill_everything() -> NoReturn:
    """SIGKILL to this process and the JVM below it. Only where the group is our own: never a user's shell."""
    if os.getpgrp() == os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL does not return")


class KillSwitch:
    """Ends the process when it comes to the place and batch of its kill; does nothing without one."""

    def __init__(self, kill: Kill | None, die: Callable[[], object] = kill_everything) -> None:
        self._kill = kill
        self._die = die
        self._batch: int | None = None

    def enter(self, batch: int) -> None:
        """A batch begins."""
        self._batch = batch

    def reached(self, place: Place) -> None:
        """The pipeline is at a place of its batch."""
        if self._kill is not None and self._batch is not None and Kill(place, self._batch) == self._kill:
            say("kill", place=place.value, batch=self._batch)
            self._die()


class KillStore(ForwardingStore):
    """A store that knows when the entry of a batch is about to be created, and when it was: two instants to die.

    ``txnlog.open(..., store=...)`` takes it in place of the real one, which does all the work.
    """

    def __init__(self, inner: Store, switch: KillSwitch) -> None:
        super().__init__(inner)
        self._switch = switch

    def create(self, key: str, data: bytes) -> Created:
        """The inner create, between two places to die if this is the entry of a commit."""
        if kind_of(key) != "entry" or b'{"action":"commit"' not in data:
            return self.inner.create(key, data)
        self._switch.reached(Place.BEFORE_ENTRY)
        created = self.inner.create(key, data)
        self._switch.reached(Place.BEFORE_SPARK)
        return created


__all__ = ["Kill", "KillStore", "KillSwitch", "Place", "batches_for", "kill_everything", "kill_plan", "say"]
