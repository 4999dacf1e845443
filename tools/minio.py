"""An S3 server that enforces policies: MinIO, built from its Go module into ``out/`` (five minutes of CPU, once).

It listens on loopback alone. A user is a set of temporary credentials with exactly the policy that is given.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import botocore.session

from tools.go_program import built
from tools.servers import end, free_port

VERSION: Final = "v0.0.0-20250907161309-07c3a429bfed"
PACKAGE: Final = "github.com/minio/minio"

_START_SECONDS: Final = 60
_REGION: Final = "us-east-1"
_ADMINISTRATOR: Final = ("loopback-root", "loopback-secret-of-no-value")


@dataclass(frozen=True)
class PolicyServer:
    """A running server with one bucket."""

    endpoint: str
    bucket: str

    def options(self, policy: dict[str, Any] | None = None) -> dict[str, Any]:
        """Storage options of a user with this policy; of the server's owner without one."""
        client = {"client_kwargs": {"endpoint_url": self.endpoint, "region_name": _REGION}}
        if policy is None:
            return {"key": _ADMINISTRATOR[0], "secret": _ADMINISTRATOR[1], **client}
        answer = self.client("sts").assume_role(
            RoleArn="arn:aws:iam::000000000000:role/any", RoleSessionName="role", Policy=json.dumps(policy)
        )
        made = answer["Credentials"]
        return {"key": made["AccessKeyId"], "secret": made["SecretAccessKey"], "token": made["SessionToken"], **client}

    def client(self, service: str) -> Any:
        """A client of the server's owner."""
        session = botocore.session.Session()
        session.set_credentials(*_ADMINISTRATOR)
        return session.create_client(service, endpoint_url=self.endpoint, region_name=_REGION)


def build() -> Path:
    """The server's program, built if it is not there."""
    return built("minio", PACKAGE, VERSION)


@contextlib.contextmanager
def policy_server(bucket: str = "lake") -> Iterator[PolicyServer]:
    """A MinIO on a free port of loopback, ended by its process id."""
    program = build()
    port = free_port()
    server = PolicyServer(f"http://127.0.0.1:{port}", bucket)
    with tempfile.TemporaryDirectory(prefix="txnlog-minio-") as folder, open(Path(folder) / "log", "w+b") as log:
        addresses = ["--address", f"127.0.0.1:{port}", "--console-address", f"127.0.0.1:{free_port()}"]
        process = subprocess.Popen(
            [str(program), "server", "--quiet", *addresses, f"{folder}/data"],
            env={
                "HOME": folder,
                "PATH": os.environ["PATH"],
                "MINIO_ROOT_USER": _ADMINISTRATOR[0],
                "MINIO_ROOT_PASSWORD": _ADMINISTRATOR[1],
                "MINIO_BROWSER": "off",
                "MINIO_UPDATE": "off",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _await(server, process, Path(folder) / "log")
            server.client("s3").create_bucket(Bucket=bucket)
            yield server
        finally:
            end(process)


def _await(server: PolicyServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            address = f"{server.endpoint}/minio/health/live"
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310  # a fixed http address
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


__all__ = ["PolicyServer", "build", "policy_server"]
