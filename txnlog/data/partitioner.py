"""The partition of a key: Spark's ``pmod(xxhash64(key), partitions)``, in Python.

Spark and Python write to the same topics, so a key must lead both to the same partition (PROTOCOL.md, "Partition of a
key"): xxhash64 with seed 42 over the UTF-8 bytes of a string, the bytes of a binary, 4 little-endian bytes of a byte,
short or integer, 8 of a long; null gives the seed itself.

The hash function of texts comes from a package that a client has and an executor of Spark may lack: there NumPy does
the same, two to four times as slowly.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED: Final = 42
MAX_TAKE_BYTES: Final = 1 << 30
"""Above it, rows are sorted without ever laying one column into one array: its offsets have 31 bits."""

_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3: Final = np.uint64(0x165667B19E3779F9)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)
_SEED: Final = np.uint64(SEED)

_pack_int: Final = struct.Struct("<i").pack
_pack_long: Final = struct.Struct("<q").pack


def _rotate(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finish(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(33))) * _PRIME_2
    words = (words ^ (words >> np.uint64(29))) * _PRIME_3
    return words ^ (words >> np.uint64(32))


def _hash_ints(values: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """xxh64 of four bytes each."""
    with np.errstate(over="ignore"):
        start = _SEED + _PRIME_5 + np.uint64(4)
        words = start ^ (values.view(np.uint32).astype(np.uint64) * _PRIME_1)
        return _finish(_rotate(words, 23) * _PRIME_2 + _PRIME_3)


def _hash_longs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """xxh64 of eight bytes each."""
    with np.errstate(over="ignore"):
        start = _SEED + _PRIME_5 + np.uint64(8)
        words = start ^ (_rotate(values.view(np.uint64) * _PRIME_2, 31) * _PRIME_1)
        return _finish(_rotate(words, 27) * _PRIME_1 + _PRIME_4)


def _mix(words: npt.NDArray[np.uint64], into: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    """A round of xxh64: a word of eight bytes into an accumulator each."""
    return _rotate(into + words * _PRIME_2, 31) * _PRIME_1


def _hash_texts(array: pa.Array) -> npt.NDArray[np.uint64]:
    """xxh64 of binaries, of which none is null."""
    try:
        from xxhash import xxh64_intdigest  # noqa: PLC0415 - see the module's docstring
    except ImportError:
        return hash_with_numpy(array)
    values = array.to_numpy(zero_copy_only=False)
    return np.fromiter(map(xxh64_intdigest, values, repeat(SEED)), dtype=np.uint64, count=len(array))


def hash_with_numpy(array: pa.Array) -> npt.NDArray[np.uint64]:
    """xxh64 of binaries, of which none is null, without the package: all values at once, a word of each at a time."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    # Eight bytes more, so that a word can be read at every position; what is beyond a value is masked away.
    text = (bytes(memoryview(data)[first:last]) if last > first else b"") + bytes(8)
    words: npt.NDArray[np.uint64] = np.ndarray((last - first + 1,), "<u8", text, strides=(1,))
    lengths = np.diff(ends)
    at = ends[:-1] - first
    with np.errstate(over="ignore"):
        result = np.full(len(array), _SEED + _PRIME_5, np.uint64)
        long = np.flatnonzero(lengths >= 32)
        if len(long):
            result[long], at[long] = _hash_stripes(words, at[long], lengths[long] // 32)
        result += lengths.astype(np.uint64)
        for words_before in range(3):
            rows = np.flatnonzero(lengths % 32 >= 8 * (words_before + 1))
            mixed = result[rows] ^ _mix(words[at[rows]], np.uint64(0))
            result[rows] = _rotate(mixed, 27) * _PRIME_1 + _PRIME_4
            at[rows] += 8
        rows = np.flatnonzero(lengths & 4)
        mixed = result[rows] ^ (words[at[rows]] & np.uint64(0xFFFFFFFF)) * _PRIME_1
        result[rows] = _rotate(mixed, 23) * _PRIME_2 + _PRIME_3
        at[rows] += 4
        for bytes_before in range(3):
            rows = np.flatnonzero(lengths & 3 > bytes_before)
            mixed = result[rows] ^ (words[at[rows]] & np.uint64(0xFF)) * _PRIME_5
            result[rows] = _rotate(mixed, 11) * _PRIME_1
            at[rows] += 1
        return _finish(result)


def _hash_stripes(
    words: npt.NDArray[np.uint64], at: npt.NDArray[np.int64], stripes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Of long values what their whole stripes of 32 bytes make, and where each goes on."""
    lanes = [
        np.full(len(at), start, np.uint64)
        for start in (_SEED + _PRIME_1 + _PRIME_2, _SEED + _PRIME_2, _SEED, _SEED - _PRIME_1)
    ]
    rows = np.arange(len(at))
    done = 0
    while len(rows):
        for place, lane in enumerate(lanes):
            lane[rows] = _mix(words[at[rows] + 8 * place], lane[rows])
        at[rows] += 32
        done += 1
        rows = rows[stripes[rows] > done]
    total = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for lane in lanes:
        total = (total ^ _mix(lane, np.uint64(0))) * _PRIME_1 + _PRIME_4
    return total, at


def _hash_chunk(array: pa.Array) -> npt.NDArray[np.uint64]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        hashes = _hash_chunk(array.dictionary)
        result = hashes[codes] if len(hashes) else np.full(len(array), SEED, dtype=np.uint64)
    elif pa.types.is_integer(kind):
        values = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
        if kind.bit_width == 64:
            result = _hash_longs(values.astype(np.int64, copy=False))
        else:
            result = _hash_ints(values.astype(np.int32, copy=False))
    else:
        data = array.cast(pa.binary()) if pa.types.is_string(kind) else array
        result = _hash_texts(data.fill_null(b"") if data.null_count else data)
    if array.null_count:
        result = np.where(array.is_null().to_numpy(zero_copy_only=False), np.uint64(SEED), result)
    return result


def hash_values(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Spark's ``xxhash64`` of every value of a key column (``schema.KEY_TYPES``, or a dictionary of them)."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    hashes = [_hash_chunk(chunk) for chunk in chunks]
    if len(hashes) == 1:
        return hashes[0].view(np.int64)
    return (np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)).view(np.int64)


def partition_of_keys(array: pa.Array | pa.ChunkedArray, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of every key of a column."""
    assert partitions > 0, "a topic has at least one partition"
    return np.mod(hash_values(array), np.int64(partitions)).astype(np.int32)


@cache
def key_hasher(kind: pa.DataType) -> Callable[[Any], int]:
    """A function from one Python value (or None) of a key type to its signed hash; for many calls, get it once."""
    from xxhash import xxh64_intdigest  # noqa: PLC0415 - executors, which may lack it, have columns of keys only

    if pa.types.is_string(kind):
        encode: Callable[[Any], bytes] = str.encode
    elif pa.types.is_binary(kind):
        encode = bytes
    else:
        encode = _pack_long if kind.bit_width == 64 else _pack_int

    def hash_key(value: Any) -> int:
        if value is None:
            return SEED
        unsigned: int = xxh64_intdigest(encode(value), SEED)
        return unsigned - (1 << 64) if unsigned >> 63 else unsigned

    return hash_key


def partition_of_key(value: Any, kind: pa.DataType, partitions: int) -> int:
    """The partition of one key, a Python value of the key column's type."""
    return key_hasher(kind)(value) % partitions


def split(table: pa.Table, partitions: npt.NDArray[np.int32]) -> tuple[pa.Table, list[tuple[int, int]]]:
    """The rows by partition, each one's in the order they had, and ``(partition, rows)`` of each in that order."""
    assert len(partitions) == table.num_rows, "one partition a row"
    if not len(partitions):
        return table, []
    steps = np.diff(partitions)
    if not steps.any():
        return table, [(int(partitions[0]), len(partitions))]
    present, counts = np.unique(partitions, return_counts=True)
    slices = [(int(partition), int(rows)) for partition, rows in zip(present, counts, strict=True)]
    if (steps >= 0).all():
        return table, slices
    if table.nbytes > MAX_TAKE_BYTES:
        return pa.concat_tables([table.filter(pa.array(partitions == partition)) for partition in present]), slices
    # 16 bits take numpy's radix sort, which is stable; the limit of partitions is below.
    order = np.argsort(partitions.astype(np.uint16) if present[-1] < 1 << 16 else partitions, kind="stable")
    return table.take(pa.array(order)), slices


__all__ = ["SEED", "hash_values", "hash_with_numpy", "key_hasher", "partition_of_key", "partition_of_keys", "split"]
