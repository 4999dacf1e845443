"""S3 servers on loopback, for tests and benchmarks: one that honours create-if-absent, and one that only seems to.

Each is a process of its own on a free port, started by a context manager and ended by its process id.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCESS_KEY = "AKIALOOPBACKTESTSERV"
SECRET_KEY = "loopback-secret-of-no-value"  # noqa: S105  # of servers that live for one run
_START_SECONDS = 60


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    bucket: str
    storage_options: dict[str, Any]
    pid: int

    def url(self, path: str) -> str:
        """The s3:// form of a path in the bucket."""
        return f"s3://{self.bucket}/{path}"


@contextlib.contextmanager
def s3_server(bucket: str = "txnlog-tests") -> Iterator[S3Server]:
    """A ministack: of any number of racing conditional PUTs one succeeds."""
    port = free_port()
    environment = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "SERVICES": "s3", "LOG_LEVEL": "ERROR"}
    with _running([sys.executable, "-m", "ministack"], port, environment, bucket) as server:
        yield server


@contextlib.contextmanager
def unlocked_s3_server(bucket: str = "txnlog-tests") -> Iterator[S3Server]:
    """A moto: it looks for the object, then writes it, without a lock, in many threads. The negative control."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port, {}, bucket) as server:
        yield server


def free_port() -> int:
    """A port of loopback that nobody listened on a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: list[str], port: int, environment: dict[str, str], bucket: str) -> Iterator[S3Server]:
    endpoint = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="txnlog-s3-") as folder, open(Path(folder) / "log", "w+b") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment, "TMPDIR": folder, "HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _make_bucket(f"{endpoint}/{bucket}", process, Path(folder) / "log")
            options = {
                "key": ACCESS_KEY,
                "secret": SECRET_KEY,
                "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
            }
            yield S3Server(endpoint, bucket, options, process.pid)
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server: by a request, and by force where it takes more than ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _make_bucket(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    # Both servers take anonymous requests in this form; it spares the tests a second S3 client.
    credential = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    )
    headers = {"Authorization": credential}
    request = urllib.request.Request(address, method="PUT", headers=headers)  # noqa: S310  # a fixed http address
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(request, timeout=5):  # noqa: S310  # a fixed http address
                return
        except (OSError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
