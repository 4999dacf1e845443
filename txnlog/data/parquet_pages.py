"""The pages of a Parquet file against its footer, for files of which the log knows no more than the footer's checksum.

Those are files that Spark itself may write; no writer of ours does yet (decision 0007). The footer is covered by the
log, the bodies of pages by checksums of their own; between the two lie the page *headers*, which nothing covers, and
one flipped bit there can turn plain values into dictionary indices. So every header of the wanted columns is compared
with the footer: pages fill their column chunk to the byte, sizes and counts add up, encodings are the announced ones,
each body has its checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from txnlog.common.format_limits import MAX_SCHEMA_DEPTH

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""Length of the footer and magic, at the end of every file."""

_MAX_DEPTH: Final = 32
_MAX_SCHEMA_DEPTH: Final = 3 * MAX_SCHEMA_DEPTH + 1
"""A list or map takes three levels in Parquet."""

_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_HEADER_OF_PAGE: Final = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}
_IS_COMPRESSED: Final = 7
# Of each header: the fields that must be there, and those that may (is_sorted, statistics; is_compressed, which Spark
# 4.0 leaves out where it is true).
_FIELDS: Final = {
    _DATA_PAGE: ({1, 2, 3, 4}, {5}),
    _DICTIONARY_PAGE: ({1, 2}, {3}),
    _DATA_PAGE_V2: ({1, 2, 3, 4, 5, 6}, {_IS_COMPRESSED, 8}),
}
_LEVEL_ENCODINGS: Final = frozenset({3, 4})  # RLE, BIT_PACKED
_DICTIONARY_ENCODINGS: Final = frozenset({0, 2})  # PLAIN, PLAIN_DICTIONARY
_REQUIRED, _REPEATED = 0, 2
_FIXED: Final = 7
_FIXED_WIDTHS: Final = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}

Value = Any
Struct = dict[int, Value]


class DamagedError(ValueError):
    """The bytes contradict themselves; callers turn it into CorruptionError, with the key."""


# --- Thrift's compact protocol, as far as Parquet needs it ------------------------------------------------------------


class _Reader:
    """A cursor over bytes; every fault is DamagedError."""

    __slots__ = ("data", "end", "position", "wide_from")

    def __init__(self, data: memoryview, position: int, *, wide_from: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.wide_from = wide_from
        """The depth of structures from which numbers may have another width than 32 bits."""

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
        if kind == 5:
            return self.number()
        if kind in {3, 4, 6}:
            # A reader that knows the field passes over one of another width: it would be missing.
            if depth < self.wide_from:
                raise DamagedError("a number of another width")
            return self.byte() if kind == 3 else self.number()
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
class Leaf:
    """A Parquet column of the schema: physical type, width of one of fixed length, highest levels."""

    physical_type: int
    type_length: int
    definition_level: int
    repetition_level: int


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of one row group, as the footer describes it."""

    column: str
    start: int
    size_bytes: int
    uncompressed_bytes: int
    values: int
    rows: int
    leaf: Leaf
    encodings: frozenset[int]
    pages: Counter[tuple[bool, int]] | None
    """How many pages of ``(dictionary or not, encoding)``; None where the writer did not say."""


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
    reader = _Reader(memoryview(footer), 0)
    meta = reader.struct()
    leaves: list[Leaf] = []
    elements = iter(_get(meta, 2, list))
    _walk(elements, next(elements, None), leaves, 0, 0, 0)
    chunks: list[ColumnChunk] = []
    total = 0
    for group in _get(meta, 4, list):
        rows = _count(group, 3)
        total += rows
        columns = _get(group, 1, list)
        if len(columns) != len(leaves):
            raise DamagedError("a row group has other columns than the schema")
        chunks += [_chunk(column, rows, leaf, footer_start) for column, leaf in zip(columns, leaves, strict=True)]
    rows = _count(meta, 3)
    if rows != total:
        raise DamagedError("the row groups do not add up to the file's rows")
    return Footer(rows, tuple(chunks))


def _walk(
    elements: Iterator[Value], element: Value, leaves: list[Leaf], definition: int, repetition: int, depth: int
) -> None:
    """Collect the leaves below an element of the schema, which lists every group before its children."""
    if depth > _MAX_SCHEMA_DEPTH or not isinstance(element, dict):
        raise DamagedError("a schema that is cut short or nested too deep")
    repeated = _count(element, 3, 0) if depth else _REQUIRED
    definition += repeated != _REQUIRED
    repetition += repeated == _REPEATED
    if 1 in element:
        leaves.append(Leaf(_count(element, 1), _count(element, 2, 0), definition, repetition))
        return
    for _ in range(_count(element, 5)):
        child = next(elements, None)
        _walk(elements, child, leaves, definition, repetition, depth + 1)


def _chunk(column: Struct, rows: int, leaf: Leaf, footer_start: int) -> ColumnChunk:
    if _get(column, 1, bytes, b""):
        raise DamagedError("a column lies in another file")
    meta = _get(column, 3, dict)
    if _get(meta, 1, int) != leaf.physical_type:
        raise DamagedError("a column has another type than the schema says")
    start = _count(meta, 9)
    if 0 < (dictionary := _count(meta, 11, 0)) < start:
        start = dictionary
    size = _count(meta, 7)
    if size and not len(MAGIC) <= start <= footer_start - size:
        raise DamagedError("a column lies outside the file")
    pages: Counter[tuple[bool, int]] | None = None
    if 13 in meta:
        pages = Counter()
        for item in _get(meta, 13, list):
            pages[_count(item, 1) == _DICTIONARY_PAGE, _count(item, 2)] += _count(item, 3)
    return ColumnChunk(
        column=_column_name(meta),
        start=start,
        size_bytes=size,
        uncompressed_bytes=_count(meta, 6),
        values=_count(meta, 5),
        rows=rows,
        leaf=leaf,
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
    pages: Counter[tuple[bool, int]] = Counter()
    values = rows = uncompressed = position = 0
    second = False
    while position < len(data):
        reader = _Reader(data, position, wide_from=2)
        header = reader.struct()
        size = _count(header, 3)
        body = reader.position
        if size > len(data) - body:
            raise DamagedError("a page runs over the end of its column")
        kind = _count(header, 1)
        if kind not in _HEADER_OF_PAGE or header.keys() != {1, 2, 3, 4, _HEADER_OF_PAGE[kind]}:
            raise DamagedError("a page's header has not the fields that it must have")
        crc = zlib.crc32(data[body : body + size])
        if _get(header, 4, int) != crc - ((crc & 1 << 31) << 1):
            raise DamagedError("a page's checksum differs")
        details = _get(header, _HEADER_OF_PAGE[kind], dict)
        must, may = _FIELDS[kind]
        if details.keys() - may != must:
            raise DamagedError("a page's header has not the fields that it must have")
        encoding = _check_page(chunk, kind, details, header, first=not pages)
        if kind == _DATA_PAGE_V2:
            second = True
            rows += _count(details, 3)
            _check_levels(chunk.leaf, details, data[body : body + size])
        pages[kind == _DICTIONARY_PAGE, encoding] += 1
        if kind != _DICTIONARY_PAGE:
            values += _count(details, 1)
        uncompressed += body - position + _count(header, 2)
        position = body + size
    if values != chunk.values or uncompressed != chunk.uncompressed_bytes:
        raise DamagedError("the pages do not add up to their column")
    if second and rows != chunk.rows:
        raise DamagedError("the pages do not add up to the rows of their column")
    if chunk.pages is not None and +pages != +chunk.pages:
        raise DamagedError("the pages have other encodings than their column says")


def _check_page(chunk: ColumnChunk, kind: int, details: Struct, header: Struct, *, first: bool) -> int:
    """Check the type's own header and return the page's encoding."""
    size, uncompressed = _count(header, 3), _count(header, 2)
    if kind == _DICTIONARY_PAGE:
        encoding = _count(details, 2)
        if not first or encoding not in _DICTIONARY_ENCODINGS:
            raise DamagedError("a dictionary is not where and how it should be")
        leaf = chunk.leaf
        width = leaf.type_length if leaf.physical_type == _FIXED else _FIXED_WIDTHS.get(leaf.physical_type)
        if width and _count(details, 1) * width != uncompressed:
            raise DamagedError("a dictionary has another length than its page")
    elif kind == _DATA_PAGE:
        encoding = _count(details, 2)
        if _count(details, 3) not in _LEVEL_ENCODINGS or _count(details, 4) not in _LEVEL_ENCODINGS:
            raise DamagedError("a page's levels have an unknown encoding")
    else:
        encoding = _count(details, 4)
        compressed = _IS_COMPRESSED not in details or _get(details, _IS_COMPRESSED, bool)
        if not compressed and size != uncompressed:
            raise DamagedError("a page that is not compressed has two sizes")
    if encoding not in chunk.encodings:
        raise DamagedError("a page has an encoding that its column does not have")
    return encoding


def _check_levels(leaf: Leaf, details: Struct, body: memoryview) -> None:
    """Check the lengths of levels, which lie uncompressed before the values of a page of the second version."""
    position = 0
    for highest, length in (
        (leaf.repetition_level, _count(details, 6)),
        (leaf.definition_level, _count(details, 5)),
    ):
        if length > len(body) - position:
            raise DamagedError("the levels of a page run over its end")
        if _level_values(body[position : position + length], highest.bit_length(), _count(details, 1)) != length:
            raise DamagedError("the levels of a page have another length than its header says")
        position += length


def _level_values(data: memoryview, bits: int, count: int) -> int:
    """How many bytes so many levels take, as runs of one value and as groups of eight packed ones."""
    if not bits:
        return 0
    reader = _Reader(data, 0)
    while count > 0:
        head = reader.varint()
        groups = head >> 1
        if not groups:
            raise DamagedError("an empty run of levels")
        reader.position += groups * bits if head & 1 else -(-bits // 8)
        count -= groups * 8 if head & 1 else groups
    return reader.position


__all__ = [
    "MAGIC",
    "TAIL_BYTES",
    "ColumnChunk",
    "DamagedError",
    "Footer",
    "Leaf",
    "check_chunk",
    "footer_length",
    "parse_footer",
]
