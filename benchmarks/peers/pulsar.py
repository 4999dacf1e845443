"""Apache Pulsar 4.0 as a standalone; its transactions exist in the Java client, so the load is a Java program."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.peers.load import Load, Outcome
from benchmarks.peers.peer import Peer
from tools.install import ROOT
from tools.maven import jars
from tools.server_processes import NotStartedError, Server, free_port, java
from tools.servers import end

VERSION: Final = "4.0.7"
JARS: Final = ROOT / "out" / "jars" / f"pulsar-{VERSION}"
COORDINATES: Final = " ".join(
    [
        f"org.apache.pulsar:pulsar-broker:{VERSION}",
        f"org.apache.pulsar:pulsar-client-original:{VERSION}",
        "org.apache.logging.log4j:log4j-core:2.23.1",
        "org.apache.logging.log4j:log4j-slf4j2-impl:2.23.1",
    ]
)
PROGRAM: Final = Path(__file__).with_name("PulsarLoad.java")
_MAVEN_S: Final = 900
_START_S: Final = 120.0
_MARK: Final = "OUTCOME "
_SETTINGS: Final = """\
clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
brokerServicePort={broker}
webServicePort={web}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
transactionCoordinatorEnabled=true
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
journalSyncData=true
journalWriteData=true
allowLoopback=true
bookkeeperClientTimeoutInSeconds=60
loadBalancerEnabled=false
"""
_OPENED: Final = [
    f"--add-opens={package}=ALL-UNNAMED"
    for package in (
        "java.base/jdk.internal.loader",
        "java.base/jdk.internal.misc",
        "java.base/java.io",
        "java.base/java.lang",
        "java.base/java.net",
        "java.base/java.nio",
        "java.base/java.util",
        "java.base/java.util.zip",
        "java.base/java.util.concurrent",
        "java.base/sun.net",
        "java.base/sun.nio.ch",
        "java.management/sun.management",
        "jdk.management/com.sun.management.internal",
    )
]
_LOGGING: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d %p %c - %m%n%ex{20}
"""


class Pulsar(Peer):
    """One process with broker, bookie and metadata."""

    name = "Pulsar"
    durability = "fsynced: the journal of the bookie (journalSyncData=true, the default)"
    warms = True
    settings = "standalone, heap 1 GB and direct memory 2 GB, one copy of each entry; the Java client"

    def __init__(self) -> None:
        self._server: Server | None = None
        self._client: subprocess.Popen[bytes] | None = None
        self._log: Any = None

    def bring(self) -> str:
        """The jars of the broker and of the client, with Maven."""
        jars(JARS, COORDINATES, timeout_s=_MAVEN_S)
        return f"Pulsar {VERSION} and its Java client"

    def start(self, folder: Path) -> None:
        """Start a standalone and the client that runs the loads."""
        broker, web = free_port(), free_port()
        (folder / "standalone.conf").write_text(_SETTINGS.format(broker=broker, web=web), encoding="utf-8")
        (folder / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
        logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
        common = [java(), *_OPENED, logging, "-cp", f"{JARS}/*"]
        memory = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g"]
        starter = ["org.apache.pulsar.PulsarStandaloneStarter", "--config", str(folder / "standalone.conf")]
        starter += ["--no-functions-worker", "--no-stream-storage", "--bookkeeper-port", str(free_port())]
        starter += ["--bookkeeper-dir", str(folder / "bookkeeper"), "--metadata-dir", str(folder / "metadata")]
        self._server = Server([common[0], *memory, *common[1:], *starter], folder / "log", folder)
        self._server.wait_for_port(web)
        self._wait_until_ready(f"http://127.0.0.1:{web}/admin/v2/namespaces/public")
        self._log = (folder / "client.log").open("wb")
        addresses = [f"pulsar://127.0.0.1:{broker}", f"http://127.0.0.1:{web}"]
        self._client = subprocess.Popen(
            [common[0], "-Xmx2g", *common[1:], str(PROGRAM), *addresses],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def _wait_until_ready(self, address: str) -> None:
        assert self._server is not None
        deadline = time.monotonic() + _START_S
        while True:
            self._server.check()
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310  # a fixed http address
                    if "public/default" in json.load(answer):
                        return
            except (OSError, urllib.error.URLError):
                pass
            if time.monotonic() > deadline:
                raise NotStartedError(f"Pulsar has no namespace after {_START_S:g} s.\n{self._server.tail()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End the client, then the server."""
        if self._client is not None:
            assert self._client.stdin is not None
            assert self._client.stdout is not None
            self._client.stdin.close()
            end(self._client)
            self._client.stdout.close()
            self._log.close()
            self._client = None
        if self._server is not None:
            self._server.end()
            self._server = None

    def is_durable(self, load: Load) -> bool:
        """Always."""
        del load
        return True

    def pids(self) -> list[int]:
        """The server's and the client's."""
        found = [self._server.pid] if self._server is not None else []
        return [*found, self._client.pid] if self._client is not None else found

    def run(self, load: Load) -> Outcome:
        """Hand the load to the client, and wait for what it says."""
        assert self._client is not None, "it was not started"
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(msgspec.json.encode(load) + b"\n")
        self._client.stdin.flush()
        for line in self._client.stdout:
            if line.startswith(_MARK.encode()):
                found = json.loads(line[len(_MARK) :])
                if "error" in found:
                    raise RuntimeError(f"The load {load.kind} failed in Pulsar's client: {found['error']}")
                return msgspec.convert(found, Outcome)
        raise NotStartedError("Pulsar's client has ended; its folder has the log.")


__all__ = ["Pulsar"]
