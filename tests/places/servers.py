"""Processes of Spark on loopback: a standalone cluster of two workers, and a Connect server.

Each runs in a session of its own and is ended by its process group; ports are chosen by the operating system.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from tools.java_archive import QUICK
from tools.java_home import find_java_home

HOME = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
"""The one that the whole run has: its archive of classes knows the jars by their place."""
ARCHIVE = os.environ.get("SPARK_SUBMIT_OPTS", "")
"""What drivers find in their environment, for the other processes of Spark."""
START_S = 90
_ANY_PORTS = ("--port", "0", "--webui-port", "0")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_LISTENING = re.compile(r"Spark Connect server started at: \S*:(\d+)")
_REGISTERED = re.compile(r"Registering worker \S+:\d+ with")


@contextlib.contextmanager
def standalone_cluster(folder: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> Iterator[str]:
    """A master and a worker of one core on each host; gives the master's URL once all workers are registered.

    Hosts are addresses of the loopback: Spark runs a speculative copy of a task on another host only.
    """
    with contextlib.ExitStack() as stack:
        log = folder / "master.log"
        master = stack.enter_context(
            _java(folder / "master", log, hosts[0], "org.apache.spark.deploy.master.Master", *_ANY_PORTS)
        )
        url = wait_for(_MASTER, log, master)[0]
        worker = "org.apache.spark.deploy.worker.Worker"
        for number, host in enumerate(hosts):
            place = folder / f"worker{number}"
            own = ["--cores", "1", "--memory", "1g", "--work-dir", str(place / "work"), "--webui-port", "0"]
            stack.enter_context(_java(place, folder / f"worker{number}.log", host, worker, *own, url))
        wait_for(_REGISTERED, log, master, times=len(hosts))
        yield url


@contextlib.contextmanager
def connect_server(folder: Path, conf: Mapping[str, str]) -> Iterator[str]:
    """Spark behind Connect, on two cores; gives the URL for ``remote``."""
    address = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    told = {"spark.master": "local[2]", **conf, **address}
    settings = [argument for name, value in told.items() for argument in ("--conf", f"{name}={value}")]
    main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *settings, "spark-internal"]
    log = folder / "connect.log"
    command = [str(HOME / "bin" / "spark-submit"), *main]
    with process(command, folder, log, environment_of(sys.executable)) as running:
        port = wait_for(_LISTENING, log, running)[0]
        yield f"sc://127.0.0.1:{port}"


@contextlib.contextmanager
def _java(folder: Path, log: Path, host: str, main: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    home = find_java_home()
    assert home is not None, "a Java"
    folder.mkdir(parents=True)
    options = ["-Xmx256m", *QUICK.split(), *ARCHIVE.split(), "-Dspark.master.rest.enabled=false"]
    # As Spark's own scripts have it, else the archive does not fit.
    paths = [str(HOME / "conf"), *map(str, (HOME / "jars").glob("slf4j-api-*.jar")), f"{HOME / 'jars'}/*"]
    java = [str(home / "bin" / "java"), *options, "-cp", ":".join(paths)]
    command = [*java, main, "--host", host, *arguments]
    # Outside of Spark's own scripts a worker does not find the jars of executors without the last one.
    environment = {**environment_of(sys.executable), "SPARK_SCALA_VERSION": "2.13"}
    with process(command, folder, log, environment) as running:
        yield running


def environment_of(python: str) -> dict[str, str]:
    """The environment of a driver that plans with this Python, and has its tasks run with another one.

    Nothing of the tests' own path is in it: Spark would hand it on to the executors, and they would find txnlog there.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    home = {"JAVA_HOME": str(find_java_home()), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**kept, **home, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}


@contextlib.contextmanager
def process(
    command: list[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is ended as a whole."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(10)
            return


def wait_for(pattern: re.Pattern[str], log: Path, running: subprocess.Popen[bytes], times: int = 1) -> list[str]:
    """The first groups of a pattern in a log, once it is there so many times; the process must live that long."""
    deadline = time.monotonic() + START_S
    while True:
        text = log.read_text(errors="replace")
        found = pattern.findall(text)
        if len(found) >= times:
            return found
        assert running.poll() is None, f"it ended with {running.returncode}: {text[-2000:]}"
        assert time.monotonic() < deadline, f"not there after {START_S} s: {text[-2000:]}"
        time.sleep(0.05)
