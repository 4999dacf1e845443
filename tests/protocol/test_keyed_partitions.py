"""The partition of a key: the vectors of PROTOCOL.md, by the reference implementation and by ours."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from tests.protocol.document import rows, table_after
from txnlog.data.partitioner import hash_values, partition_of_key, partition_of_keys
from txnlog.format.schema import type_to_arrow

VECTORS = [[cell.strip("`") for cell in row] for row in rows(table_after("| type | key | bytes (hex) | *h* |"))]
TYPED = [row for row in VECTORS if row[0] != "any"]


def value_of(kind: str, text: str) -> object:
    """The key that a vector shows."""
    if kind == "string":
        return text.strip('"')
    if kind == "binary":
        return bytes.fromhex(text)
    return int(text)


def bytes_of(kind: str, value: object) -> bytes:
    """The bytes that are hashed, as the document says."""
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case int():
            return struct.pack("<q" if kind == "long" else "<i", value)
    raise AssertionError(value)


def hashed(data: bytes) -> int:
    return struct.unpack("<q", struct.pack("<Q", xxh64_intdigest(data, seed=42)))[0]


@pytest.mark.clause("P-110")
@pytest.mark.parametrize("vector", TYPED, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_vector_is_what_xxhash64_gives(vector):
    kind, text, data, expected, of_4, of_10 = vector
    assert bytes_of(kind, value_of(kind, text)).hex() == data
    assert hashed(bytes.fromhex(data)) == int(expected)
    assert (int(expected) % 4, int(expected) % 10) == (int(of_4), int(of_10))


@pytest.mark.clause("P-110")
@pytest.mark.parametrize("vector", TYPED, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_vector_is_what_we_compute(vector):
    kind, text, _, expected, of_4, of_10 = vector
    arrow = type_to_arrow(kind)
    value = value_of(kind, text)
    assert hash_values(pa.array([value], arrow)).tolist() == [int(expected)]
    assert partition_of_key(value, arrow, 4) == int(of_4)
    assert partition_of_keys(pa.array([None, value], arrow), 10).tolist() == [2, int(of_10)]


@pytest.mark.clause("P-110")
def test_null_has_the_seed_for_a_hash():
    (vector,) = [row for row in VECTORS if row[0] == "any"]
    assert vector[1:] == ["null", "", "42", "2", "2"]
    for kind in {row[0] for row in TYPED}:
        assert hash_values(pa.array([None], type_to_arrow(kind))).tolist() == [42]
        assert partition_of_key(None, type_to_arrow(kind), 4) == 2


def test_there_is_a_vector_for_every_type_and_both_signs():
    assert {row[0] for row in TYPED} == {"string", "binary", "byte", "short", "integer", "long"}
    assert {int(row[3]) < 0 for row in TYPED} == {True, False}
    assert any(len(row[2]) > 64 for row in TYPED), "a key of more than 32 bytes takes another way through the hash"


@pytest.mark.clause("P-110")
@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 10_000))
def test_a_partition_is_the_remainder_that_is_never_negative(key, partitions):
    expected = hashed(struct.pack("<i", key)) % partitions
    assert partition_of_key(key, pa.int32(), partitions) == expected
    assert 0 <= expected < partitions
