"""A read of no columns has the number of rows, also of big files, of which only the wanted columns are decoded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.data import segment_file, segment_reader
from txnlog.maintenance import merging

NESTED = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.int64()))])

ROW_GROUP_ROWS = 1 << 20
"""Parquet's writer begins a new row group after so many."""


@pytest.fixture
def ns(memory: Place, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A namespace of which every file is a big one."""
    monkeypatch.setattr(segment_reader, "_CACHEABLE_BYTES", 0)
    return memory.open()


def count(ns: Any, topic: str, **options: Any) -> int:
    return int(ns.snapshot().read(topic, columns=[], **options).num_rows)


@pytest.mark.parametrize("flush", [False, True])
def test_parts_of_a_file_of_several_partitions(ns: Any, flush: bool) -> None:
    ns.create_topic("orders", SCHEMA, partitions=3)
    with ns.begin() as txn:
        for partition in range(3):
            txn.produce("orders", rows(*range(10)), partition=partition)
        if flush:
            txn.flush()
    assert count(ns, "orders", offsets={0: (0, 10), 2: (0, 10)}) == 20
    ns.delete_records("orders", {1: 4})
    assert count(ns, "orders") == 26


def test_merged_files_of_several_row_groups_with_a_nested_column(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segment_file, merging):
        monkeypatch.setattr(module, "ROW_GROUP_BYTES", 1 << 10)
    monkeypatch.setattr(merging, "_LEAST_ROW_GROUP_BYTES", 1 << 10)
    ns.create_topic("orders", NESTED)
    for _ in range(3):
        ns.produce("orders", pa.table({"id": range(100), "tags": [[1, 2, 3]] * 100}, schema=NESTED))
    ns.optimize("orders")
    assert count(ns, "orders") == 300


def test_a_file_of_several_row_groups_with_a_nested_column(ns: Any) -> None:
    ns.create_topic("orders", NESTED)
    total = ROW_GROUP_ROWS + 10
    with ns.begin() as txn:
        txn.produce("orders", pa.table([pa.nulls(total, field.type) for field in NESTED], schema=NESTED))
        txn.flush()
    assert len(ns.snapshot().plan("orders").segments) == 1
    assert count(ns, "orders") == total
