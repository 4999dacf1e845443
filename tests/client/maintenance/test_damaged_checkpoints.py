"""Checkpoints that are lost, damaged, or made by somebody who means harm: nobody believes or needs them."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalog
from tests.client.support import (
    SCHEMA,
    FaultyStore,
    Place,
    busy,
    from_zero,
    raises,
    read,
    rows,
    run_threads,
)
from txnlog.client import checkpointer
from txnlog.client.checkpointer import Checkpointer
from txnlog.common.ids import TxnId
from txnlog.common.names import parse_namespace_name
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, StoreError
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import decode_manifest
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.follower import Follower
from txnlog.log.log_reader import Log
from txnlog.log.root_log import Root
from txnlog.store.wrappers import PrefixStore

HARMS = ["delete", "flip", "truncate", "empty", "swap"]
COLD = checkpoint_codec.COLD_KINDS
CASES = [(what, harm) for what in ("manifest", "hot") for harm in HARMS] + [(what, "delete") for what in COLD]
CASES.append(("segments", "flip"))


@pytest.fixture
def checkpointed(memory: Place) -> tuple[Any, Any]:
    """A namespace with a checkpoint that headers name, and its raw store."""
    ns = memory.open()
    busy(ns, 1)
    ns.checkpoint()
    ns.produce("orders", rows(5))
    return ns, memory.store()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Warnings]:
    """What was warned of."""
    with caplog.at_level(logging.WARNING, "txnlog"):
        yield Warnings(caplog)


class Warnings:
    """Warnings that were logged since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def take(self) -> list[str]:
        """Them, which are not shown again."""
        found = [record.getMessage() for record in self._caplog.records if record.name == "txnlog.log"]
        self._caplog.clear()
        return found


def _keys(ns: Any, kind: str) -> list[str]:
    base = ns._connection.follower.base
    if kind == "manifest":
        return [f"sales/{keys.manifest_key(base.version)}"]
    return [f"sales/{keys.part_key(part.unique)}" for part in base.runs(kind)]


def _harm(store: Any, key: str, how: str, other: str) -> None:
    data = store.get(key)
    if how == "delete":
        store.delete(key)
    elif how == "flip":
        middle = len(data) // 2
        store.put(key, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif how == "truncate":
        store.put(key, data[: len(data) // 2])
    elif how == "empty":
        store.put(key, b"")
    else:
        store.put(key, store.get(other))


def _compacted(ns: Any) -> None:
    """Several small segments merged, so that there are removals."""
    ns.create_topic("merged", SCHEMA)
    for number in range(3):
        ns.produce("merged", rows(number))
    assert ns.optimize("merged").merged_segments == 3


def _sequenced(ns: Any) -> None:
    """More batches than the state remembers of each producer."""
    producer = ns.producer("archive")
    for number in range(8):
        producer.produce("merged", rows(number))


def _agrees(client: Any) -> None:
    """A handle knows what the entries alone say: hot rows, cold rows, and the rows of every version."""
    zero = from_zero(client)
    follower = client._connection.follower
    for name, table in follower.state.as_tables().items():
        if name not in checkpoint_codec.COLD_KINDS:
            assert table == zero.as_tables()[name], name
    for topic in zero.topics:
        records, removals = follower.segments(topic)
        assert {item.number: item for item in records} == {
            number: item for number, item in zero.segments.items() if item.topic == topic
        }
        assert removals == zero.removals
    for number, outcome in zero.outcomes.items():
        assert follower.outcome(number) == outcome
    for batch in zero.batches.values():
        last = batch.sequence + batch.rows - 1
        assert follower.batches(batch.producer, batch.topic, batch.partition, batch.sequence, last) == [batch]


def _requests(place: Place) -> dict[tuple[str, str], int]:
    """What opening a handle and reading all rows asks of the store."""
    fresh, counting = place.counted(mode="r")
    fresh.snapshot().read("orders")
    return dict(counting.counts())


# --- lost or damaged --------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-127", "P-225", "P-226")
@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("what", "harm", "older"),
    [*((*case, True) for case in CASES), *((what, "delete", False) for what in ("manifest", "segments", "outcomes"))],
)
def test_a_lost_or_damaged_checkpoint_closes_nothing(
    memory: Place, warnings: Warnings, what: str, harm: str, older: bool
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    _compacted(ns)
    first = ns.checkpoint() if older else None
    _sequenced(ns)
    busy(ns, 2, steps=4)
    ns.optimize("orders")
    live = memory.open()
    ns.checkpoint()
    ns.produce("orders", rows(5))
    versions = range(0, ns.snapshot().version + 1, 15)
    expected = [
        ns.snapshot(version).read("orders") if "orders" in ns.snapshot(version).topics() else None
        for version in versions
    ]
    harmed = _keys(ns, what)[-1]
    _harm(store, harmed, harm, _keys(ns, "hot" if what != "hot" else "outcomes")[0])
    live.snapshot()
    live._connection.follower.adopt_checkpoint()
    for mode in ("live", "r", "rw"):
        client = live if mode == "live" else memory.open(mode=mode)
        _agrees(client)
        if client is not live or what != "hot":
            base = client._connection.follower.base
            assert (None if base is None else base.version) == first
            (warning,) = warnings.take()
            # A flipped bit of a manifest may lead to a part that is not there.
            assert (
                "/sales/_log/checkpoints/" if (what, harm) == ("manifest", "flip") else memory.store().url(harmed)
            ) in warning
            assert "ns.checkpoint()" in warning
        found = [
            client.snapshot(version).read("orders") if table is not None else None
            for version, table in zip(versions, expected, strict=True)
        ]
        assert found == expected
        assert warnings.take() == [], "once"
    live.produce("orders", rows(99))
    _agrees(live)
    _agrees(ns)


def test_one_that_two_threads_meet_at_once_is_warned_of_once(memory: Place, warnings: Warnings) -> None:
    ns = memory.open()
    busy(ns, 1, steps=4)
    ns.checkpoint()
    follower = ns._connection.follower
    (part,) = follower.base.runs("hot")
    both = threading.Barrier(2)

    def look() -> None:
        if follower.base is not None:
            both.wait(10)
            raise UnusableCheckpoint(part, "it is missing")

    run_threads(*[lambda: follower.over_checkpoints(look)] * 2)
    (warning,) = warnings.take()
    assert keys.part_key(part.unique) in warning


@pytest.mark.clause("P-227")
@pytest.mark.parametrize(("what", "harm"), CASES)
@pytest.mark.parametrize("who", ["who made it", "who opens then"])
def test_the_next_checkpoint_is_a_whole_one_again(
    memory: Place, warnings: Warnings, who: str, what: str, harm: str
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    _compacted(ns)
    old = ns.checkpoint()
    ns.produce("orders", rows(5))
    healthy = _requests(memory)
    kept = {info.key: store.get(info.key) for info in store.list("sales/_log/")}
    harmed = _keys(ns, what)[0]
    _harm(store, harmed, harm, _keys(ns, "hot" if what != "hot" else "outcomes")[0])
    maker = ns if who == "who made it" else memory.open()
    assert maker.checkpoint() > old
    assert warnings.take()
    for key, data in kept.items():
        assert key == harmed or store.get(key) == data, "nothing was overwritten"
    found = _requests(memory)
    assert {key: count for key, count in found.items() if key[1] == "checkpoint"} == {
        key: count for key, count in healthy.items() if key[1] == "checkpoint"
    }
    assert found["get", "entry"] <= healthy["get", "entry"] + 4
    for client in (memory.open(), memory.open(mode="r")):
        _agrees(client)
        client._connection.follower.verify_checkpoints()
    assert warnings.take() == []
    version = maker.snapshot().version
    assert maker.checkpoint() == version, "what names the new one is the only entry that was appended"


@pytest.mark.clause("P-3", "P-227")
@pytest.mark.parametrize("what", ["manifest", "hot"])
def test_a_slot_that_holds_something_else_is_not_overwritten(memory: Place, warnings: Warnings, what: str) -> None:
    """The newest version has a checkpoint, which no header names yet."""
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    other = memory.open()
    version = ns.checkpoint()
    key = _keys(ns, what)[0]
    _harm(store, key, "flip", key)
    damaged = store.get(key)
    for client in (other, ns, memory.open()):
        assert client.checkpoint() == version + 1
    assert store.get(key) == damaged
    ns.produce("orders", rows(5))
    warnings.take()
    fresh = memory.open(mode="r")
    assert fresh._connection.follower.base.version == version + 1
    _agrees(fresh)
    assert warnings.take() == []


@pytest.mark.clause("P-226")
def test_a_reader_goes_from_header_to_header_to_the_newest_usable_one(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    ns.create_topic("orders", SCHEMA)
    made = []
    for number in range(5):
        for _ in range(20):
            ns.produce("orders", rows(number))
        made.append(ns.checkpoint())
    ns.produce("orders", rows(9))
    store.delete(_keys(ns, "manifest")[0])
    second = decode_manifest(store.get(f"sales/{keys.manifest_key(made[3])}"), made[3])
    store.put(f"sales/{keys.part_key(second.runs('hot')[0].unique)}", b"PAR1")
    store.put(f"sales/{keys.manifest_key(made[2])}", b"{}")
    fresh, counting = memory.counted(mode="r")
    assert fresh._connection.follower.base.version == made[1]
    assert len(warnings.take()) == 3
    counts = counting.counts()
    assert counts["get", "checkpoint"] == 3 + 3, "four manifests, and the hot parts of two"
    assert counts["get", "entry"] < 100
    assert ("list", "checkpoint") not in counts
    _agrees(fresh)


@pytest.mark.clause("P-226")
def test_a_run_that_older_checkpoints_name_too_makes_them_unusable(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    for seed in range(4):
        busy(ns, seed, steps=2)
        ns.checkpoint()
    ns.produce("orders", rows(5))
    store.delete(_keys(ns, "outcomes")[1])
    fresh = memory.open(mode="r")
    assert fresh._connection.follower.base is not None
    _agrees(fresh)
    assert len(warnings.take()) == 1
    runs = fresh._connection.follower.base.runs("outcomes")
    assert len(runs) == 1, "the first checkpoint is the only one that does not name it"


@pytest.mark.clause("P-226")
def test_everybody_goes_on_while_a_base_is_replaced(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=3)
    ns.checkpoint()
    busy(ns, 2, steps=3)
    ns.checkpoint()
    ns.produce("orders", rows(5))
    live = memory.open()
    for kind in checkpoint_codec.COLD_KINDS[:2]:
        store.delete(_keys(ns, kind)[-1])
    before = len(read(ns))

    def commit() -> None:
        for number in range(10):
            live.produce("orders", rows(1_000 + number))

    def look() -> None:
        for _ in range(5):
            assert len(read(live)) >= before
            for number in list(live._connection.follower.state.outcomes):
                assert live._connection.follower.outcome(number) is not None

    assert run_threads(commit, look, look, commit) == [None] * 4
    assert len(read(live)) == before + 20
    _agrees(live)
    assert 1 <= len(warnings.take()) <= 2


@pytest.mark.clause("P-225")
def test_an_entry_that_is_gone_is_corruption_with_or_without_checkpoints(checkpointed: Any, memory: Place) -> None:
    ns, store = checkpointed
    entry = f"sales/{keys.entry_key(2)}"
    data = store.get(entry)
    store.put(entry, data[:-1])
    assert memory.open(mode="r").snapshot().version == ns.snapshot().version, "the checkpoint stands for it"
    store.delete(_keys(ns, "manifest")[0])
    with raises(CorruptionError, match="entry 2"):
        memory.open(mode="r")


@pytest.mark.clause("P-225")
@pytest.mark.parametrize("what", ["manifest", "hot", "segments"])
def test_a_store_that_fails_is_no_damage(checkpointed: Any, memory: Place, warnings: Warnings, what: str) -> None:
    ns, _ = checkpointed
    key = _keys(ns, what)[0]
    failing = [True]

    class Fails(FaultyStore):
        def get(self, wanted: str) -> bytes:
            if wanted == key and failing:
                raise StoreError("the store is down")
            return super().get(wanted)

    def look() -> Any:
        return memory.open(wrap=Fails, mode="r").snapshot().read("orders")

    with raises(StoreError, match="is down"):
        look()
    failing.clear()
    assert look() == ns.snapshot().read("orders")
    assert warnings.take() == []


@pytest.mark.clause("P-129", "P-227")
def test_a_writer_makes_a_new_one_by_itself_once_the_tail_is_long(
    memory: Place, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    old = ns.checkpoint()
    ns.produce("orders", rows(5))
    store.delete(_keys(ns, "hot")[0])
    monkeypatch.setattr(checkpointer, "CHECKPOINT_ENTRIES", 10)
    monkeypatch.setattr(checkpointer, "_SPREAD_ENTRIES", 0)
    writer = memory.open()
    assert warnings.take()
    assert writer._connection.follower.base is None
    writer.produce("orders", rows(6))
    writer._connection.session.checkpointer.close()
    made: Any = writer._connection.follower.base
    writer.produce("orders", rows(7))
    reader = memory.open(mode="r")
    assert reader._connection.follower.base == made
    assert made.version > old
    _agrees(reader)
    assert warnings.take() == []


@pytest.mark.clause("P-225")
def test_a_checkpoint_of_the_root_log_closes_nothing_either(memory: Place, warnings: Warnings) -> None:
    """No client makes one, yet a reader goes by it."""
    memory.open()
    whole = memory.store()
    runtime = Runtime()
    store = PrefixStore(whole, keys.CATALOG_FOLDER)
    follower = Follower(Log(store, runtime), runtime)
    version = Checkpointer(follower, store, runtime).make().version
    root = Root(whole, runtime)
    root.follower.rebase(follower.log.checkpoints.manifest(version))
    root.register(parse_namespace_name("audit"))
    assert Root(whole, runtime).follower.base is not None
    store.delete(keys.manifest_key(version))
    assert sorted(item.name for item in Root(whole, runtime).namespaces()) == ["audit", "sales"]
    assert len(warnings.take()) == 1
    memory.open("audit").create_topic("orders", SCHEMA)


@pytest.mark.clause("P-115", "P-123")
def test_a_healthy_checkpoint_costs_its_manifest_and_one_part(checkpointed: Any, memory: Place) -> None:
    ns, _ = checkpointed
    assert ns._connection.follower.base is not None
    _, counting = memory.counted(mode="r")
    assert counting.counts()["get", "checkpoint"] == 2


# --- that say something else ------------------------------------------------------------------------------------------


@pytest.mark.clause("P-127", "P-138", "P-139")
@pytest.mark.parametrize(
    "change",
    [
        (b'"version": ', b'"version": 1'),
        (b'"format": 1', b'"format": "1"'),
        (b'"format": 1', b'"format": 2'),
        (b'"kind": "hot"', b'"kind": "warm"'),
        (b'"unique": "', b'"unique": "../../'),
        (b'"digest": "', b'"digest": "f'),
        (b'"parts"', b'"pars"'),
    ],
)
def test_a_manifest_that_says_something_else_is_not_used(
    checkpointed: Any, memory: Place, warnings: Warnings, change: Any
) -> None:
    ns, store = checkpointed
    key = _keys(ns, "manifest")[0]
    store.put(key, store.get(key).replace(*change))
    fresh = memory.open()
    assert fresh._connection.follower.base is None
    _agrees(fresh)
    assert len(warnings.take()) == 1


def test_a_manifest_of_a_later_format_is_said_to_be(checkpointed: Any, memory: Place, warnings: Warnings) -> None:
    """The entries say whether this version may read the log: they do not need it."""
    ns, store = checkpointed
    key = _keys(ns, "manifest")[0]
    store.put(key, store.get(key).replace(b'"format": 1', b'"format": 2'))
    assert sorted(read(memory.open())) == sorted(read(ns))
    assert "format 2" in warnings.take()[0]


@pytest.mark.clause("P-127")
def test_a_checkpoint_of_another_version_is_no_checkpoint(memory: Place, warnings: Warnings) -> None:
    ns = memory.open()
    busy(ns, 1)
    first = ns.checkpoint()
    ns.produce("orders", rows(1))
    second = ns.checkpoint()
    ns.produce("orders", rows(2))
    store = memory.store()
    one, two = (store.get(f"sales/{keys.manifest_key(version)}") for version in (first, second))
    hots = [decode_manifest(data, version).runs("hot")[0] for data, version in ((one, first), (two, second))]
    forged = two.replace(hots[1].unique.encode(), hots[0].unique.encode())
    forged = forged.replace(hots[1].digest.encode(), hots[0].digest.encode())
    forged = forged.replace(
        f'"size_bytes": {hots[1].size_bytes}'.encode(), f'"size_bytes": {hots[0].size_bytes}'.encode()
    )
    forged = forged.replace(f'"rows": {hots[1].rows}'.encode(), f'"rows": {hots[0].rows}'.encode())
    store.put(f"sales/{keys.manifest_key(second)}", forged)
    fresh = memory.open()
    assert fresh._connection.follower.base.version == first
    _agrees(fresh)
    assert "another version" in warnings.take()[0]


@pytest.mark.clause("P-127")
def test_a_checkpoint_of_another_log_is_no_checkpoint(memory: Place, warnings: Warnings) -> None:
    """It is whole, and the entry of its version is another one."""
    ns, other = memory.open(), memory.open("other")
    for client in (ns, other):
        client.create_topic("orders", SCHEMA)
        client.produce("orders", rows(1))
    version = ns.checkpoint()
    assert other.checkpoint() == version
    ns.produce("orders", rows(2))
    store = memory.store()
    for info in list(store.list("other/_log/checkpoints/")):
        store.put(info.key.replace("other/", "sales/", 1), store.get(info.key))
    fresh = memory.open()
    assert read(fresh) == [1, 2]
    assert fresh._connection.follower.base is None
    _agrees(fresh)
    assert "another log" in warnings.take()[0]


# --- by somebody who means harm, with digests that fit ----------------------------------------------------------------


def _forged(place: Place, change: Any) -> TxnId:
    """A namespace with a checkpoint that a header names, changed, and its one transaction."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    txn_id: TxnId = ns.produce("orders", rows(1)).txn_id
    version = ns.checkpoint()
    ns.produce("orders", rows(2))
    store = place.store()
    key = f"sales/{keys.manifest_key(version)}"
    manifest = json.loads(store.get(key))
    change(store, manifest)
    store.put(key, json.dumps(manifest).encode())
    return txn_id


def _part(manifest: Any, kind: str) -> Any:
    return next(part for part in manifest["parts"] if part["kind"] == kind)


def _replace(store: Any, part: Any, data: bytes) -> None:
    store.put(f"sales/{keys.part_key(part['unique'])}", data)
    part |= {"digest": digest_of(data), "size_bytes": len(data)}


@pytest.mark.clause("P-1", "P-139")
@pytest.mark.parametrize("unique", ["../../../other/secret", "0/1", "", "A" * 32, "0" * 33])
def test_a_part_is_named_by_32_hexadecimal_digits_and_by_nothing_else(
    memory: Place, warnings: Warnings, unique: str
) -> None:
    _forged(memory, lambda _store, manifest: _part(manifest, "hot").update(unique=unique))
    _agrees(memory.open(mode="r"))
    assert "manifest" in warnings.take()[0]


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_part_that_is_no_parquet_file_is_damage(memory: Place, warnings: Warnings, data: bytes) -> None:
    _forged(memory, lambda store, manifest: _replace(store, _part(manifest, "hot"), data))
    _agrees(memory.open(mode="r"))
    assert "part" in warnings.take()[0]


def _change(store: Any, manifest: Any, kind: str, **values: Any) -> None:
    """Put other values into columns of a run; an array brings a type of its own."""
    part = _part(manifest, kind)
    table = pq.read_table(pa.BufferReader(store.get(f"sales/{keys.part_key(part['unique'])}")))
    for name, value in values.items():
        field = table.schema.field(name)
        changed = pa.array([value] * table.num_rows, field.type) if not isinstance(value, pa.Array) else value
        table = table.set_column(table.column_names.index(name), field.with_type(changed.type), changed)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    _replace(store, part, sink.getvalue().to_pybytes())


@pytest.mark.clause("P-2", "P-139")
@pytest.mark.parametrize("file", ["../../../../other/secret.parquet", "0/1.parquet", "0" * 31 + ".parquet"])
def test_a_segment_of_a_checkpoint_leads_nowhere_else(memory: Place, warnings: Warnings, file: str) -> None:
    _forged(memory, lambda store, manifest: _change(store, manifest, "segments", file=file))
    assert read(memory.open(mode="r")) == [1, 2]
    assert "file name" in warnings.take()[0]


@pytest.mark.clause("P-127")
@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("statistics", "{", "damaged"),
        ("statistics", "[1]", "damaged"),
        ("statistics", '{"id":[1,2]}', "damaged"),
        ("statistics", "[" * 100_000, "damaged"),
        ("state", "visible?", "contradicts"),
        ("state", "pending", "contradicts"),
        ("ended_version", None, "contradicts"),
        ("slices", [], "contradicts"),
        ("slices", [{"partition": 0, "rows": 2, "offset": 0}], "contradicts"),
        ("slices", [{"partition": 0, "rows": 1, "offset": None}], "contradicts"),
    ],
)
def test_a_row_of_a_run_that_is_no_segment_is_damage(
    memory: Place, warnings: Warnings, column: str, value: Any, match: str
) -> None:
    """Rows whose state nobody knows would be missing without a word."""
    _forged(memory, lambda store, manifest: _change(store, manifest, "segments", **{column: value}))
    assert read(memory.open(mode="r")) == [1, 2]
    assert match in warnings.take()[0]


@pytest.mark.clause("P-127", "P-138", "P-139")
@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"digest": "d" * 257}, "digest"),
        ({"digest": "d" * 1_000_000}, "digest"),
        ({"digest": "a\nb"}, "digest"),
        ({"digest": pa.array([b"\xff"])}, "does not decode"),
        ({"digest": pa.array([[1]])}, "does not decode"),
        ({"committed": False, "digest": "d"}, "contradicts"),
        ({"committed": False, "dropped_topics": [1]}, "contradicts"),
        ({"committed": False, "dropped_subscriptions": [1]}, "contradicts"),
        ({"version": -1}, "contradicts"),
        ({"dropped_topics": [-1]}, "contradicts"),
        ({"dropped_topics": [1 << 62]}, "contradicts"),
        ({"dropped_topics": [0]}, "unknown topic 0"),
        ({"dropped_topics": pa.array(["orders"])}, "does not decode"),
        ({"dropped_topics": pa.array([[None]], pa.list_(pa.int64()))}, "contradicts|does not decode"),
        ({"dropped_subscriptions": [1 << 62]}, "contradicts"),
        ({"dropped_subscriptions": [-1]}, "contradicts"),
        ({"dropped_subscriptions": pa.array([1])}, "does not decode"),
    ],
)
def test_a_row_of_a_run_that_is_no_outcome_is_damage(
    memory: Place, warnings: Warnings, values: dict[str, Any], match: str
) -> None:
    """Whoever asks how a transaction ended does not get an invented answer."""
    txn_id = _forged(memory, lambda store, manifest: _change(store, manifest, "outcomes", **values))
    for client in (memory.open(mode="r"), memory.open()):
        info = client.transaction(txn_id)
        assert (info.state, info.version) == ("COMMITTED", 2)
        assert re.search(match, warnings.take()[0])


@pytest.mark.clause("P-89", "P-138")
def test_a_dropped_subscription_that_no_entry_created_is_named_by_its_number(memory: Place) -> None:
    txn_id = _forged(memory, lambda store, manifest: _change(store, manifest, "outcomes", dropped_subscriptions=[0, 2]))
    connection = memory.open(mode="r")._connection
    assert connection.committed(connection.outcome(txn_id.number)).dropped == ("0", "2")


@pytest.mark.parametrize("harm", ["flip", "truncate", "swap", "delete"])
def test_a_damaged_first_entry_is_damage_and_no_other_namespace(checkpointed: tuple[Any, Any], harm: str) -> None:
    """The root knows a log by its first entry, which no checkpoint has: whoever adopted such a folder would keep it."""
    ns, store = checkpointed
    ns.close()
    key = f"sales/{keys.entry_key(0)}"
    data = store.get(key)
    store.delete(key)
    if harm != "delete":
        at = data.index(b'"writer"') + 12
        store.put(
            key,
            {
                "flip": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
                "truncate": data[: len(data) // 2],
                "swap": store.get(f"sales/{keys.entry_key(3)}"),
            }[harm],
        )
    place = Place("memory", ns.root)
    for mode in ("r", "rw"):
        with raises(CorruptionError, match="entry 0.*restore .*00000000000000000000.json"):
            place.open(mode=mode, create=False)
    with catalog.open(ns.root) as cat, raises(CorruptionError, match="entry 0"):
        cat.adopt_namespace("sales", force=True)
    store.put(key, data)
    place.open(mode="r", create=False).close()


def test_the_second_entry_that_is_damaged_does_not_make_the_first_one_so(checkpointed: tuple[Any, Any]) -> None:
    """A checkpoint covers both; the third entry tells which of the two is not the one that was written."""
    ns, store = checkpointed
    ns.close()
    key = f"sales/{keys.entry_key(1)}"
    data = store.get(key)
    at = data.index(b'"previous":"') + 12
    store.put(key, data[:at] + (b"0" if data[at : at + 1] != b"0" else b"1") + data[at + 1 :])
    Place("memory", ns.root).open(mode="r", create=False).close()
