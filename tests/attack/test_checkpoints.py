"""Manifests and parts that were written by somebody who means harm, with digests that fit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog import keys
from txnlog.codec import digest_of
from txnlog.errors import CorruptionError


def _forged(place: Place, change: Any) -> None:
    """A namespace with a checkpoint that a header names, changed."""
    ns = place.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    version = ns.checkpoint()
    ns.produce("orders", rows(2))
    store = place.store()
    key = f"sales/{keys.manifest_key(version)}"
    manifest = json.loads(store.get(key))
    change(store, manifest)
    store.put(key, json.dumps(manifest).encode())


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


@pytest.mark.clause("P-2", "P-139")
@pytest.mark.parametrize("file", ["../../../../other/secret.parquet", "0/1.parquet", "0" * 31 + ".parquet"])
def test_a_segment_of_a_checkpoint_leads_nowhere_else(memory: Place, file: str) -> None:
    def change(store: Any, manifest: Any) -> None:
        part = _part(manifest, "segments")
        table = pq.read_table(pa.BufferReader(store.get(f"sales/{keys.part_key(part['unique'])}")))
        index = table.column_names.index("file")
        table = table.set_column(index, table.schema.field("file"), pa.array([file] * table.num_rows))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        _replace(store, part, sink.getvalue().to_pybytes())

    _forged(memory, change)
    reader = memory.open(mode="r")
    with pytest.raises(CorruptionError, match="file name"):
        reader.snapshot().read("orders")
