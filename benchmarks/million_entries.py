"""A namespace of a million entries: what opening, reading, maintaining and backing it up takes.

The log is written straight into a local folder, entry by entry, in the bytes of the codec; a client applies the entries
and makes the checkpoints. An entry is one commit of eight rows, a second after the one before, so a million of them are
eleven and a half days, of whose outcomes the log keeps seven. Every 64 small segments are merged into one, and every 64
of these into a large one. Only segments that the newest version shows have files.

    python -m benchmarks.million_entries [--entries 1000000] [--folder DIR]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import pyarrow as pa

import txnlog
from benchmarks.report import scratch
from txnlog.common.format_limits import ENTRIES_PER_FOLDER
from txnlog.data.segment_file import encode
from txnlog.format.actions import (
    AnyAction,
    Begin,
    Bound,
    Close,
    Commit,
    Header,
    Replace,
    Reserve,
    Segment,
    Share,
    SliceRows,
)
from txnlog.format.actions import Vacuum as VacuumAction
from txnlog.format.codec import decode_entry, encode_action, encode_entry
from txnlog.format.keys import entry_key, segment_key
from txnlog.log.follower import Follower

ROWS: Final = 8
MERGED: Final = 64
BLOCK: Final = 65_536
WRITER: Final = "6f1c0d5e2b7a49c3a1d8e4f09b3c7a52"
NAMED: Final = f"{WRITER} bench host-7:4711 txnlog/0.1.0"
CHECKPOINT: Final = 1_000
TOPIC: Final = 1
SCHEMA: Final = pa.schema([("customer", pa.string()), ("amount", pa.float64())])


class Part(NamedTuple):
    """A segment: its number, and the commits whose rows it has, from the first to behind the last."""

    number: int
    first: int
    end: int


class Step(NamedTuple):
    """What an entry does: a commit, or a merge of segments; ``reserved`` is the first number of a new block."""

    txn: int
    made: Part
    removed: tuple[Part, ...] = ()
    reserved: int | None = None


def steps(count: int, numbers_from: int) -> Iterator[Step]:
    """What so many entries do, with numbers from this one on."""
    number = reserved = numbers_from
    commits = 0
    small: list[Part] = []
    medium: list[Part] = []
    for _ in range(count):
        block = None
        if number + 4 > reserved:
            number = block = reserved
            reserved += BLOCK
        if len(small) == MERGED or len(medium) == MERGED:
            parts = tuple(small if len(small) == MERGED else medium)
            made = Part(number + 1, parts[0].first, parts[-1].end)
            if parts[0] in small:
                small = []
                medium.append(made)
            else:
                medium = []
        else:
            parts = ()
            made = Part(number + 1, commits, commits + 1)
            small.append(made)
            commits += 1
        yield Step(number, made, parts, block)
        number += 2


class Rows:
    """The rows of commits, and by commit its transaction, version and time."""

    def __init__(self, begin_ms: int, count: int) -> None:
        self._begin_ms = begin_ms
        self.txns = np.zeros(count, np.int64)
        self.versions = np.zeros(count, np.int64)

    def shared(self, part: Part) -> pa.Table:
        """As a client stores those of small commits."""
        txns = np.repeat(self.txns[part.first : part.end], ROWS)
        data = self._plain(part).append_column(pa.field("_txn", pa.int64(), nullable=False), pa.array(txns))
        partitions = pa.array(np.zeros(len(txns), np.int32))
        return data.append_column(pa.field("_partition", pa.int32(), nullable=False), partitions)

    def _plain(self, part: Part) -> pa.Table:
        numbers = np.arange(part.first * ROWS, part.end * ROWS)
        customers = pa.array([f"customer-{number % 5_000}" for number in numbers.tolist()])
        return pa.table([customers, pa.array(numbers % 997 / 4)], schema=SCHEMA)

    def merged(self, part: Part) -> pa.Table:
        """As a merge stores them."""
        commits = np.repeat(np.arange(part.first, part.end), ROWS)
        times = (self._begin_ms + self.versions[commits] * 1_000) * 1_000
        data = self._plain(part)
        for name, values in (("_txn", pa.array(self.txns[commits])), ("_version", pa.array(self.versions[commits]))):
            data = data.append_column(pa.field(name, pa.int64(), nullable=False), values)
        kind = pa.timestamp("us", "UTC")
        return data.append_column(pa.field("_timestamp", kind, nullable=False), pa.array(times, pa.int64()).cast(kind))


class Stopped(NamedTuple):
    """A clock that stands still."""

    ms: int

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self.ms


class Entries:
    """Writes the entries of a log, one every ``step_ms``, past any client; a follower applies them.

    Attributes:
        version: of the next one.
        checkpoint: the newest, which headers name.
    """

    def __init__(self, path: Path, begin_ms: int, follower: Follower, step_ms: int = 1_000) -> None:
        self._path = path
        self._step_ms = step_ms
        self._follower = follower
        self._begin_ms = begin_ms
        self.version = follower.version + 1
        self.checkpoint: int | None = None
        self._digest = follower.state.head.digest

    def append(self, actions: list[AnyAction]) -> None:
        """The next entry."""
        time_ms = self._begin_ms + self.version * self._step_ms
        header = Header(self.version, WRITER, time_ms, self._digest, self.checkpoint)
        data = encode_entry(header, [encode_action(action) for action in actions])
        file = f"{self._path}/{entry_key(self.version)}"
        if self.version % ENTRIES_PER_FOLDER == 0:
            os.makedirs(os.path.dirname(file))
        with open(file, "xb", buffering=0) as stored:
            stored.write(data)
        entry = decode_entry(data, self.version)
        self._digest = entry.digest
        self._follower.apply_entry(entry)
        self.version += 1


def build(path: Path, count: int) -> None:
    """A namespace with so many entries."""
    begin_ms = int(time.time() * 1_000) - (count + 60) * 1_000
    shutil.rmtree(path.parent, ignore_errors=True)
    with txnlog.open(path, create=True, client_info=False, clock=Stopped(begin_ms)) as ns:
        ns.create_topic("orders", SCHEMA)
        first = ns.snapshot().version + 1
        numbers_from = ns._connection.next_number
        follower, checkpointer = ns._connection.follower, ns._connection.session.checkpointer
        live, last = _live(count - first, first, numbers_from)
        rows = Rows(begin_ms, count)
        log = Entries(path, begin_ms, follower)
        for step in steps(count - first, numbers_from):
            log.append(_actions(path, log.version, step, rows, live, last))
            if log.version % CHECKPOINT == 0:
                log.checkpoint = checkpointer.make().version
            if log.version % 20_000 == 0:
                print(f"{log.version:,} entries", file=sys.stderr, flush=True)


def _live(count: int, first: int, numbers_from: int) -> tuple[set[int], int]:
    """The numbers of segments that are there at the end, and the version of the last merge."""
    numbers: set[int] = set()
    last = 0
    for version, step in enumerate(steps(count, numbers_from), first):
        numbers.add(step.made.number)
        numbers.difference_update(part.number for part in step.removed)
        last = version if step.removed else last
    return numbers, last


def _actions(path: Path, version: int, step: Step, rows: Rows, live: set[int], last: int) -> list[AnyAction]:
    """The lines of an entry."""
    actions: list[AnyAction] = []
    if step.reserved is not None:
        actions.append(Reserve(NAMED, step.reserved, BLOCK))
        if step.reserved >= 3 * BLOCK:
            actions.append(Close(step.reserved - 2 * BLOCK))
    count = (step.made.end - step.made.first) * ROWS
    if step.removed:
        segment = _segment(path, step, lambda: rows.merged(step.made), count, live, txn=step.txn)
        removed = tuple(sorted(part.number for part in step.removed))
        actions += [Begin(step.txn), segment, Replace(TOPIC, step.txn, removed, (step.made.first * ROWS,))]
    else:
        rows.txns[step.made.first], rows.versions[step.made.first] = step.txn, version
        segment = _segment(path, step, lambda: rows.shared(step.made), count, live, txn=None)
        actions += [segment, Commit(step.txn, "8cad7b9738df99c4", (Share(step.made.number, 0, ROWS),))]
    if version == last + 1:
        actions.append(VacuumAction(last))
    return actions


def _segment(
    path: Path, step: Step, data: Callable[[], pa.Table], count: int, live: set[int], txn: int | None
) -> Segment:
    """The line of a segment; only one that is there at the end has a file."""
    number = step.made.number
    file = f"{number:032x}.parquet"
    size_bytes, checksum = 700, "crc32:00000000"
    statistics: dict[str, tuple[Bound, Bound, int | None]] = {"customer": ("customer-1", "customer-9", 0)}
    if number in live:
        made = encode(data())
        size_bytes, checksum, statistics = made.size_bytes, made.checksum, made.statistics
        target = path / segment_key("orders", number, file)
        target.parent.mkdir(parents=True)
        target.write_bytes(made.data)
    return Segment(
        number,
        TOPIC,
        file,
        count,
        size_bytes,
        checksum,
        (SliceRows(0, count),),
        txn=txn,
        compacted=txn is not None,
        statistics=statistics,
    )


# --- what is measured -------------------------------------------------------------------------------------------------


def measured(name: str, path: str) -> dict[str, Any]:
    """Carry out one step in this process, and say what it took."""
    begun, used = time.perf_counter(), time.process_time()
    more = STEPS[name](path)
    seconds, computed = time.perf_counter() - begun, time.process_time() - used
    # Not ru_maxrss: that begins with what the process had that started this one.
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (peak,) = (int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))
    return {"seconds": round(seconds, 2), "of them computing": round(computed, 2), "MiB of memory": peak} | more


def _requests(ns: Any) -> dict[str, Any]:
    return {"requests": sum(ns.store_requests.values())}


def _open(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {"version": ns.snapshot().version, **_requests(ns)}


def _count_rows(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {
            "rows": sum(batch.num_rows for batch in ns.snapshot().scan("orders", columns=["amount"])),
            **_requests(ns),
        }


def _newest_rows(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        snapshot = ns.snapshot()
        (end,) = snapshot.end_offsets("orders").values()
        return {"rows": snapshot.read("orders", offsets={0: (end - 1_000, end)}).num_rows, **_requests(ns)}


def _commit(path: str) -> dict[str, Any]:
    with txnlog.open(path) as ns:
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            ns.produce("orders", [{"customer": "c", "amount": 1.0}])
            times.append(time.perf_counter() - begun)
        return {"median ms of a commit": round(sorted(times)[100] * 1e3, 1), **_requests(ns)}


def _history(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {"entries": len(ns.history(1_000)), **_requests(ns)}


def _metrics(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {"bytes": len(ns.metrics()), **_requests(ns)}


def _maintain(path: str) -> dict[str, Any]:
    with txnlog.open(path) as ns:
        ns.maintain()
        return _requests(ns)


def _backup(path: str) -> dict[str, Any]:
    made = txnlog.backup(path, f"{path}-backup")
    return {"version": made.version}


def _fsck(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {"findings": len(ns.fsck("quick").findings), **_requests(ns)}


def _fsck_full(path: str) -> dict[str, Any]:
    with txnlog.open(path, mode="r") as ns:
        return {"findings": len(ns.fsck("full").findings), **_requests(ns)}


STEPS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "open to read": _open,
    "read all rows of a column": _count_rows,
    "read the newest thousand rows": _newest_rows,
    "history of a thousand entries": _history,
    "metrics": _metrics,
    "open to write, and 200 commits": _commit,
    "maintain": _maintain,
    "maintain again": _maintain,
    "first backup": _backup,
    "backup again": _backup,
    "fsck, quick": _fsck,
    "fsck, full": _fsck_full,
}


def sizes(path: Path) -> dict[str, str]:
    """Objects and bytes of a namespace, by kind."""
    found: dict[str, list[int]] = {"entries": [], "checkpoints": [], "segments": []}
    for folder, _, names in os.walk(path):
        kind = "checkpoints" if "checkpoints" in folder else "entries" if "_log" in folder else "segments"
        found[kind] += [os.stat(os.path.join(folder, name)).st_size for name in names]
    return {kind: f"{len(all_of):,} objects, {sum(all_of) / 2**20:,.1f} MiB" for kind, all_of in found.items()}


@click.command()
@click.option("--entries", default=1_000_000, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Where to keep it; a new one is removed at the end.")
@click.option("--step", help="Carry out one step on a namespace that is there.")
def main(entries: int, folder: Path | None, step: str | None) -> None:
    """Build a namespace and measure it, each step in a process of its own."""
    if step is not None:
        print(json.dumps(measured(step, str(folder))))
        return
    with scratch() as temporary:
        path = (folder or temporary) / "lake" / "shop"
        begun = time.perf_counter()
        build(path, entries)
        print(f"built in {time.perf_counter() - begun:,.0f} s: {sizes(path)}", flush=True)
        for name in STEPS:
            command = [sys.executable, "-m", "benchmarks.million_entries", "--folder", str(path), "--step", name]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            print(f"{name}: {done.stdout.strip() or done.stderr[-2_000:]}", flush=True)
        print(f"at the end: {sizes(path)}", flush=True)


if __name__ == "__main__":
    main()
