"""A consumer of txnlog in a process of its own: a load comes as a line, what it finds goes out in lines of JSON.

For a load ``read`` one line with the outcome. For the others a line when it listens, then one for each message: the
time in it and the time of its arrival, both of the machine's monotonic clock. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import tempfile
import threading
import time
from typing import Any

import msgspec
import pyarrow as pa

import txnlog
from benchmarks.peers.load import Load, Outcome
from txnlog.api.namespace import Namespace

_STAMP = struct.Struct(">q")
_BATCH = 50_000


def main() -> None:
    warm_up()
    asked: dict[str, Any] = json.loads(sys.stdin.readline())
    load = msgspec.convert(asked["load"], Load)
    started = time.perf_counter()
    with txnlog.open(asked["root"], namespace="bench", storage_options=asked["options"]) as ns:
        if load.kind == "read":
            sys.stdout.buffer.write(msgspec.json.encode(read(ns, load, started)) + b"\n")
        else:
            watch(ns, load)


def warm_up() -> None:
    """Import what a process that runs already has imported, as the driver of the other clients has: half a second."""
    with tempfile.TemporaryDirectory() as folder, txnlog.open(folder, namespace="warm", create=True) as ns:
        ns.create_topic("warm")
        ns.produce("warm", [{"value": b"warm"}])
        with ns.consumer("warm", "warm") as consumer:
            consumer.receive()


def read(ns: Namespace, load: Load, started: float) -> Outcome:
    """All messages from the earliest, from opening the namespace to the last one."""
    rows = size = 0
    with ns.consumer(load.topic, f"read-{time.time_ns()}") as consumer:
        while rows < load.rows and time.perf_counter() < started + load.seconds:
            messages = consumer.receive(_BATCH, timeout_ms=1_000)
            rows += len(messages)
            if len(messages):
                size += pa.compute.sum(pa.compute.binary_length(messages.table["value"])).as_py()
    assert size == rows * load.size, "a message of another size was read"
    return Outcome(seconds=time.perf_counter() - started, rows=rows)


def watch(ns: Namespace, load: Load) -> None:
    """Each message as it arrives, until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with contextlib.suppress(BrokenPipeError), ns.consumer(load.topic, f"watch-{time.time_ns()}") as consumer:
        print("[]", flush=True)
        while not ended.is_set():
            messages = consumer.receive(1_000, timeout_ms=100)
            now_ns = time.monotonic_ns()
            for value in messages.table["value"].to_pylist() if len(messages) else []:
                print(json.dumps([_STAMP.unpack_from(value)[0], now_ns]), flush=True)


if __name__ == "__main__":
    main()
