"""Checkpoints that say something else, or were made by somebody who means harm: nobody believes them."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catalog
from tests.client.checkpoints import Warnings, agrees, checkpointed, objects_of, warnings
from tests.client.support import SCHEMA, Place, busy, raises, read, rows
from txnlog.common.ids import TxnId
from txnlog.errors import CorruptionError
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.log.checkpoint_codec import decode_manifest

__all__ = ["checkpointed", "warnings"]  # fixtures


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
    key = objects_of(ns, "manifest")[0]
    store.put(key, store.get(key).replace(*change))
    fresh = memory.open()
    assert fresh._connection.follower.base is None
    agrees(fresh)
    (warning,) = warnings.take()
    assert "format 2" in warning or change[1] != b'"format": 2', "a later format is said to be one"


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
    agrees(fresh)
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
    agrees(fresh)
    assert "another log" in warnings.take()[0]


# --- by somebody who means harm, with digests that fit ----------------------------------------------------------------


def _forged(place: Place, change: Any) -> TxnId:
    """A namespace with a checkpoint that a header names, changed, and its one transaction."""
    ns = place.orders()
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
    agrees(memory.open(mode="r"))
    assert "manifest" in warnings.take()[0]


@pytest.mark.clause("P-127")
@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(40) + b"PAR1"])
def test_a_part_that_is_no_parquet_file_is_damage(memory: Place, warnings: Warnings, data: bytes) -> None:
    _forged(memory, lambda store, manifest: _replace(store, _part(manifest, "hot"), data))
    agrees(memory.open(mode="r"))
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
