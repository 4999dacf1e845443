"""txnlog itself, on the local disk and on an S3 server; consumers are processes of their own."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

import txnlog
from benchmarks.peers.load import Load, Outcome, in_threads, is_aborted
from benchmarks.peers.peer import Peer
from benchmarks.peers.values import random_values
from benchmarks.peers.watching import Watch, paced
from tools.install import ROOT
from tools.servers import end, s3_server
from txnlog.api.namespace import Namespace
from txnlog.results import Committed

NAMESPACE = "bench"
_MANY = 64
"""From so many under way on, one thread submits them with ``commit_async``."""

_PATIENCE_S = 60.0
_BATCH = 50_000


class Txnlog(Peer):
    """A namespace in a folder."""

    name = "txnlog"
    durability = "fsynced: segment and log entry, each file and its folder (the default; there is no other)"
    settings = "one handle; up to 8 threads each commit one after the other, from 64 in flight on with commit_async"

    def __init__(self) -> None:
        self._ns: Namespace | None = None
        self._resources = contextlib.ExitStack()
        self._root = ""
        self._options: dict[str, Any] | None = None
        self._topics: set[str] = set()

    def bring(self) -> str:
        """Nothing is missing."""
        version = importlib.metadata.version("txnlog")
        return f"txnlog {version}, Python {platform.python_version()}, PyArrow {pa.__version__}"

    def start(self, folder: Path) -> None:
        """Make a namespace."""
        self._root = str(folder / "root")
        self._open()

    def _open(self) -> None:
        self._ns = txnlog.open(self._root, namespace=NAMESPACE, create=True, storage_options=self._options)

    def stop(self) -> None:
        """Close the handle."""
        if self._ns is not None:
            self._ns.close()
            self._ns = None
        self._resources.close()

    def is_durable(self, load: Load) -> bool:
        """Always, on a disk."""
        del load
        return self._options is None

    def run(self, load: Load) -> Outcome:
        """Run a load."""
        ns = self._namespace()
        if load.topic not in self._topics:
            ns.create_topic(load.topic, partitions=load.partitions)
            self._topics.add(load.topic)
        match load.kind:
            case "commit" | "fill":
                return self._in_flight(load) if load.producers >= _MANY else self._commit(load)
            case "read":
                with self._reader(load) as lines:
                    return msgspec.json.decode(lines.readline(), type=Outcome)
            case "pipeline":
                return self._pipeline(load)
            case "deliver" | "open":
                return self._watched(load)

    def _namespace(self) -> Namespace:
        assert self._ns is not None, "it was not started"
        return self._ns

    def _commit(self, load: Load) -> Outcome:
        ns = self._namespace()
        rows = rows_of(load)

        def transact(_thread: int, number: int) -> None:
            txn = ns.begin()
            for partition in range(load.partitions):
                txn.produce(load.topic, rows, partition=partition)
            if is_aborted(load, number):
                txn.flush()  # so that what is aborted lies on the disk
                txn.abort()
            else:
                txn.commit()

        return in_threads(load, transact, load.partitions * load.messages)

    def _in_flight(self, load: Load) -> Outcome:
        ns = self._namespace()
        rows = rows_of(load)
        found: list[float] = []
        waiting: deque[Future[Committed]] = deque()
        started = time.perf_counter()
        deadline = started + load.seconds
        count = 0

        def note(began: float, _: Future[Committed]) -> None:
            found.append((time.perf_counter() - began) * 1e3)

        while time.perf_counter() < deadline and (not load.transactions or count < load.transactions):
            began = time.perf_counter()
            txn = ns.begin()
            for partition in range(load.partitions):
                txn.produce(load.topic, rows, partition=partition)
            future = txn.commit_async()
            # Noted when it is committed, not when this thread asks for it.
            future.add_done_callback(partial(note, began))
            waiting.append(future)
            count += 1
            if len(waiting) >= load.producers:
                waiting.popleft().result(_PATIENCE_S)
        for future in waiting:
            future.result(_PATIENCE_S)
        seconds = time.perf_counter() - started
        rows_each = load.partitions * load.messages
        return Outcome(seconds=seconds, transactions=count, rows=count * rows_each, latencies_ms=list(found))

    def _pipeline(self, load: Load) -> Outcome:
        ns = self._namespace()
        target = f"{load.topic}-{uuid.uuid4().hex[:8]}"
        ns.create_topic(target)
        consumer = ns.consumer(load.topic, target)
        messages = consumer.receive(_BATCH, timeout_ms=10_000)
        rows, latencies = 0, list[float]()
        started = time.perf_counter()
        while rows < load.rows and time.perf_counter() < started + load.seconds:
            began = time.perf_counter()
            # Without transactions each batch is produced, then acknowledged: two commits that may tear.
            txn = ns.begin() if load.transactional else None
            while True:
                if len(messages):
                    made = messages.table.select(["value"])
                    if txn is not None:
                        txn.produce(target, made)
                        txn.acknowledge(messages)
                    else:
                        ns.produce(target, made)
                        consumer.acknowledge(messages)
                    rows += len(messages)
                if rows >= load.rows or time.perf_counter() >= began + load.cycle_ms / 1e3:
                    break
                messages = consumer.receive(_BATCH, timeout_ms=10)
            if txn is not None:
                txn.commit()
            latencies.append((time.perf_counter() - began) * 1e3)
            if rows < load.rows:
                messages = consumer.receive(_BATCH, timeout_ms=10)
        seconds = time.perf_counter() - started
        consumer.close()
        return Outcome(seconds=seconds, rows=rows, transactions=len(latencies), latencies_ms=latencies)

    def _watched(self, load: Load) -> Outcome:
        ns = self._namespace()
        watch = Watch(load)
        left_open = []

        def listen(lines: IO[bytes]) -> None:
            for line in lines:
                watch.arrived(*json.loads(line))

        def commit(value: bytes) -> None:
            txn = ns.begin()
            txn.produce(load.topic, [{"value": watch.stamped(value)}])
            txn.commit()

        def begin_one() -> None:
            txn = ns.begin(timeout_ms=600_000)
            txn.produce(load.topic, [{"value": watch.unstamped()}])
            txn.flush()
            left_open.append(txn)

        with self._reader(load) as lines:
            assert lines.readline(), "the reader has not begun"
            reader = threading.Thread(target=listen, args=(lines,), daemon=True)
            reader.start()
            paced(watch, commit, begin_one, lambda: left_open.pop().commit())
        reader.join(_PATIENCE_S)
        return watch.outcome()

    @contextlib.contextmanager
    def _reader(self, load: Load) -> Iterator[IO[bytes]]:
        """What a consumer in a process of its own says; it ends when nobody needs it."""
        command = [sys.executable, "-m", "benchmarks.peers.txnlog_reader"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            asked = {"root": self._root, "options": self._options, "load": load}
            process.stdin.write(msgspec.json.encode(asked) + b"\n")
            process.stdin.flush()
            yield process.stdout
        finally:
            process.stdin.close()  # which ends it
            try:
                process.wait(_PATIENCE_S if load.kind == "read" else 5)
            except subprocess.TimeoutExpired:
                end(process)


class TxnlogOnS3(Txnlog):
    """The same on an S3 server on loopback."""

    name = "txnlog on S3"
    durability = "as the S3 server's: ministack, a server for tests, keeps objects in memory"
    settings = "ministack on loopback, one process of Python; it takes most of the time of a commit"

    def __init__(self) -> None:
        super().__init__()
        self._server: int | None = None

    def pids(self) -> list[int]:
        """The S3 server's."""
        return [self._server] if self._server is not None else []

    def start(self, folder: Path) -> None:
        """Start the server, and make a namespace in it."""
        del folder
        server = self._resources.enter_context(s3_server())
        self._server = server.pid
        self._root, self._options = server.url("lake"), server.storage_options
        self._open()


def rows_of(load: Load) -> Any:
    """What a transaction writes to each partition: dicts where they are few, else an Arrow table."""
    values = random_values(load)
    if load.messages < 10:
        return [{"value": values[number % len(values)]} for number in range(load.messages)]
    return pa.table({"value": pa.array([values[n % len(values)] for n in range(load.messages)], pa.binary())})


__all__ = ["NAMESPACE", "Txnlog", "TxnlogOnS3"]
