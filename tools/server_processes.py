"""Servers as child processes: started on loopback with a log, waited for, ended by their own process ids."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tools.java_home import find_java_home
from tools.servers import end, free_port

_START_S = 90.0
_LAST_CHARACTERS = 2_000


class NotStartedError(Exception):
    """A server did not start; the text has the end of its log."""


class Server:
    """A child process with a log."""

    def __init__(self, command: Sequence[str | Path], log: Path, cwd: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def wait_for_port(self, port: int) -> None:
        """Return when it listens.

        Raises:
            NotStartedError: it ended, or took too long.
        """
        deadline = time.monotonic() + _START_S
        while True:
            self.check()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise NotStartedError(f"Nothing listens after {_START_S:g} s.\n{self.tail()}") from None
                time.sleep(0.1)

    def check(self) -> None:
        """Raise NotStartedError if it has ended."""
        if self.process.poll() is not None:
            raise NotStartedError(f"The server ended with {self.process.returncode}.\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-_LAST_CHARACTERS:]

    def end(self) -> None:
        """End it, by force where it does not end by itself."""
        end(self.process)


def java() -> str:
    """The Java that starts servers and clients.

    Raises:
        NotStartedError: there is none that is new enough.
    """
    home = find_java_home()
    if home is None:
        raise NotStartedError(
            "There is no Java 17 or newer. Install one, or run `make install`, which brings a runtime."
        )
    return os.path.join(home, "bin", "java")


__all__ = ["NotStartedError", "Server", "free_port", "java"]
