"""What users hand to ``produce`` becomes rows of exactly the topic's schema, or SchemaMismatch names the column.

One set of rules for every kind of input:

- Columns are matched by name, in any order; a missing nullable column is null. Unknown columns are refused, but for the
  unnamed index that pandas adds to a table.
- A value is converted only if nothing is lost: numbers to wider or narrower ones that hold the very value, decimals
  that need no rounding, text to binary (as UTF-8), timestamps of any zone to UTC microseconds. A naive timestamp never
  becomes one with a zone, nor the reverse; binary never becomes text; a boolean is no number.
- A Python ``float`` is the only float that Python has: in a 32-bit column it is rounded to the nearest one. Arrow's
  doubles are not: they fit or are refused.
- Null where the schema says not null, also inside of lists, maps and structs, is refused.

Messages name topic, column and types, never a value: rows may hold what no log file should.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec
import pyarrow as pa
import xxhash

from txnlog.common.limits import MAX_ROW_BYTES
from txnlog.common.names import quoted_name
from txnlog.common.signal_errors import raise_of_handler
from txnlog.data.arrow_coercion import ARROW_ERRORS, NULL_REFUSED, Unfit, conform_columns, is_text, unknown_column
from txnlog.data.python_coercion import Converter, converter, deep_size
from txnlog.errors import SchemaMismatch, TxnLogError

Row = tuple[Any, ...]

_pack: Final = msgspec.msgpack.Encoder().encode
SEAL_BYTES: Final = 16 << 20
"""Rows above this become Arrow at once, which holds them in a fraction of the memory."""

ROWS_AT_ONCE: Final = 10_000
"""Many more Python objects at a time make the garbage collector go through all of them again and again."""

MAX_CACHED_PLANS: Final = 1_000
"""Schemas whose plans are remembered."""

_PANDAS_INDEX: Final = "__index_level_"
_NO_ITEM: Final = object()


class _Plan:
    """A schema, compiled: how its rows are checked, converted and measured."""

    __slots__ = ("columns", "fields", "fixed_bytes", "names", "nested", "schema", "types", "variable")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.fields: list[pa.Field] = list(schema)
        self.types: list[pa.DataType] = [field.type for field in self.fields]
        self.names = frozenset(schema.names)
        self.columns: list[tuple[str, bool, Converter]] = [
            (field.name, field.nullable, converter(field.type, nullable=field.nullable)) for field in self.fields
        ]
        self.variable = [i for i, kind in enumerate(self.types) if is_text(kind) or pa.types.is_binary(kind)]
        self.nested = [i for i, kind in enumerate(self.types) if pa.types.is_nested(kind)]
        self.fixed_bytes = 8 * len(self.types)

    def size(self, rows: Iterable[Row]) -> int:
        """About the bytes of converted rows in Arrow."""
        result = 0
        variable, nested = self.variable, self.nested
        for row in rows:
            result += self.fixed_bytes
            for index in variable:
                if value := row[index]:
                    result += len(value)
            for index in nested:
                if value := row[index]:
                    result += deep_size(value)
        return result

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Converted rows as Arrow."""
        if not rows:
            return self.schema.empty_table()
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), self.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def unknown(self, topic: str, name: object, given: Collection[object], where: str = "") -> SchemaMismatch:
        """The error for a column that the topic does not have."""
        return unknown_column(topic, name, self.schema.names, where, given)


_PLANS: Final[dict[int, _Plan]] = {}


def _plan_of(schema: pa.Schema) -> _Plan:
    """The plan of a schema, by identity: a plan keeps its schema alive, so its id is no other schema's."""
    plan = _PLANS.get(id(schema))
    if plan is None:
        plan = _Plan(schema)
        if len(_PLANS) >= MAX_CACHED_PLANS:
            _PLANS.clear()
        _PLANS[id(schema)] = plan
    return plan


class RowBuffer:
    """Rows of one topic, added one call at a time and checked at once; Arrow is made of many calls together.

    ``rows`` counts them, ``size_bytes`` is about what they take as Arrow. What was appended is the buffer's own: later
    changes to the caller's dicts, lists, data frames and arrays do not reach it. That includes Arrow's tables, which
    may lie over memory of anybody: no buffer of theirs says whether it does.
    """

    __slots__ = ("_open", "_open_bytes", "_plan", "_tables", "_topic", "rows", "size_bytes")

    def __init__(self, schema: pa.Schema, topic: str) -> None:
        self._plan = _PLANS.get(id(schema)) or _plan_of(schema)
        self._topic = topic
        # Most have none: of a transaction with many small calls each list would be one more for the garbage collector.
        self._tables: tuple[pa.Table, ...] = ()
        self._open: list[Row] = []
        self._open_bytes = 0
        self.rows = 0
        self.size_bytes = 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self._plan.schema

    def append(self, data: Any) -> int:
        """Take rows and return how many; SchemaMismatch says what does not fit, and then nothing was added.

        ``data`` is whatever ``conform`` takes.
        """
        kind = type(data)
        if kind is list and data and type(data[0]) is dict and len(data) <= ROWS_AT_ONCE:
            return self._take_rows(data)
        if isinstance(data, Mapping):
            return self._take_rows((data,))
        if (tables := self._own_tables(data)) is not None:
            return self._take_tables(tables)
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview):
            return self._take_items(iter(data))
        raise _not_rows(self._topic, data)

    def adopt(self, table: pa.Table) -> int:
        """Take rows of exactly this schema that nobody changes any more, without a copy, and return how many."""
        return self._take_tables([table])

    def _own_tables(self, data: Any) -> list[pa.Table] | None:
        """Arrow data as tables in memory of their own, each copied before the next one is asked for; else None.

        Whoever passes several batches may fill the memory of one again for the next.
        """
        batches = _batches(data, self._topic)
        if batches is None:
            return None
        tables: list[pa.Table] = []
        rows = 0
        for batch in batches:
            tables.append(_copied(_conform_table(batch, self._plan, self._topic, rows)))
            rows += batch.num_rows
        return tables

    def _take_rows(self, rows: Sequence[Any]) -> int:
        taken = self._checked(rows, 0)
        size = self._plan.size(taken)
        if size > SEAL_BYTES:
            return self._take_tables(self._in_parts(taken))
        self._open += taken
        self._open_bytes += size
        if self._open_bytes > SEAL_BYTES:
            self._seal()
        self.rows += len(taken)
        self.size_bytes += size
        return len(taken)

    def _checked(self, rows: Iterable[Any], first: int) -> list[Row]:
        """The rows, converted; ``first`` is the number of the first one, for messages."""
        names, columns = self._plan.names, self._plan.columns
        taken: list[Row] = []
        for row in rows:
            if type(row) is not dict:
                row = self._as_dict(row, first + len(taken))  # noqa: PLW2901 - the same row
            if not names.issuperset(row):
                stranger = next(name for name in row if name not in names)
                raise self._plan.unknown(self._topic, stranger, row, f" (row {first + len(taken)})")
            get = row.get
            try:
                taken.append(
                    tuple(
                        [
                            None if (value := get(name)) is None and nullable else convert(value)
                            for name, nullable, convert in columns
                        ]
                    )
                )
            except Unfit:
                raise self._explained(row, first + len(taken)) from None
        return taken

    def _as_dict(self, row: object, number: int) -> dict[Any, Any]:
        if isinstance(row, Mapping):
            return dict(row)
        raise SchemaMismatch(
            f"topic {self._topic!r}: row {number} is of type {type(row).__name__}", advice="a row is a dict of columns"
        )

    def _explained(self, row: dict[Any, Any], number: int) -> SchemaMismatch:
        """The error of the first column that does not fit."""
        for name, _, convert in self._plan.columns:
            try:
                convert(row.get(name))
            except Unfit as unfit:
                return unfit.within(name).mismatch(self._topic, f" (row {number})")
        raise AssertionError("a row that did not fit fits")

    def _in_parts(self, rows: list[Row]) -> list[pa.Table]:
        """Rows as tables of about SEAL_BYTES."""
        if self._plan.size(rows) <= SEAL_BYTES:
            return [self._plan.table(rows)]
        tables = []
        start = size = 0
        for number, row in enumerate(rows):
            row_bytes = self._plan.size((row,))
            if row_bytes > MAX_ROW_BYTES:
                raise SchemaMismatch(
                    f"topic {self._topic!r}: row {number} takes more than {MAX_ROW_BYTES:,} bytes",
                    advice="split it, or store the object elsewhere and produce its address",
                )
            if number > start and size + row_bytes > SEAL_BYTES:
                tables.append(self._plan.table(rows[start:number]))
                start, size = number, 0
            size += row_bytes
        tables.append(self._plan.table(rows[start:]))
        return tables

    def _seal(self) -> None:
        """Open rows become Arrow."""
        if self._open:
            self._tables += (self._plan.table(self._open),)
            self._open = []
            self._open_bytes = 0

    def _take_tables(self, tables: list[pa.Table]) -> int:
        self._seal()
        rows = sum(table.num_rows for table in tables)
        self._tables += tuple([table for table in tables if table.num_rows])
        self.rows += rows
        self.size_bytes += sum(table.nbytes for table in tables)
        return rows

    def _take_items(self, items: Iterator[Any]) -> int:
        """An iterable of batches, or of rows."""
        tables: list[pa.Table] = []
        first = next(items, _NO_ITEM)
        if first is _NO_ITEM:
            return 0
        items = chain((first,), items)
        if isinstance(first, Mapping):
            number = 0
            while taken := self._checked(islice(items, ROWS_AT_ONCE), number):
                tables += self._in_parts(taken)
                number += len(taken)
            return self._take_tables(tables)
        for item in items:
            own = self._own_tables(item)
            if own is None:
                raise _not_rows(self._topic, item)
            tables += own
        return self._take_tables(tables)

    def to_table(self) -> pa.Table:
        """All rows, in the order they came."""
        return concat([self])

    def fingerprint(self) -> int:
        """64 bits that stand for the rows: equal calls with equal rows give equal ones, in every process."""
        digest = xxhash.xxh3_64()
        for table in self._tables:
            for batch in table.to_batches():
                digest.update(batch.serialize())
        if self._open:
            try:
                digest.update(_pack(self._open))
            except (TypeError, OverflowError, ValueError):
                digest.update(repr(self._open).encode())  # a value that MessagePack lacks
        return digest.intdigest()


def concat(buffers: Sequence[RowBuffer]) -> pa.Table:
    """The rows of several buffers of one topic and schema, in order. At least one buffer."""
    plan = buffers[0]._plan
    tables: list[pa.Table] = []
    rows: list[Row] = []
    rows_bytes = 0
    for buffer in buffers:
        assert buffer._plan is plan or buffer._plan.schema.equals(plan.schema), "buffers of one schema"
        if rows and (buffer._tables or rows_bytes > SEAL_BYTES):
            tables.append(plan.table(rows))
            rows, rows_bytes = [], 0
        tables += buffer._tables
        rows += buffer._open
        rows_bytes += buffer._open_bytes
    if rows or not tables:
        tables.append(plan.table(rows))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def conform(data: Any, schema: pa.Schema, *, topic: str) -> pa.Table:
    """The data as rows of exactly this schema.

    Takes a Table, a RecordBatch, an iterable of them, a dict or an iterable of dicts, and whatever speaks Arrow's C
    stream or array interface (pandas, polars, duckdb). Raises SchemaMismatch naming topic and column.
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _conform_table(data, _plan_of(schema), topic)
    buffer = RowBuffer(schema, topic)
    buffer.append(data)
    return buffer.to_table()


def _conform_table(table: pa.Table | pa.RecordBatch, plan: _Plan, topic: str, rows_before: int = 0) -> pa.Table:
    try:
        table.validate(full=True)
    except ARROW_ERRORS as error:
        raise_of_handler(error)
        raise SchemaMismatch(f"topic {topic!r}: not valid Arrow data: {error}") from None
    given: dict[str, pa.Array | pa.ChunkedArray] = {}
    for index, name in enumerate(table.schema.names):
        if name in given:
            raise SchemaMismatch(
                f"topic {topic!r}: column {quoted_name(name)} is there twice", advice="rename one of them"
            )
        if name not in plan.names:
            if name.startswith(_PANDAS_INDEX):
                continue
            raise plan.unknown(topic, name, table.schema.names)
        given[name] = table.column(index)
    try:
        columns = conform_columns(given, plan.fields, table.num_rows)
    except Unfit as unfit:
        where = ""
        if unfit.reason == NULL_REFUSED and len(unfit.path) == 1 and unfit.path[0] in given:
            where = f" (row {rows_before + given[unfit.path[0]].is_null().index(True).as_py()})"
        raise unfit.mismatch(topic, where) from None
    return pa.Table.from_arrays(columns, schema=plan.schema)


def _batches(data: Any, topic: str) -> Iterable[pa.Table | pa.RecordBatch] | None:
    """Arrow data, and what speaks Arrow's C interface, part by part as it comes; else None."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return (data,)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _imported(data, topic)
    return None


def _imported(data: Any, topic: str) -> Iterator[pa.Table | pa.RecordBatch]:
    """The batches of foreign data; of none an empty table, whose columns can be looked at."""
    try:
        if not hasattr(data, "__arrow_c_stream__"):
            yield pa.record_batch(data)
            return
        reader = pa.RecordBatchReader.from_stream(data)
        batch = None
        for batch in reader:
            yield batch
        if batch is None:
            yield reader.schema.empty_table()
    except TxnLogError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code raises what it likes
        raise_of_handler(error)
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise SchemaMismatch(
            f"topic {topic!r}: {type(data).__name__} does not become an Arrow table: {why}",
            advice=_as_arrow(topic, data),
        ) from (None if isinstance(error, ARROW_ERRORS) else error)


def _as_arrow(topic: str, data: object) -> str:
    """How data becomes something that can be added."""
    if type(data).__module__.startswith("pyspark.sql."):
        return (
            "pass df.toArrow(), which is all in memory, or let Spark write it: spark_ext.transaction(...) and "
            f"txn.write(df, {topic!r})"
        )
    return "pass a pyarrow Table, RecordBatches, a list of dicts or a data frame"


def _copied(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own."""
    batches = [pa.ipc.read_record_batch(batch.serialize(), table.schema) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, table.schema)


def _not_rows(topic: str, data: object) -> SchemaMismatch:
    return SchemaMismatch(
        f"topic {topic!r}: a value of type {type(data).__name__} is no table and no row",
        advice=_as_arrow(topic, data),
    )


__all__ = ["RowBuffer", "concat", "conform"]
