"""Keys lead to the partition that Spark computes, and rows are split by partition without losing their order."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from txnlog.data import partitioner
from txnlog.data.partitioner import (
    hash_values,
    hash_with_numpy,
    key_hasher,
    partition_of_key,
    partition_of_keys,
    split,
)
from txnlog.format.schema import KEY_TYPES, type_to_arrow

KINDS = [type_to_arrow(name) for name in sorted(KEY_TYPES)]
MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1

# Spark 4.2: select(xxhash64(column)); tests/spark compares many more with a running Spark.
FROM_SPARK = [
    (pa.string(), "", -7444071767201028348),
    (pa.string(), "abc", 1423657621850124518),
    (pa.string(), None, 42),
    (pa.int32(), 1, -6698625589789238999),
    (pa.int64(), 1, -7001672635703045582),
]


def reference(value: object, kind: pa.DataType) -> int:
    """xxhash64 as Spark's documentation of the bytes says, signed."""
    if value is None:
        return 42
    if isinstance(value, int):
        data = value.to_bytes(8 if kind == pa.int64() else 4, "little", signed=True)
    else:
        data = value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]  # object
    unsigned: int = xxh64_intdigest(data, 42)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


def values_of(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_string(kind):
        return st.text(max_size=80)
    if pa.types.is_binary(kind):
        return st.binary(max_size=80)
    return st.integers(-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1)


@pytest.mark.parametrize(("kind", "value", "expected"), FROM_SPARK)
def test_hashes_are_those_that_spark_gave(kind, value, expected):
    assert hash_values(pa.array([value], kind)).tolist() == [expected]
    assert key_hasher(kind)(value) == expected


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_columns_and_single_values_have_the_same_hash(kind, data):
    values = data.draw(st.lists(st.none() | values_of(kind), max_size=20))
    partitions = data.draw(st.integers(1, 10_000))
    array = pa.array(values, kind)
    expected = [reference(value, kind) for value in values]
    chunked = pa.chunked_array([array.slice(0, 3), array.slice(3)], kind)
    for column in (array, chunked, array.dictionary_encode(), chunked.dictionary_encode()):
        hashes = hash_values(column)
        assert hashes.dtype == np.int64
        assert hashes.tolist() == expected
        found = partition_of_keys(column, partitions)
        assert found.dtype == np.int32
        assert found.tolist() == [number % partitions for number in expected]
    assert [partition_of_key(value, kind, partitions) for value in values] == [n % partitions for n in expected]


@given(st.lists(st.binary(max_size=150), max_size=20), st.integers(0, 3))
def test_numpy_gives_the_hashes_of_the_package(values, skipped):
    array = pa.array(values, pa.binary()).slice(min(skipped, len(values)))
    assert hash_with_numpy(array).tolist() == [xxh64_intdigest(value, 42) for value in array.to_pylist()]


def test_without_the_package_texts_have_the_same_hashes(monkeypatch):
    texts = pa.array([None, "", *("ä" * length for length in range(70))])
    expected = hash_values(texts)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    assert hash_values(texts).tolist() == expected.tolist()
    assert hash_values(texts.slice(3, 20).dictionary_encode()).tolist() == expected[3:23].tolist()


def test_no_keys_have_no_hashes():
    for kind in KINDS:
        assert hash_values(pa.array([], kind)).tolist() == []
        assert hash_values(pa.chunked_array([], kind)).tolist() == []


def test_keys_spread_evenly():
    keys = pa.array([f"customer-{i}" for i in range(20_000)])
    counts = np.bincount(partition_of_keys(keys, 8), minlength=8)
    assert counts.min() > 0.95 * 2_500
    assert counts.max() < 1.05 * 2_500


@given(st.lists(st.integers(0, 5)), st.integers(0, 3))
def test_rows_keep_their_order_within_a_partition(partitions, chunk):
    rows = pa.table(
        {"row": pa.array(range(len(partitions)), pa.int64()), "tag": [f"t{i}" for i in range(len(partitions))]}
    )
    table = pa.concat_tables([rows.slice(0, chunk), rows.slice(chunk)])
    result, slices = split(table, np.array(partitions, dtype=np.int32))
    assert slices == [(p, partitions.count(p)) for p in sorted(set(partitions))]
    start = 0
    for partition, count in slices:
        part = result.slice(start, count)
        assert part["row"].to_pylist() == [i for i, p in enumerate(partitions) if p == partition]
        assert part["tag"].to_pylist() == [f"t{i}" for i in part["row"].to_pylist()]
        start += count
    assert start == result.num_rows == len(partitions)
    assert result.schema.equals(table.schema)


def test_rows_that_lie_right_are_not_moved():
    table = pa.table({"x": [1, 2, 3]})
    for partitions in ([0, 0, 0], [0, 1, 1]):
        assert split(table, np.array(partitions, dtype=np.int32))[0] is table


def test_the_order_holds_also_without_laying_a_column_into_one_array(monkeypatch):
    monkeypatch.setattr(partitioner, "MAX_TAKE_BYTES", 0)
    partitions = np.array([2, 0, 1, 0, 2, 1], dtype=np.int32)
    table, slices = split(pa.table({"x": range(6), "s": list("abcdef")}), partitions)
    assert table["x"].to_pylist() == [1, 3, 2, 5, 0, 4]
    assert table["s"].to_pylist() == list("bdcfae")
    assert slices == [(0, 2), (1, 2), (2, 2)]


def test_many_rows_of_many_partitions_keep_their_order():
    dice = np.random.default_rng(3)
    partitions = dice.integers(0, 10_000, 100_000).astype(np.int32)
    table, slices = split(pa.table({"x": range(100_000), "p": partitions}), partitions)
    x, p = table["x"].to_numpy(), table["p"].to_numpy()
    assert (np.diff(p) >= 0).all()
    assert (np.diff(x)[np.diff(p) == 0] > 0).all()
    assert sum(rows for _, rows in slices) == 100_000
