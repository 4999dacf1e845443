"""The columns of a row, the earliest offset and the ends, as a real client gives them at any version."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pyarrow as pa
import pytest

import txnlog
from tests.by_hand import append, compact, lay
from tests.client.support import FakeRuntime, trusting_probe
from txnlog.api.namespace import Namespace
from txnlog.client import session_owner
from txnlog.format.actions import Abort, Begin, DeleteRecords
from txnlog.log import root_log
from txnlog.testing import ManualClock

START_MS = 1_767_225_600_000
SCHEMA = pa.schema([pa.field("name", pa.string())])
STORED = pa.schema(
    [
        *SCHEMA,
        pa.field("_txn", pa.int64(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
        pa.field("_timestamp", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


@pytest.fixture
def ns(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    monkeypatch.setattr(session_owner, "Runtime", FakeRuntime)
    monkeypatch.setattr(root_log, "probe", trusting_probe)
    name = f"memory://rows-{abs(hash(request.node.nodeid))}"
    with txnlog.open(name, "sales", create=True, clock=ManualClock(START_MS)) as ns:
        ns.create_topic("orders", SCHEMA, partitions=1)
        yield ns


def read(ns: Namespace, version: int | None = None, level: str = "read_committed") -> list[dict]:
    return ns.snapshot(version).read("orders", include_metadata=True, isolation_level=level).to_pylist()


@pytest.mark.clause("P-234")
def test_every_column_of_a_row_has_the_value_of_the_table(ns):
    done = ns.produce("orders", [{"name": "ada"}, {"name": "eve"}])
    txn = ns.begin()
    txn.produce("orders", [{"name": "kim"}])
    txn.flush()
    time = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
    shared = {"_partition": 0, "_timestamp": time, "_txn_id": done.txn_id.to_bytes(), "_version": done.version}
    visible = [{"name": name, "_offset": offset} | shared for offset, name in enumerate(("ada", "eve"))]
    assert read(ns) == visible
    pending = {"name": "kim", "_partition": 0, "_offset": None, "_timestamp": None, "_version": None}
    pending |= {"_txn_id": txn.id.to_bytes(), "_txn_state": "OPEN"}
    uncommitted = [row | {"_txn_state": "COMMITTED"} for row in visible]
    assert read(ns, level="read_uncommitted") == [*uncommitted, pending]
    txn.abort()
    assert read(ns, level="read_uncommitted") == [*uncommitted, pending | {"_txn_state": "ABORTED"}]


@pytest.mark.clause("P-234")
def test_rows_of_a_merged_segment_that_is_pending_or_aborted_are_those_of_its_own_transaction(ns):
    done = ns.produce("orders", [{"name": "ada"}])
    number, txn = ns._connection.reserve_block(2)[:2]
    time = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
    row = {"name": "ada", "_txn": done.txn_id.number, "_version": done.version, "_timestamp": time}
    merged = lay(ns, "orders", number, pa.Table.from_pylist([row], STORED), txn, {0: 1}, compacted=True)
    for action, state in ((merged, "OPEN"), (Abort(txn), "ABORTED")):
        append(ns, *([Begin(txn), action] if state == "OPEN" else [action]))
        assert read(ns) == read(ns, done.version)
        first, second = read(ns, level="read_uncommitted")
        assert (first["_offset"], first["_txn_state"]) == (0, "COMMITTED")
        own = {"_offset": None, "_timestamp": None, "_version": None, "_txn_id": ns._connection.txn_id(txn).to_bytes()}
        assert second == first | own | {"_txn_state": state}


@pytest.mark.clause("P-235")
def test_the_earliest_offset_is_the_newest_at_any_version(ns):
    before = ns.produce("orders", [{"name": "ada"}, {"name": "eve"}]).version
    assert [row["_offset"] for row in read(ns, before)] == [0, 1]
    topic = ns._connection.topic_record("orders").id
    after = append(ns, DeleteRecords(topic, ((0, 1),)))
    for version in (before, after):
        assert [row["_offset"] for row in read(ns, version)] == [1]
        assert [row["_offset"] for row in read(ns, version, "read_uncommitted")] == [1]


@pytest.mark.clause("P-236")
def test_the_end_at_a_version_counts_replaced_segments(ns):
    assert ns.snapshot().end_offsets("orders") == {0: 0}
    versions = [ns.produce("orders", [{"name": name}]).version for name in ("ada", "eve")]
    last = ns.produce("orders", [{"name": "kim"}]).version
    numbers = [item.number for item in ns.snapshot(versions[1]).plan("orders").segments]
    merged = compact(ns, "orders", numbers, 0)
    ends = [ns.snapshot(version).end_offsets("orders")[0] for version in (*versions, last, merged)]
    assert ends == [1, 2, 3, 3]
    assert [row["name"] for row in read(ns, versions[1])] == ["ada", "eve"]
