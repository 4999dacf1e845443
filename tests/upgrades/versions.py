"""Older states of this project, out of its own history, and clients of them in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]

OLD: Final = "e2da7cf9e752"
"""200 commits before clients stood in the log: no proposals, no backups, no settings of retention."""

RECENT: Final = "96ace7996abf"
"""The last commit before clients stood in the log: it compares the whole text of a block with the id of a writer."""

NEW: Final = "new"

_PARTS: Final = ("txnlog", "catalog", "pyproject.toml")


class NotInThisClone(Exception):
    """The history of this clone does not have the older state."""


def tree(commit: str, folder: Path, repository: Path = ROOT) -> Path:
    """The code of a commit, below a folder. Raises NotInThisClone: a test of two versions is never skipped."""
    found = subprocess.run(
        ["git", "archive", "--format=tar", commit, *_PARTS], cwd=repository, capture_output=True, check=False
    )
    if found.returncode:
        said = found.stderr.decode(errors="replace").strip()
        raise NotInThisClone(
            f"the older state {commit} is not in this clone ({said}). If it is shallow, run: git fetch --unshallow. "
            "The tests of upgrades need the history of the project"
        )
    target = folder / commit
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(target, filter="data")
    return target


class Failed(Exception):
    """A call in the other process raised an error.

    Attributes:
        kind: the name of its class.
        advice: what to do next.
        durable: what may be durable.
    """

    def __init__(self, found: dict[str, str]) -> None:
        super().__init__(f"{found['error']}: {found['text']}")
        self.kind, self.advice, self.durable = found["error"], found["advice"], found["durable"]


class Process:
    """A client of one version. Its calls are those of ``client_process.Client``."""

    def __init__(self, code: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(code)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(Path(__file__).with_name("client_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=code,
            text=True,
        )
        assert Path(self.call("where")).is_relative_to(code), "the other version would be tested against itself"

    def begin(self, name: str, *given: Any, **options: Any) -> None:
        """Let it do something, without waiting for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, given, options]) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Wait for it. Raises Failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError(f"the process ended: {self._process.stderr.read()}")
        found = json.loads(line)
        if "error" in found:
            raise Failed(found)
        return found["result"]

    def call(self, name: str, *given: Any, **options: Any) -> Any:
        """Do something. Raises Failed."""
        self.begin(name, *given, **options)
        return self.end()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate(timeout=30)


__all__ = ["NEW", "OLD", "RECENT", "ROOT", "Failed", "NotInThisClone", "Process", "tree"]
