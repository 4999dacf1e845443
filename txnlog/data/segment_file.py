"""Segments as bytes: Parquet written with checksums, and read so that damage never passes for data.

Two ways to be sure of a file, by the checksum that the log holds:

- ``crc32:<8 hex>`` of the whole file, wherever the writer had its bytes: all of ours;
- ``footer-crc32:<8 hex>`` from the footer's first byte to the end of the file, for files that Spark itself may write;
  no writer of ours does yet (decision 0007). Pages then prove themselves, by their own checksums and by headers that
  agree with the footer (``txnlog.data.parquet_pages``).

This module runs on Spark's executors too: it needs the standard library, PyArrow and modules that need no more.
"""

from __future__ import annotations

import contextlib
import mmap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from txnlog.common.limits import MAX_FOOTER_BYTES, SMALL_PRODUCE_BYTES, TARGET_SEGMENT_BYTES
from txnlog.data.hidden_nulls import storable
from txnlog.data.parquet_pages import (
    MAGIC,
    TAIL_BYTES,
    ColumnChunk,
    DamagedError,
    check_chunk,
    footer_length,
    parse_footer,
)
from txnlog.data.segment_columns import STORED_COLUMNS, read_columns
from txnlog.data.segment_statistics import Reals, from_footer, measured, reals_of
from txnlog.errors import CorruptionError, SchemaMismatch

if TYPE_CHECKING:  # msgspec is more than executors have
    from txnlog.fold.state import Statistics

ROW_GROUP_BYTES: Final = 32 << 20
"""Arrow bytes a row group of a streamed segment: what a writer holds uncompressed, and a reader at once."""

DICTIONARY_ROWS: Final = 1_000
"""Rows from which on a dictionary is worth its set-up."""

SAMPLE_ROWS: Final = 1 << 15
MOST_DISTINCT: Final = 0.9
"""Of so many first rows, the share of different values up to which a column gets a dictionary."""

TAIL_GUESS_BYTES: Final = 64 << 10
"""Read first of a file of which only some columns are wanted: nearly every footer is shorter."""

GAP_BYTES: Final = 1 << 20
"""Column chunks closer than this are read in one go."""

_WHOLE: Final = "crc32:"
_FOOTER: Final = "footer-crc32:"


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment ready to be stored, and what the log says about it."""

    data: bytes
    rows: int
    checksum: str
    statistics: Statistics

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.data)


def _writer(sink: Any, first: pa.Table, statistics: list[str], collected: list[Any], *, small: bool) -> Any:
    # Small files: Snappy costs nothing that can be measured, where Zstandard's set-up alone doubles the time. Big ones:
    # Zstandard's fastest level, a fourth slower than Snappy on numbers and much smaller on text. No Arrow schema in the
    # footer: the topic's schema is in the log.
    return pq.ParquetWriter(
        sink,
        first.schema,
        compression="snappy" if small else "zstd",
        use_dictionary=_with_dictionary(first, numbers=not small),
        write_statistics=statistics or False,
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=collected,
    )


def _with_dictionary(table: pa.Table, *, numbers: bool) -> list[str]:
    """The Parquet columns of a file that get a dictionary, judged by its first rows; ``numbers`` may, too.

    Text without one takes Spark three times as long to read. Values that hardly ever come again only fill it until
    Parquet abandons it: half of the time that writing takes, for a bigger file.
    """
    if table.num_rows < DICTIONARY_ROWS:
        return []
    names: list[str] = []
    for field in table.schema:
        if not pa.types.is_nested(field.type):
            if not numbers and pa.types.is_primitive(field.type):
                continue
            sample = table.column(field.name).slice(0, SAMPLE_ROWS)
            if pc.count_distinct(sample).as_py() > MOST_DISTINCT * len(sample):
                continue
        names += _leaf_paths(field.name, field.type)
    return names


def _with_statistics(schema: pa.Schema, fields: Sequence[pa.Field]) -> list[str]:
    """The columns of which the footer holds bounds.

    Parquet's writer distinguishes columns by their paths as text: to it the column ``a.b`` and the field ``b`` of the
    struct ``a`` are one. There may be a NaN in the field, so neither gets any.
    """
    names = [field.name for field in fields]
    if not any("." in name for name in names):
        return names
    nested = [
        leaf for field in schema if pa.types.is_nested(field.type) for leaf in _leaf_paths(field.name, field.type)
    ]
    return [name for name in names if name not in nested]


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    """The Parquet columns of a type, as their paths are written."""
    if pa.types.is_struct(kind):
        parts = [(child.name, child.type) for child in kind]
    elif pa.types.is_map(kind):
        parts = [("key_value.key", kind.key_type), ("key_value.value", kind.item_type)]
    elif pa.types.is_nested(kind):
        parts = [("list.element", kind.value_type)]
    else:
        return [path]
    return [leaf for name, inner in parts for leaf in _leaf_paths(f"{path}.{name}", inner)]


def _checksum(data: Any) -> str:
    return f"{_WHOLE}{zlib.crc32(data):08x}"


@contextlib.contextmanager
def _writing(writer: Any) -> Iterator[None]:
    """Around what Arrow may refuse to write: whose rows these are hears so."""
    try:
        yield
    except Exception as error:
        writer.is_open = False  # its finalizer would close it, which fails
        if isinstance(error, MemoryError) or not isinstance(error, pa.ArrowException):
            raise
        raise SchemaMismatch(
            f"rows that cannot be written as Parquet: {error}", advice="produce them in another form, or leave them out"
        ) from error


def encode(table: pa.Table) -> EncodedSegment:
    """The rows as one Parquet file. Raises SchemaMismatch where there is none for them."""
    table = storable(table)
    columns = measured(table.schema)
    reals = reals_of(table, columns)
    with_nan = {name for name, found in reals.items() if found.has_nan}
    names = _with_statistics(table.schema, [field for _, field in columns if field.name not in with_nan])
    collected: list[Any] = []
    sink = pa.BufferOutputStream()
    writer = _writer(sink, table, names, collected, small=table.nbytes < SMALL_PRODUCE_BYTES)
    with _writing(writer):
        writer.write_table(table)
        writer.close()
    data = sink.getvalue().to_pybytes()
    statistics = from_footer(collected[0], columns, reals)
    return EncodedSegment(data, table.num_rows, _checksum(data), statistics)


class SegmentWriter:
    """Batches in, segments of about ``target_bytes`` (as Arrow) out, in order. Memory: one row group and one file.

    With a target of None all rows are one segment.
    """

    def __init__(
        self,
        schema: pa.Schema,
        target_bytes: int | None = TARGET_SEGMENT_BYTES,
        row_group_bytes: int | None = None,
    ) -> None:
        assert target_bytes is None or target_bytes > 0, "a segment takes some bytes"
        self.schema = schema
        self._target_bytes = target_bytes
        row_group_bytes = ROW_GROUP_BYTES if row_group_bytes is None else row_group_bytes
        self._row_group_bytes = row_group_bytes if target_bytes is None else min(row_group_bytes, target_bytes)
        self._columns = measured(schema)
        self._pending: list[pa.Table] = []
        self._pending_bytes = 0
        self._start()

    def _start(self) -> None:
        self._sink: Any = None
        self._writer: Any = None
        self._collected: list[Any] = []
        self._rows = 0
        self._bytes = 0
        self._reals: dict[str, Reals] = {}

    def write(self, data: pa.Table | pa.RecordBatch) -> Iterator[EncodedSegment]:
        """Take rows of the writer's schema and give the segments that are full."""
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        for part in _parts_of(table, self._row_group_bytes):
            self._pending.append(part)
            self._pending_bytes += part.nbytes
            if self._pending_bytes >= self._row_group_bytes:
                self._write_row_group()
                if self._target_bytes is not None and self._bytes >= self._target_bytes:
                    yield self._end()

    def finish(self) -> Iterator[EncodedSegment]:
        """Give the last segment, if there are rows for one."""
        if self._pending:
            self._write_row_group()
        if self._rows:
            yield self._end()

    def _write_row_group(self) -> None:
        table = storable(pa.concat_tables(self._pending))
        if self._writer is None:
            self._sink = pa.BufferOutputStream()
            # Of floats none: a NaN may yet come, and what has statistics is settled at the beginning.
            fields = [field for _, field in self._columns if not pa.types.is_floating(field.type)]
            names = _with_statistics(table.schema, fields)
            self._writer = _writer(self._sink, table, names, self._collected, small=False)
        with _writing(self._writer):
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        for name, found in reals_of(table, self._columns).items():
            self._reals[name] = self._reals.get(name, Reals()).joined(found)
        self._rows += table.num_rows
        self._bytes += self._pending_bytes
        self._pending = []
        self._pending_bytes = 0

    def _end(self) -> EncodedSegment:
        self._writer.close()
        data = self._sink.getvalue().to_pybytes()
        statistics = from_footer(self._collected[0], self._columns, self._reals)
        segment = EncodedSegment(data, self._rows, _checksum(data), statistics)
        self._start()
        return segment


def _parts_of(table: pa.Table, target_bytes: int) -> Iterator[pa.Table]:
    """The table in slices of about the target at most."""
    count = min(max(1, -(-table.nbytes // target_bytes)), max(1, table.num_rows))
    step = -(-table.num_rows // count)
    for start in range(0, table.num_rows, max(1, step)):
        yield table.slice(start, step)


# --- reading ----------------------------------------------------------------------------------------------------------


class RandomAccessFile(Protocol):
    """What ``decode_from`` needs of an open file."""

    def seek(self, offset: int, /) -> object:
        """Go to a position from the beginning."""

    def read(self, size: int, /) -> bytes:
        """Read so many bytes; fewer mean that the file ends."""


def decode(
    data: bytes | memoryview,
    checksum: str,
    *,
    schema: pa.Schema,
    rows: int,
    key: str,
    columns: Sequence[str] | None = None,
    size_bytes: int | None = None,
) -> pa.Table:
    """The rows of a segment's file, in the topic's schema, or CorruptionError naming the key.

    ``checksum``, ``rows`` and ``size_bytes`` are what the log says. ``columns`` may name columns of the schema and of
    ``STORED_COLUMNS``; left out, it is the schema's. A column that the file, being older, does not have is null; a
    stored one must be there.
    """
    wanted = _wanted(schema, columns)
    view = memoryview(data)
    try:
        _check_bytes(view, checksum, rows, size_bytes, frozenset(wanted.names))
        return read_columns(pa.py_buffer(view), wanted, rows)
    except DamagedError as damage:
        raise _corruption(key, str(damage)) from None


def decode_verified(data: bytes, *, schema: pa.Schema, rows: int, key: str) -> pa.Table:
    """Like ``decode``, of a file that ``verify`` found to be what the log recorded: its bytes are not checked again."""
    try:
        return read_columns(pa.py_buffer(data), _wanted(schema, None), rows)
    except DamagedError as damage:
        raise _corruption(key, str(damage)) from None


def verify(data: bytes, checksum: str, *, rows: int | None, key: str, size_bytes: int) -> None:
    """Raise CorruptionError naming the key unless the bytes are the file that the log recorded. Decodes no row.

    The arguments are those of ``decode``; ``rows`` is None for who copies files, and knows no more of them. All columns
    are looked at.
    """
    try:
        _check_bytes(memoryview(data), checksum, rows, size_bytes, None)
    except DamagedError as damage:
        raise _corruption(key, str(damage)) from None


def _check_bytes(
    view: memoryview, checksum: str, rows: int | None, size_bytes: int | None, columns: frozenset[str] | None
) -> None:
    """Raise DamagedError for a file that the log did not record; ``columns``: those that are read, None for all."""
    if size_bytes is not None and len(view) != size_bytes:
        raise DamagedError(f"it has {len(view):,} bytes, the log says {size_bytes:,}")
    if checksum.startswith(_WHOLE):
        if _checksum(view) != checksum:
            raise DamagedError("its checksum differs from the one in the log")
        return
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise DamagedError("it does not begin as a Parquet file does")
    for chunk in _checked_footer(view, len(view), checksum, rows):
        if columns is None or chunk.column in columns:
            check_chunk(chunk, view[chunk.start : chunk.start + chunk.size_bytes])


def decode_from(
    file: RandomAccessFile,
    checksum: str,
    *,
    size_bytes: int,
    schema: pa.Schema,
    rows: int,
    key: str,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Like ``decode``, reading no more of a ``footer-crc32:`` file than its footer and the wanted columns.

    ``size_bytes`` is the size that the log knows. What the file itself raises goes to the caller.
    """
    if checksum.startswith(_WHOLE):
        # One byte more than there should be shows a file that grew.
        file.seek(0)
        data = file.read(size_bytes + 1)
        return decode(data, checksum, schema=schema, rows=rows, key=key, columns=columns, size_bytes=size_bytes)
    wanted = _wanted(schema, columns)
    names = frozenset(wanted.names)
    try:
        tail_start = max(0, size_bytes - TAIL_GUESS_BYTES)
        tail = _range(file, tail_start, size_bytes)
        footer_start = size_bytes - TAIL_BYTES - _footer_bytes(memoryview(tail))
        if 0 <= footer_start < tail_start:
            tail = _range(file, footer_start, tail_start) + tail
            tail_start = footer_start
        chunks = [
            chunk for chunk in _checked_footer(memoryview(tail), size_bytes, checksum, rows) if chunk.column in names
        ]
        # An image of the file for the decoder: what is not read stays untouched memory, which costs nothing.
        image = mmap.mmap(-1, size_bytes)
        image[tail_start:] = tail
        for start, end in _ranges(chunks):
            image[start:end] = _range(file, start, end)
        view = memoryview(image)
        for chunk in chunks:
            check_chunk(chunk, view[chunk.start : chunk.start + chunk.size_bytes])
        return read_columns(pa.py_buffer(view), wanted, rows)
    except DamagedError as damage:
        raise _corruption(key, str(damage)) from None


def _range(file: RandomAccessFile, start: int, end: int) -> bytes:
    file.seek(start)
    data = file.read(end - start)
    if len(data) != end - start:
        raise DamagedError("the file is shorter than the log says")
    return data


def _ranges(chunks: Iterable[ColumnChunk]) -> Iterator[tuple[int, int]]:
    """The ranges to read for some column chunks, near ones joined."""
    start = end = 0
    for chunk in sorted(chunks, key=lambda c: c.start):
        if end and chunk.start - end <= GAP_BYTES:
            end = max(end, chunk.start + chunk.size_bytes)
            continue
        if end:
            yield start, end
        start, end = chunk.start, chunk.start + chunk.size_bytes
    if end:
        yield start, end


def _footer_bytes(view: memoryview) -> int:
    length = footer_length(bytes(view[-TAIL_BYTES:]))
    if length > MAX_FOOTER_BYTES:
        raise DamagedError(f"it claims a footer of {length:,} bytes")
    return length


def _checked_footer(tail: memoryview, size_bytes: int, checksum: str, rows: int | None) -> tuple[ColumnChunk, ...]:
    """The column chunks of a file whose footer is the one that the log knows; ``tail`` ends the file and holds it.

    ``rows`` is what the log says; None where it is not asked.
    """
    if not checksum.startswith(_FOOTER):
        raise DamagedError(f"the log gives it a checksum of an unknown kind, {checksum[:32]!r}")
    length = _footer_bytes(tail)
    if length + TAIL_BYTES + len(MAGIC) > size_bytes:
        raise DamagedError("its footer is longer than the file")
    start = len(tail) - TAIL_BYTES - length
    if f"{_FOOTER}{zlib.crc32(tail[start:]):08x}" != checksum:
        raise DamagedError("the checksum of its footer differs from the one in the log")
    footer = parse_footer(bytes(tail[start : start + length]), size_bytes - TAIL_BYTES - length)
    if rows is not None and footer.rows != rows:
        raise DamagedError(f"it holds {footer.rows:,} rows, the log says {rows:,}")
    return footer.chunks


def _wanted(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    return pa.schema([(STORED_COLUMNS if name in STORED_COLUMNS.names else schema).field(name) for name in columns])


def _corruption(key: str, what: str) -> CorruptionError:
    return CorruptionError(f"segment {key!r} is damaged: {what}")


__all__ = [
    "ROW_GROUP_BYTES",
    "EncodedSegment",
    "RandomAccessFile",
    "SegmentWriter",
    "decode",
    "decode_from",
    "decode_verified",
    "encode",
    "verify",
]
