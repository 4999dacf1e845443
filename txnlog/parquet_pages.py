"""The pages of a Parquet file against its footer, for files of which the log knows no more than the footer's checksum.

Those are the files that Spark's own Parquet writer made. The footer is covered by the log, the bodies of pages by
checksums of their own; between the two lie the page *headers*, which nothing covers, and one flipped bit there can turn
plain values into dictionary indices. So every header of the wanted columns is compared with the footer: pages fill
their column chunk to the byte, sizes and counts add up, encodings are the announced ones, each body has its checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""Length of the footer and magic, at the end of every file."""

_MAX_DEPTH: Final = 32
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_HEADER_OF_PAGE: Final = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
_LEVEL_ENCODINGS: Final = frozenset({3, 4})  # RLE, BIT_PACKED
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8
_FIXED_WIDTHS: Final = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}

Value = Any
Struct = dict[int, Value]


class DamagedError(ValueError):
    """The bytes contradict themselves; callers turn it into CorruptionError, with the key."""


# --- Thrift's compact protocol, as far as Parquet needs it ------------------------------------------------------------


class _Reader:
    """A cursor over bytes; every fault is DamagedError."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def byte(self) -> int:
        if self.position >= self.end:
            raise DamagedError("a structure runs over its end")
        self.position += 1
        return self.data[self.position - 1]

    def varint(self) -> int:
        result = shift = 0
        while shift < 70:
            byte = self.byte()
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7
        raise DamagedError("a number is too long")

    def number(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        length = self.varint()
        if length > self.end - self.position:
            raise DamagedError("a text runs over its end")
        self.position += length
        return bytes(self.data[self.position - length : self.position])

    def double(self) -> float:
        if self.end - self.position < 8:
            raise DamagedError("a number runs over its end")
        self.position += 8
        result: float = struct.unpack_from("<d", self.data, self.position - 8)[0]
        return result

    def value(self, kind: int, depth: int) -> Value:
        if kind in {1, 2}:
            return kind == 1
        if kind == 3:
            return self.byte()
        if kind in {4, 5, 6}:
            return self.number()
        if kind == 7:
            return self.double()
        if kind == 8:
            return self.binary()
        if kind in {9, 10}:
            return self.items(depth + 1)
        if kind == 12:
            return self.struct(depth + 1)
        raise DamagedError("a field of unknown type")

    def items(self, depth: int) -> list[Value]:
        if depth > _MAX_DEPTH:
            raise DamagedError("structures nested too deep")
        head = self.byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self.varint()
        if count > self.end - self.position:
            raise DamagedError("a list runs over its end")
        if kind in {1, 2}:
            return [self.byte() == 1 for _ in range(count)]
        return [self.value(kind, depth) for _ in range(count)]

    def struct(self, depth: int = 0) -> Struct:
        if depth > _MAX_DEPTH:
            raise DamagedError("structures nested too deep")
        result: Struct = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.number()
            if field in result:
                raise DamagedError("a field is there twice")
            result[field] = self.value(head & 15, depth)
        return result


def _get(fields: Value, field: int, kind: type, default: Value = None) -> Value:
    value = fields.get(field, default) if type(fields) is dict else None
    if type(value) is not kind:
        raise DamagedError(f"field {field} is missing or of another type")
    return value


def _count(fields: Value, field: int, default: Value = None) -> int:
    value: int = _get(fields, field, int, default)
    if value < 0:
        raise DamagedError(f"field {field} is negative")
    return value


# --- the footer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group, as the footer describes it."""

    column: str
    start: int
    size_bytes: int
    uncompressed_bytes: int
    values: int
    rows: int
    physical_type: int
    type_length: int
    encodings: frozenset[int]
    pages: Counter[tuple[int, int]] | None
    """How many pages of ``(type, encoding)``; None where the writer did not say."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a footer says about rows and column chunks."""

    rows: int
    chunks: tuple[ColumnChunk, ...]


def footer_length(tail: bytes) -> int:
    """Bytes of the footer by the last eight bytes of a file. Raises DamagedError where that is no Parquet file."""
    if len(tail) < TAIL_BYTES or tail[-4:] != MAGIC:
        raise DamagedError("the file does not end as a Parquet file does")
    return int.from_bytes(tail[-8:-4], "little")


def parse_footer(footer: bytes, footer_start: int) -> Footer:
    """The column chunks of a footer (without length and magic) that begins at ``footer_start``. Raises DamagedError."""
    reader = _Reader(memoryview(footer), 0, len(footer))
    meta = reader.struct()
    # Only leaves have a type: those are the columns, in the same order as in every row group.
    leaves = [
        (_count(item, 1), _count(item, 2, 0)) for item in _get(meta, 2, list) if isinstance(item, dict) and 1 in item
    ]
    chunks: list[ColumnChunk] = []
    total = 0
    for group in _get(meta, 4, list):
        rows = _count(group, 3)
        total += rows
        columns = _get(group, 1, list)
        if len(columns) != len(leaves):
            raise DamagedError("a row group has other columns than the schema")
        chunks += [
            _chunk(column, rows, kind, length, footer_start)
            for column, (kind, length) in zip(columns, leaves, strict=True)
        ]
    rows = _count(meta, 3)
    if rows != total:
        raise DamagedError("the row groups do not add up to the file's rows")
    return Footer(rows, tuple(chunks))


def _chunk(column: Struct, rows: int, kind: int, length: int, footer_start: int) -> ColumnChunk:
    if _get(column, 1, bytes, b""):
        raise DamagedError("a column lies in another file")
    meta = _get(column, 3, dict)
    if _get(meta, 1, int) != kind:
        raise DamagedError("a column has another type than the schema says")
    start = _count(meta, 9)
    if 0 < (dictionary := _count(meta, 11, 0)) < start:
        start = dictionary
    size = _count(meta, 7)
    if size and not len(MAGIC) <= start <= footer_start - size:
        raise DamagedError("a column lies outside the file")
    pages: Counter[tuple[int, int]] | None = None
    if 13 in meta:
        pages = Counter()
        for item in _get(meta, 13, list):
            pages[_count(item, 1), _count(item, 2)] += _count(item, 3)
    return ColumnChunk(
        column=_column_name(meta),
        start=start,
        size_bytes=size,
        uncompressed_bytes=_count(meta, 6),
        values=_count(meta, 5),
        rows=rows,
        physical_type=kind,
        type_length=length,
        encodings=frozenset(item for item in _get(meta, 2, list) if type(item) is int),
        pages=pages,
    )


def _column_name(meta: Struct) -> str:
    """The top-level column that a leaf belongs to."""
    path = _get(meta, 3, list)
    try:
        return path[0].decode()
    except (IndexError, AttributeError, UnicodeDecodeError):
        raise DamagedError("a column without a name") from None


# --- the pages --------------------------------------------------------------------------------------------------------


def check_chunk(chunk: ColumnChunk, data: memoryview) -> None:
    """Raise DamagedError unless the bytes of a column chunk are the pages that the footer announced."""
    assert len(data) == chunk.size_bytes, "the bytes of the whole chunk"
    pages: Counter[tuple[int, int]] = Counter()
    values = rows = uncompressed = position = 0
    while position < len(data):
        reader = _Reader(data, position, len(data))
        header = reader.struct()
        size = _count(header, 3)
        body = reader.position
        if size > len(data) - body:
            raise DamagedError("a page runs over the end of its column")
        kind = _count(header, 1)
        if kind not in _HEADER_OF_PAGE or header.keys() != {1, 2, 3, 4, _HEADER_OF_PAGE[kind]}:
            raise DamagedError("a page's header has not the fields that it must have")
        if zlib.crc32(data[body : body + size]) != _get(header, 4, int) & 0xFFFFFFFF:
            raise DamagedError("a page's checksum differs")
        details = _get(header, _HEADER_OF_PAGE[kind], dict)
        encoding = _check_page(chunk, kind, details, header, first=not pages)
        pages[kind, encoding] += 1
        if kind != _DICTIONARY_PAGE:
            values += _count(details, 1)
            rows += _count(details, 3) if kind == _DATA_PAGE_V2 else 0
        uncompressed += body - position + _count(header, 2)
        position = body + size
    if values != chunk.values or uncompressed != chunk.uncompressed_bytes:
        raise DamagedError("the pages do not add up to their column")
    if any(kind == _DATA_PAGE_V2 for kind, _ in pages) and rows != chunk.rows:
        raise DamagedError("the pages do not add up to the rows of their column")
    if chunk.pages is not None and +pages != +chunk.pages:
        raise DamagedError("the pages have other encodings than their column says")


def _check_page(chunk: ColumnChunk, kind: int, details: Struct, header: Struct, *, first: bool) -> int:
    """Check the type's own header and return the page's encoding."""
    size, uncompressed = _count(header, 3), _count(header, 2)
    if kind == _DICTIONARY_PAGE:
        encoding = _count(details, 2)
        if not first or encoding not in {_PLAIN, _PLAIN_DICTIONARY}:
            raise DamagedError("a dictionary is not where and how it should be")
        width = chunk.type_length if chunk.physical_type == 7 else _FIXED_WIDTHS.get(chunk.physical_type)
        if width and _count(details, 1) * width != uncompressed:
            raise DamagedError("a dictionary has another length than its page")
    elif kind == _DATA_PAGE:
        encoding = _count(details, 2)
        if _count(details, 3) not in _LEVEL_ENCODINGS or _count(details, 4) not in _LEVEL_ENCODINGS:
            raise DamagedError("a page's levels have an unknown encoding")
    else:
        encoding = _count(details, 4)
        levels = _count(details, 5) + _count(details, 6)
        if levels > min(size, uncompressed) or (not _get(details, 7, bool, default=True) and size != uncompressed):
            raise DamagedError("the parts of a page do not add up")
        if _count(details, 2) > _count(details, 1) or _count(details, 3) > _count(details, 1):
            raise DamagedError("the counts of a page contradict each other")
    if encoding not in chunk.encodings:
        raise DamagedError("a page has an encoding that its column does not have")
    return encoding


__all__ = [
    "MAGIC",
    "TAIL_BYTES",
    "ColumnChunk",
    "DamagedError",
    "Footer",
    "check_chunk",
    "footer_length",
    "parse_footer",
]
