"""Starting a pipeline again and again until it has survived its kills and come to its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from examples.demo.kills import Kill, Place

Event = dict[str, Any]
"""What a pipeline said: ``event``, ``at_ms`` and details."""

_LIMIT_S: Final = 600


class DemoFailed(Exception):
    """The demo did not show what it is there to show."""


@dataclass(frozen=True)
class Death:
    """A kill that happened."""

    kill: Kill
    at_ms: int


def run_with_kills(
    module: str, arguments: Sequence[str], kills: Sequence[Kill], log: Path, on_event: Callable[[Event], None]
) -> list[Death]:
    """Start the pipeline once for each kill and a last time without; returns the deaths.

    Raises:
        DemoFailed: a process ended in another way than the plan says.
    """
    deaths: list[Death] = []
    for kill in (*kills, None):
        events: list[Event] = []
        code = _run(module, [*arguments, *(["--kill", str(kill)] if kill else [])], log, events, on_event)
        last = events[-1] if events else {}
        if kill is None:
            if code != 0:
                raise DemoFailed(f"{module} ended with exit code {code}; see {log}")
            continue
        if code != -signal.SIGKILL or last.get("event") != "kill":
            raise DemoFailed(f"{module} was to be killed at {kill} and ended with exit code {code}; see {log}")
        deaths.append(Death(Kill(Place(last["place"]), last["batch"]), last["at_ms"]))
    return deaths


def _run(
    module: str, arguments: Sequence[str], log: Path, events: list[Event], on_event: Callable[[Event], None]
) -> int:
    command = [sys.executable, "-m", module, *arguments]
    with log.open("a") as errors:
        errors.write(f"\n--- {module} {' '.join(arguments)}\n")
        errors.flush()
        # A session of its own: one SIGKILL to its group ends Python and JVM, and nobody else.
        with (
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            ) as process,
            _gone_with_us(process),
        ):
            assert process.stdout is not None, "a pipe was asked for"
            for event in _events(process.stdout):
                events.append(event)
                on_event(event)
            return process.wait(_LIMIT_S)


@contextlib.contextmanager
def _gone_with_us(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens here (Ctrl-C too), the pipeline's processes do not stay behind."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _events(lines: IO[str]) -> Iterator[Event]:
    for line in lines:
        if line.startswith('{"event"'):
            yield json.loads(line)


__all__ = ["Death", "DemoFailed", "Event", "run_with_kills"]
