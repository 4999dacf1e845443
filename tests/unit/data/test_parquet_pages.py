"""Pages are what their footer announced, to the last bit of their headers that a reader of rows looks at."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnlog.data.parquet_pages import (
    ColumnChunk,
    DamagedError,
    _get,
    _Reader,
    check_chunk,
    footer_length,
    parse_footer,
)

TABLE = pa.table(
    {
        "id": pa.array([i // 3 for i in range(60)], pa.int64()),
        "name": [None if i % 5 == 4 else f"n{i % 3}" for i in range(60)],
        "tags": [[f"t{i % 4}"] * (i % 3) for i in range(60)],
    }
)
WRITERS: dict[str, dict[str, Any]] = {
    "plain": {"compression": "snappy", "use_dictionary": False},
    "dictionary": {"compression": "zstd"},
    "second version": {"compression": "snappy", "data_page_version": "2.0"},
    "second version, as it is": {"compression": "none", "data_page_version": "2.0", "use_dictionary": False},
    "many pages": {
        "compression": "none",
        "data_page_size": 50,
        "write_batch_size": 10,
        "dictionary_pagesize_limit": 30,
    },
}
# What may change in a header without changing rows, by (type of page, field): whether there are statistics; the count
# of nulls, which levels tell as well; the length of a dictionary of texts, beyond which their reader does not look.
UNSEEN = {(0, 5), (3, 8), (3, 2), (2, 1)}


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, write_page_checksum=True, write_statistics=False, **options)
    return sink.getvalue()


def chunks_of(data: bytes) -> list[tuple[ColumnChunk, bytes]]:
    start = len(data) - 8 - footer_length(data[-8:])
    footer = parse_footer(data[start:-8], start)
    assert footer.rows == 60
    return [(chunk, data[chunk.start : chunk.start + chunk.size_bytes]) for chunk in footer.chunks]


def headers(data: bytes) -> list[tuple[dict[int, Any], int]]:
    """The headers of the pages of a chunk, and where their bodies begin."""
    result = []
    position = 0
    while position < len(data):
        reader = _Reader(memoryview(data), position)
        header = reader.struct()
        result.append((header, reader.position))
        position = reader.position + _get(header, 3, int)
    return result


@pytest.mark.parametrize("kind", WRITERS)
def test_pages_as_they_were_written_are_right(kind):
    chunks = chunks_of(written(**WRITERS[kind]))
    assert [chunk.column for chunk, _ in chunks] == ["id", "name", "tags"]
    assert [(c.leaf.definition_level, c.leaf.repetition_level) for c, _ in chunks] == [(1, 0), (1, 0), (3, 1)]
    for chunk, data in chunks:
        check_chunk(chunk, memoryview(data))
    if kind == "many pages":
        assert len(headers(chunks[0][1])) > 3


@pytest.mark.parametrize("kind", WRITERS)
def test_every_flipped_bit_is_found_but_for_what_rows_do_not_depend_on(kind):
    for chunk, data in chunks_of(written(**WRITERS[kind])):
        right = headers(data)
        for position in range(len(data)):
            for bit in range(8):
                damaged = bytearray(data)
                damaged[position] ^= 1 << bit
                try:
                    check_chunk(chunk, memoryview(damaged))
                except DamagedError:
                    continue
                for (before, body_before), (after, body_after) in zip(right, headers(bytes(damaged)), strict=True):
                    assert body_before == body_after
                    fields = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
                    assert len(fields) <= 1
                    for field in fields:
                        inner = {k for k in before[field] if before[field][k] != after[field].get(k)}
                        assert (before[1], *inner) in UNSEEN or {(before[1], k) for k in inner} <= UNSEEN


def test_a_page_of_the_second_version_need_not_say_that_it_is_compressed():
    """Spark 4.0 does not: true is what Parquet takes a missing field for."""
    for chunk, data in chunks_of(written(**WRITERS["second version"], use_dictionary=False)):
        ((header, body),) = headers(data)
        assert (header[8][7], data[body - 5 : body]) == (True, b"\x11\x1c\0\0\0")
        shorter = data[: body - 5] + b"\x2c\0\0\0" + data[body:]  # of statistics the id is told by what is before
        other = replace(chunk, size_bytes=len(shorter), uncompressed_bytes=chunk.uncompressed_bytes - 1)
        check_chunk(other, memoryview(shorter))
        ((without, _),) = headers(shorter)
        assert 7 not in without[8]


def test_pages_that_do_not_fill_their_column_are_damage():
    for options in WRITERS.values():
        for chunk, data in chunks_of(written(**options)):
            first, body = headers(data)[0]
            page = data[: body + _get(first, 3, int)]
            for changed in (data + page, page + data, data[len(page) :], b""):
                other = ColumnChunk(
                    column=chunk.column,
                    start=chunk.start,
                    size_bytes=len(changed),
                    uncompressed_bytes=chunk.uncompressed_bytes,
                    values=chunk.values,
                    rows=chunk.rows,
                    leaf=chunk.leaf,
                    encodings=chunk.encodings,
                    pages=None,
                )
                with pytest.raises(DamagedError):
                    check_chunk(other, memoryview(changed))


@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_a_part_of_a_footer_is_damage(kind):
    data = written(**WRITERS[kind])
    start = len(data) - 8 - footer_length(data[-8:])
    footer = data[start:-8]
    for end in range(len(footer)):
        with pytest.raises(DamagedError):
            parse_footer(footer[:end], start)
        with pytest.raises(DamagedError):
            parse_footer(footer[end + 1 :], start)


def test_columns_lie_before_the_footer():
    data = written()
    start = len(data) - 8 - footer_length(data[-8:])
    with pytest.raises(DamagedError, match="outside the file"):
        parse_footer(data[start:-8], start - 1)


def test_what_is_no_parquet_file_has_no_footer():
    for tail in (b"", b"PAR1", b"\0\0\0\0PARE", b"PAR1\0\0\0\0"):
        with pytest.raises(DamagedError):
            footer_length(tail)
