"""Others at work while a topic is compacted or rows are erased, and what a compaction takes for a key."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.errors import SchemaMismatch
from txnlog.maintenance import compaction, erasure, rewriting
from txnlog.testing import ManualClock

START = 1_700_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR


def shown(ns, topic="t"):
    t = ns.snapshot().read(topic, include_metadata=True)
    return sorted(zip(*[t.column(n).to_pylist() for n in ("_partition", "_offset", "id", "name")], strict=False))


def compacted(ns, **kw):
    ns.enable("holes")
    ns.create_topic("t", SCHEMA, key="id", cleanup_policy="compact", **kw)
    return ns


def before_the_first_rewrite(monkeypatch, act: Callable[[], object]) -> None:
    """Let a compaction read what it rewrites, then ``act`` once, then let it go on."""
    real, todo = rewriting.rewrite, [act]

    def late(*args):
        if todo:
            todo.pop()()
        return real(*args)

    monkeypatch.setattr(compaction, "rewrite", late)


def test_an_erasure_meanwhile_leaves_the_newest_message_that_is_left(memory: Place, monkeypatch) -> None:
    """Sequentially, in either order, the message "old" is there at the end: its reason went."""
    ns = compacted(memory.open())
    other = memory.open()
    ns.produce("t", [{"id": 1, "name": "old"}])
    ns.produce("t", [{"id": 1, "name": "wrong"}])
    before_the_first_rewrite(monkeypatch, lambda: other.erase("t", pc.field("name") == "wrong"))
    ns.compact("t")
    assert [row[2:] for row in shown(ns)] == [(1, "old")]


def test_the_share_of_what_is_new_is_that_of_the_topic(memory: Place, monkeypatch) -> None:
    """Segments too big to be merged, more messages than a pass takes, a bound on each call: it comes to an end."""
    monkeypatch.setattr(compaction, "_MOST_KEYS", 10)
    ns = compacted(memory.open())
    for n in range(20):
        ns.produce("t", [{"id": n * 100 + k, "name": "x"} for k in range(10)])
    ns.produce("t", [{"id": 500, "name": "new"}] * 10)
    for _ in range(40):
        ns.maintain(max_bytes=1, target_size_bytes=64)
    assert sum(row[2] == 500 for row in shown(ns)) == 1


def test_a_key_keeps_its_type_while_its_topic_is_compacted(memory: Place, monkeypatch) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic(
        "t", pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.string())]), key="id", cleanup_policy="compact"
    )
    ns.produce("t", [{"id": 1, "name": "old"}])
    ns.produce("t", [{"id": 1, "name": "wrong"}])
    refused = []

    def widen() -> None:
        with pytest.raises(SchemaMismatch, match="keeps its type"):
            ns.alter_topic("t", widen={"id": pa.int64()})
        refused.append("id")

    before_the_first_rewrite(monkeypatch, widen)
    ns.compact("t")
    assert refused == ["id"]
    assert [row[2:] for row in shown(ns)] == [(1, "wrong")]


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", "a", "A", "a\u0301", "\u00e1", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", None]),
    "int8": (pa.int8(), [-128, 0, 127, None]),
    "int16": (pa.int16(), [-1, 0, 1]),
    "int32": (pa.int32(), [-1, 0, 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, 0, 2**53, 2**53 + 1]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys(memory: Place, kind: str) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic(
        "t",
        pa.schema([pa.field("id", KEYS[kind][0]), pa.field("name", pa.string())]),
        partitions=2,
        key="id",
        cleanup_policy="compact",
    )
    for turn in range(3):
        for p in (0, 1):
            ns.produce("t", [{"id": k, "name": f"{turn}"} for k in KEYS[kind][1]], partition=p)
    ns.optimize("t")
    ns.compact("t")
    left = shown(ns)
    for p in (0, 1):
        for k in KEYS[kind][1]:
            assert [r[3] for r in left if r[0] == p and r[2] == k] == (["2"] if k is not None else ["0", "1", "2"])


@pytest.mark.parametrize("name", ["_offset", "_txn", "_timestamp", "_version", "_partition", "_row"])
def test_names_of_metadata_are_refused(memory: Place, name: str) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field(name, pa.int64())])
    with pytest.raises(SchemaMismatch, match="reserved for metadata"):
        memory.open().create_topic("t", columns, key="id")


@pytest.mark.parametrize("name", ["row", "offset"])
def test_names_like_those_of_metadata_are_those_of_columns(memory: Place, name: str) -> None:
    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("t", pa.schema([pa.field("id", pa.int64()), pa.field(name, pa.int64())]), key="id")
    ns.produce("t", [{"id": n, name: n} for n in range(5)])
    ns.erase("t", pc.field(name) == 3)
    assert sorted(ns.snapshot().read("t").column(name).to_pylist()) == [0, 1, 2, 4]


def test_backup_restore_fsck(memory: Place, tmp_path) -> None:

    clock = ManualClock(START)
    ns = compacted(memory.open(clock=clock))
    for turn in range(4):
        ns.produce("t", [{"id": k, "name": f"{turn}"} for k in range(10)])
    ns.compact("t")
    ns.checkpoint()
    ns.produce("t", [{"id": 3, "name": None}])
    ns.compact("t")
    ns.erase("t", pc.field("id") > 5)
    ns.erase("t", pc.field("id") >= 0)
    assert shown(ns) == []
    ns.checkpoint()
    for level in ("quick", "full", "deep"):
        report = ns.fsck(level)
        assert not [f for f in report.findings if f.severity != "note"], (level, report.findings)
    ns.produce("t", [{"id": 3, "name": "z"}])
    r = memory.open(mode="r")
    assert shown(r) == shown(ns) == [(0, 41, 3, "z")]
    assert r.snapshot().end_offsets("t") == {0: 42}
    ns.delete_records("t", {0: 20}, allow_unacknowledged=True)
    clock.advance(10 * DAY)
    ns.maintain()
    ns.delete_records("t", {0: 41}, allow_unacknowledged=True)
    ns.optimize("t")
    ns.compact("t")
    assert shown(memory.open(mode="r")) == [(0, 41, 3, "z")]
    assert not [f for f in ns.fsck("deep").findings if f.severity != "note"]


def test_unacknowledged_holes_grow_no_receive(memory: Place) -> None:
    """A consumer that acknowledges at the end, in a topic of which every second message is gone."""
    took = {}
    for n in (10_000, 40_000):
        ns = memory.open(namespace=f"n{n}")
        ns.enable("holes")
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", pa.table({"id": list(range(n)), "name": ["x"] * n}, schema=SCHEMA))
        ns.erase("orders", pc.bit_wise_and(pc.field("id"), pc.scalar(1)) == 1)
        with ns.consumer("orders", subscription="s") as c:
            began = time.process_time()
            count = 0
            while m := c.receive(100, timeout_ms=0):
                count += len(m)
            took[n] = (time.process_time() - began) / count
    assert took[40_000] < 2 * took[10_000], took


def test_a_file_that_gets_its_entry_meanwhile_is_not_forgotten(memory: Place, monkeypatch) -> None:
    """The file is on the store all the time, named by nothing at first, by a commit at the end."""
    import threading

    from txnlog.format import keys
    from txnlog.store import ForwardingStore

    go, waits = threading.Event(), threading.Event()

    class Slow(ForwardingStore):
        armed = False

        def create(self, key, *args, **kwargs):
            if (Slow.armed and keys.kind_of(key) == "entry") or (Slow.armed and "_log/" in key):
                waits.set()
                assert go.wait(20)
            return super().create(key, *args, **kwargs)

    ns = memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    other = memory.open(wrap=Slow)
    other.produce("orders", rows(2))
    Slow.armed = True
    thread = threading.Thread(target=lambda: other.produce("orders", rows(7)))
    thread.start()
    assert waits.wait(20)
    folder = keys.segments_prefix("orders")
    there = {info.key for info in ns._connection.store.list(folder)}
    assert len(there) == 3, "the file of the row 7 is there"
    assert not ns.erase("orders", pc.field("id") == 7, dry_run=True).is_complete
    real = erasure._Erasure._losing

    def between(self, visible, known):
        found = real(self, visible, known)
        if not go.is_set():
            go.set()
            thread.join()
            ns.snapshot()  # as another thread of the process asks
        return found

    monkeypatch.setattr(erasure._Erasure, "_losing", between)
    done = ns.erase("orders", pc.field("id") == 7)
    assert 7 in [row[2] for row in shown(ns, "orders")]
    assert not done.is_complete, done
