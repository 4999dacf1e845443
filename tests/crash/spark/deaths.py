"""How a driver dies at the place of its kill: the seed decides."""

from __future__ import annotations

import enum
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.demo.kills import Kill, Place, kill_everything
from tests.crash.spark.workload import Engine

_LATER_MS: Final = (1, 400)
_MOST_ENTRIES: Final = 6
_SUCCESSOR_S: Final = 90.0


class Manner(enum.Enum):
    """What happens at the place of a kill."""

    THERE = "at the place"
    LATER = "a moment later"
    """Python and the JVM go on until a timer kills them, wherever they are by then."""
    OUTLIVES = "its sink outlives it"
    """The driver dies; the process that commits for its sink goes on, at once or when the successor wrote something."""


@dataclass(frozen=True)
class Death:
    """A kill, how it happens, how much later, and after how many entries of its successor what outlives it goes on."""

    kill: Kill
    manner: Manner
    after_ms: int = 0
    after_entries: int = 0


def death_of(seed: int, engine: Engine, kill: Kill) -> Death:
    """How a driver dies at a kill: always the same for a seed."""
    chance = random.Random(f"{seed} {engine.value} {kill}")
    if engine.is_sink and kill.place is Place.BEFORE_ENTRY and chance.random() < 0.5:
        return Death(kill, Manner.OUTLIVES, after_entries=chance.randint(0, _MOST_ENTRIES))
    if engine is not Engine.CARELESS and chance.random() < 0.25:
        return Death(kill, Manner.LATER, chance.randint(*_LATER_MS))
    return Death(kill, Manner.THERE)


class Dying:
    """What a :class:`~examples.demo.kills.KillSwitch` calls in the driver's own process."""

    def __init__(self, death: Death) -> None:
        self._death = death
        self._timer: threading.Timer | None = None

    def __call__(self) -> None:
        if self._death.manner is Manner.THERE:
            kill_everything()
        self._timer = threading.Timer(self._death.after_ms / 1000, kill_everything)
        self._timer.start()

    def wait(self) -> None:
        """A driver that came to its end before its death waits for it."""
        if self._timer is not None:
            self._timer.join()


class DyingSink:
    """The same in the process that commits for the format's sink: Spark started it, its session is the driver's.

    Args:
        death: what is to happen.
        tell: called first: the driver's parent waits for it.
        there_are: whether others wrote so many entries since this process knew the log last.

    Attributes:
        begun: whether it has begun.
        outlived: whether the driver is dead and this process goes on.
    """

    def __init__(self, death: Death, tell: Callable[[], object], there_are: Callable[[int], bool]) -> None:
        self._death = death
        self._tell = tell
        self._there_are = there_are
        self.begun = False
        self.outlived = False
        if death.manner is Manner.OUTLIVES:  # here, in the main thread: commits are put by others
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # by which the daemon of Spark's workers ends them

    def __call__(self) -> None:
        self.begun = True
        self._tell()
        match self._death.manner:
            case Manner.THERE:
                self._kill_all()
            case Manner.LATER:
                threading.Timer(self._death.after_ms / 1000, self._kill_all).start()
            case Manner.OUTLIVES:
                os.setpgid(0, 0)
                os.killpg(os.getsid(0), signal.SIGKILL)
                self.outlived = True
                deadline = time.monotonic() + _SUCCESSOR_S
                while not self._there_are(self._death.after_entries) and time.monotonic() < deadline:
                    time.sleep(0.02)

    def _kill_all(self) -> None:
        os.killpg(os.getsid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def processes_of(session: int) -> dict[int, str]:
    """The living processes of a session, with their command lines."""
    found: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            state, _parent, _group, of_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(of_session) == session and state not in "ZX":
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


__all__ = ["Death", "Dying", "DyingSink", "Manner", "death_of", "processes_of"]
