"""Damage of a segment's file never comes back as data."""

from __future__ import annotations

import functools
import io
import random
import zlib
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.segments import footer_checksum
from tests.unit.segment_files import KEY, SCHEMA, TABLE, foreign, read_back, read_from, with_checksum
from txnlog.common.limits import MAX_FOOTER_BYTES
from txnlog.data import parquet_pages, segment_file
from txnlog.data.segment_file import decode, decode_from, encode
from txnlog.errors import CorruptionError


def read_exactly(data: bytes, checksum: str, size_bytes: int) -> pa.Table:
    return decode(data, checksum, schema=SCHEMA, rows=TABLE.num_rows, key=KEY, size_bytes=size_bytes)


FOREIGN = {
    "snappy, plain": foreign(TABLE, compression="snappy", use_dictionary=False, store_schema=False),
    "zstd, dictionary": foreign(TABLE, compression="zstd", use_dictionary=True, store_schema=False),
    "pages of version 2": foreign(TABLE, compression="snappy", data_page_version="2.0", store_schema=False),
    "many small pages": foreign(
        pa.table({"id": range(120), "name": [f"n{i % 50}" for i in range(120)]}),
        compression="none",
        data_page_size=100,
        write_batch_size=20,
        dictionary_pagesize_limit=200,
        row_group_size=60,
        store_schema=False,
        write_page_index=True,
    ),
}


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_a_file_is_found(bit):
    segment = encode(TABLE)
    for position in range(len(segment.data)):
        damaged = bytearray(segment.data)
        damaged[position] ^= 1 << bit
        with pytest.raises(CorruptionError, match=KEY):
            read_back(bytes(damaged), segment.checksum, TABLE)


@pytest.fixture
def parsed_once(monkeypatch):
    """A footer that comes again is not parsed again: most of what it takes to look at one file with thousands of flips.

    Nothing else is kept: a footer is parsed where its checksum is right only, and what it says is never changed.
    """
    monkeypatch.setattr(segment_file, "parse_footer", functools.cache(parquet_pages.parse_footer))


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_flipped_bit_of_a_file_known_by_its_footer_never_gives_other_rows(kind, parsed_once):
    data = FOREIGN[kind]
    checksum = footer_checksum(data)
    table = pq.read_table(io.BytesIO(data))
    assert read_back(data, checksum, table).equals(table)
    outcomes: Counter[str] = Counter()
    harmless: set[int] = set()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                result = read_back(bytes(damaged), checksum, table)
            except CorruptionError as error:
                assert KEY in str(error)  # noqa: PT017 - a context manager for each bit would take most of the time
                outcomes["found"] += 1
                continue
            assert result.equals(table), f"bit {bit} of byte {position}"
            harmless.add(position)
    assert outcomes["found"] > 6 * len(data)
    # What may change unseen: statistics in page headers and the page index, which readers of rows do not use.
    assert len(harmless) < len(data) // 4


def test_damage_of_other_columns_does_not_matter_to_a_file_known_by_its_footer():
    data = FOREIGN["snappy, plain"]
    checksum = footer_checksum(data)
    column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(1)
    damaged = bytearray(data)
    damaged[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    with pytest.raises(CorruptionError, match="checksum"):
        read_back(bytes(damaged), checksum, TABLE)
    assert read_back(bytes(damaged), checksum, TABLE, ["id"]).equals(TABLE.select(["id"]))


def test_many_damaged_bytes_are_found_too(parsed_once):
    dice = random.Random(7)
    for data in FOREIGN.values():
        table = pq.read_table(io.BytesIO(data))
        checksum = footer_checksum(data)
        assert read_back(data, checksum, table).equals(table)
        for _ in range(500):
            damaged = bytearray(data)
            start = dice.randrange(len(data))
            for position in range(start, min(len(data), start + dice.randrange(1, 40))):
                damaged[position] = dice.randrange(256)
            try:
                result = read_back(bytes(damaged), checksum, table)
            except CorruptionError:
                continue
            assert result.equals(table)


def test_pages_without_a_checksum_are_refused_where_only_the_footer_is_known():
    data = foreign(TABLE, write_page_checksum=False)
    with pytest.raises(CorruptionError, match="page's header has not the fields"):
        read_back(data, footer_checksum(data), TABLE)


def test_every_truncation_is_found():
    segment = encode(TABLE)
    checksums = (segment.checksum, footer_checksum(segment.data))
    for length in range(len(segment.data)):
        for checksum in checksums:
            with pytest.raises(CorruptionError, match=KEY):
                read_back(segment.data[:length], checksum, TABLE)
            with pytest.raises(CorruptionError, match=KEY):
                decode_from(
                    io.BytesIO(segment.data[:length]),
                    checksum,
                    size_bytes=len(segment.data),
                    schema=SCHEMA,
                    rows=12,
                    key=KEY,
                )


def test_a_file_that_grew_or_was_swapped_is_found():
    segment = encode(TABLE)
    other = encode(TABLE.slice(0, 11))
    for data in (segment.data + b"\0", b"\0" + segment.data, segment.data * 2, other.data, b""):
        for checksum in (segment.checksum, footer_checksum(segment.data)):
            with pytest.raises(CorruptionError, match=KEY):
                read_exactly(data, checksum, len(segment.data))
            options: dict[str, Any] = {"size_bytes": len(segment.data), "schema": SCHEMA, "rows": 12, "key": KEY}
            try:
                # Through a file only what is wanted is read: bytes behind the end that the log knows are none of ours.
                assert decode_from(io.BytesIO(data), checksum, **options).equals(TABLE)
            except CorruptionError as error:
                assert KEY in str(error)  # noqa: PT017 - it may do either
            else:
                assert data[: len(segment.data)] == segment.data


def test_another_count_of_rows_is_damage():
    segment = encode(TABLE)
    for checksum in (segment.checksum, footer_checksum(segment.data)):
        for columns in (None, ["id"], []):
            with pytest.raises(CorruptionError, match="it holds 12 rows, the log says 13"):
                decode(segment.data, checksum, schema=SCHEMA, rows=13, columns=columns, key=KEY)


@pytest.mark.parametrize("checksum", ["", "crc32", "md5:00000000", "crc32:0", "crc32:ZZZZZZZZ", "footer-crc32:"])
def test_a_checksum_of_an_unknown_kind_proves_nothing(checksum):
    with pytest.raises(CorruptionError, match=KEY):
        read_back(encode(TABLE).data, checksum, TABLE)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_damage_even_with_the_right_checksum(data, framed):
    data = b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1" if framed else data
    checksums = [with_checksum(data), "footer-crc32:00000000"]
    if framed:
        checksums.append(footer_checksum(data))
    for checksum in checksums:
        with pytest.raises(CorruptionError, match=KEY):
            read_back(data, checksum, TABLE)
        with pytest.raises(CorruptionError, match=KEY):
            read_from(data, checksum, TABLE)


@pytest.mark.parametrize("length", [0, 1, 2**16, MAX_FOOTER_BYTES, MAX_FOOTER_BYTES + 1, 2**31, 2**32 - 1])
def test_a_footer_that_lies_about_its_length_is_damage(length):
    data = encode(TABLE).data[:-8] + length.to_bytes(4, "little") + b"PAR1"
    tail = data[-(length + 8) :]
    checksums = [with_checksum(data), f"footer-crc32:{zlib.crc32(tail):08x}", f"footer-crc32:{zlib.crc32(data):08x}"]
    for checksum in checksums:
        for read in (read_back, read_from):
            with pytest.raises(CorruptionError, match=KEY):
                read(data, checksum, TABLE)


@pytest.mark.parametrize(
    "footer",
    [
        b"\x00",
        b"\x19" * 1000,  # lists of lists of lists
        b"\x1c" * 1000,  # structs of structs of structs
        b"\x29\xfc\xff\xff\xff\xff\x0f",  # a list of four billion structs
        b"\x18\xff\xff\xff\xff\x0f",  # a text of four billion bytes
        b"\x15" + b"\xff" * 50,  # a number without end
        b"\x16\x00\x19\x0c\x19\x0c\x00",
        b"\x15\x02\x19\x1c\x15\x00\x00\x16\x00\x19\x1c\x19\x1c\x00\x16\x00\x26\x00\x00\x00",
    ],
)
def test_a_hostile_footer_is_damage_even_with_the_right_checksum(footer):
    data = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    for checksum in (with_checksum(data), footer_checksum(data)):
        with pytest.raises(CorruptionError, match=KEY):
            read_back(data, checksum, TABLE)


def test_mutated_files_with_the_right_checksum_give_rows_or_one_error():
    dice = random.Random(11)
    files = [encode(TABLE).data, FOREIGN["zstd, dictionary"], FOREIGN["pages of version 2"]]
    for _ in range(3000):
        data = bytearray(dice.choice(files))
        footer = int.from_bytes(data[-8:-4], "little")
        for _ in range(dice.choice((1, 1, 2, 5))):
            position = len(data) - 9 - dice.randrange(footer) if dice.random() < 0.7 else dice.randrange(len(data))
            data[position] = dice.randrange(256) if dice.random() < 0.5 else data[position] ^ (1 << dice.randrange(8))
        mutated = bytes(data)
        checksums = [with_checksum(mutated)]
        if mutated[-4:] == b"PAR1":
            checksums.append(footer_checksum(mutated))
        for checksum in checksums:
            try:
                result = read_back(mutated, checksum, TABLE)
            except CorruptionError:
                continue
            assert result.num_rows == 12
            assert result.schema.equals(SCHEMA)
