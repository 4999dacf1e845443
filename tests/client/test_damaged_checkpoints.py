"""Checkpoints that are damaged, or by somebody who means harm: nobody goes on from them, or reads rows of theirs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.client.support import SCHEMA, Place, busy, from_zero, raises, read, rows
from txnlog import keys
from txnlog.checkpoint import decode_manifest
from txnlog.codec import digest_of
from txnlog.errors import CorruptionError, UnsupportedFeature
from txnlog.ids import TxnId


@pytest.fixture
def checkpointed(memory: Place) -> tuple[Any, Any]:
    """A namespace with a checkpoint that headers name, and its raw store."""
    ns = memory.open()
    busy(ns, 1)
    ns.checkpoint()
    ns.produce("orders", rows(5))
    return ns, memory.store()


def _part_keys(ns: Any, kind: str) -> list[str]:
    return [f"sales/{keys.part_key(part.unique)}" for part in ns.connection.follower.base.runs(kind)]


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("harm", ["delete", "flip", "truncate", "empty", "swap"])
@pytest.mark.parametrize("what", ["manifest", "hot"])
def test_a_damaged_checkpoint_stops_who_opens(checkpointed: Any, memory: Place, harm: str, what: str) -> None:
    ns, store = checkpointed
    version = ns.connection.follower.base.version
    key = f"sales/{keys.manifest_key(version)}" if what == "manifest" else _part_keys(ns, "hot")[0]
    _harm(store, key, harm, _part_keys(ns, "outcomes")[0])
    with raises(CorruptionError, match="checkpoint"):
        memory.open()
    assert len(read(ns)) > 0, "who knew the state goes on"


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("harm", ["delete", "flip", "truncate", "empty", "swap"])
def test_a_damaged_run_stops_who_looks_there(checkpointed: Any, memory: Place, harm: str) -> None:
    ns, store = checkpointed
    for kind in ("segments", "outcomes", "batches"):
        _harm(store, _part_keys(ns, kind)[0], harm, _part_keys(ns, "hot")[0])
    fresh = memory.open()
    old = next(iter(from_zero(ns).outcomes))
    for call in (
        lambda: fresh.snapshot().read("orders"),
        lambda: fresh.consumer("orders", "billing").receive(timeout_ms=0),
        lambda: fresh.connection.follower.outcome(old),
        lambda: fresh.connection.follower.batch("loader-1", fresh.topic("orders").id, 0, 0),
    ):
        with raises(CorruptionError, match="checkpoint part"):
            call()


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


@pytest.mark.clause("P-138", "P-139")
@pytest.mark.parametrize(
    "change",
    [
        (b'"version": ', b'"version": 1'),
        (b'"format": 1', b'"format": "1"'),
        (b'"kind": "hot"', b'"kind": "warm"'),
        (b'"unique": "', b'"unique": "../../'),
        (b'"digest": "', b'"digest": "f'),
        (b'"parts"', b'"pars"'),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(checkpointed: Any, memory: Place, change: Any) -> None:
    ns, store = checkpointed
    key = f"sales/{keys.manifest_key(ns.connection.follower.base.version)}"
    store.put(key, store.get(key).replace(*change))
    with raises(CorruptionError, match="checkpoint"):
        memory.open()


def test_a_manifest_of_a_later_format_is_said_to_be(checkpointed: Any, memory: Place) -> None:
    ns, store = checkpointed
    key = f"sales/{keys.manifest_key(ns.connection.follower.base.version)}"
    store.put(key, store.get(key).replace(b'"format": 1', b'"format": 2'))
    with raises(UnsupportedFeature, match="format 2"):
        memory.open()


def test_a_checkpoint_of_another_version_is_no_checkpoint(memory: Place) -> None:
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
    with raises(CorruptionError, match="another version|checkpoint part"):
        memory.open()


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
def test_a_part_is_named_by_32_hexadecimal_digits_and_by_nothing_else(memory: Place, unique: str) -> None:
    _forged(memory, lambda _store, manifest: _part(manifest, "hot").update(unique=unique))
    with pytest.raises(CorruptionError, match="manifest"):
        memory.open(mode="r")


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_part_that_is_no_parquet_file_is_damage(memory: Place, data: bytes) -> None:
    _forged(memory, lambda store, manifest: _replace(store, _part(manifest, "hot"), data))
    with pytest.raises(CorruptionError, match="part"):
        memory.open(mode="r")


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
def test_a_segment_of_a_checkpoint_leads_nowhere_else(memory: Place, file: str) -> None:
    _forged(memory, lambda store, manifest: _change(store, manifest, "segments", file=file))
    reader = memory.open(mode="r")
    with pytest.raises(CorruptionError, match="file name"):
        reader.snapshot().read("orders")


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
def test_a_row_of_a_run_that_is_no_segment_is_damage(memory: Place, column: str, value: Any, match: str) -> None:
    """Rows whose state nobody knows would be missing without a word."""
    _forged(memory, lambda store, manifest: _change(store, manifest, "segments", **{column: value}))
    reader = memory.open(mode="r")
    with pytest.raises(CorruptionError, match=match):
        reader.snapshot().read("orders")


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
def test_a_row_of_a_run_that_is_no_outcome_is_damage(memory: Place, values: dict[str, Any], match: str) -> None:
    """Whoever asks how a transaction ended is not told something made up."""
    txn_id = _forged(memory, lambda store, manifest: _change(store, manifest, "outcomes", **values))
    for client in (memory.open(mode="r"), memory.open()):
        with pytest.raises(CorruptionError, match=match):
            client.transaction(txn_id)


@pytest.mark.clause("P-89", "P-138")
def test_a_dropped_subscription_that_no_entry_created_is_told_by_its_number(memory: Place) -> None:
    txn_id = _forged(memory, lambda store, manifest: _change(store, manifest, "outcomes", dropped_subscriptions=[0, 2]))
    connection = memory.open(mode="r").connection
    assert connection.committed(connection.outcome(txn_id.number)).dropped == ("0", "2")
