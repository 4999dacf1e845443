"""Starts the test runs of mutants, each as a fork of this process, which has imported what all of them need.

``run.Copy`` talks to it in lines of JSON, one run at a time. Nothing of ours is imported here: a run must find the copy
that was mutated, which stands first on its path.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

THEIRS = (
    "_pytest.pytester",
    "fsspec",
    "hypothesis.internal.conjecture.engine",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "msgspec",
    "numpy",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pytest",
    "pytest_timeout",
    "xdist.plugin",
    "xxhash",
)
NO_END = 124


def run(arguments: list[str], environment: dict[str, str], output: str) -> None:
    """In the fork: pytest with these arguments; it never returns."""
    code = 70
    try:
        os.setsid()
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, written, written)):
            os.dup2(file, number)
        os.environ.update(environment)
        import pytest

        code = int(pytest.main(arguments))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Threads that a test left behind, and what modules do at the end, are nobody's business here.
        os._exit(code)


def code_of(child: int, seconds: float) -> int:
    """The exit code of a fork; ``NO_END`` where it had to be ended, with all that it started."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return NO_END
        time.sleep(0.01)


def main() -> None:
    """Carry out what comes in, line by line, until nothing comes any more."""
    for name in THEIRS:
        importlib.import_module(name)
    for line in sys.stdin:
        wanted: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            run(wanted["arguments"], wanted["environment"], wanted["output"])
        print(code_of(child, wanted["seconds"]), flush=True)


if __name__ == "__main__":
    main()
