"""What users hand to ``produce`` becomes rows of exactly the topic's schema, or SchemaMismatch names the column.

One set of rules for every kind of input:

- Columns are matched by name, in any order; a missing nullable column is null. Unknown columns are refused, but for the
  unnamed index that pandas adds to a table.
- A value is converted only if nothing is lost: numbers to wider or narrower ones that hold the very value, decimals that
  need no rounding, text to binary (as UTF-8), timestamps of any zone to UTC microseconds. A naive timestamp never becomes a
  UTC one, nor the reverse; binary never becomes text; a boolean is no number.
- A Python ``float`` is the only float that Python has: in a 32-bit column it is rounded to the nearest one. Arrow's doubles
  are not: they fit or are refused.
- Null where the schema says "not null", also inside lists, maps and structs, is refused.

Messages name topic, column and kinds of values, never a value: rows may hold what no log file should.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from txnlog.errors import SchemaMismatch
from txnlog.names import nearest

Converter = Callable[[Any], Any]

SEAL_BYTES: Final = 16 << 20
"""Python rows above this become Arrow at once: Arrow takes a fraction of the memory, and no array may pass 2 GiB."""

MAX_ROW_BYTES: Final = 1 << 30
"""One row: the offsets of Arrow's strings, lists and maps have 31 bits."""

MAX_CACHED_PLANS: Final = 1_000
"""Schemas whose compiled plans are remembered."""

_pack: Final = msgspec.msgpack.Encoder().encode
_UTC: Final = datetime.UTC
_PANDAS_INDEX: Final = "__index_level_"
_ARROW_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, NotImplementedError)


class _Unfit(Exception):
    """A value does not fit; ``path`` grows from the inside out."""

    def __init__(self, reason: str, advice: str = "fix the value, or change the topic's schema") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.path: list[str] = []


# --- plans: a schema, compiled ----------------------------------------------------------------------------------------


class _Plan:
    """How rows of one schema are checked and converted."""

    __slots__ = ("columns", "fields", "fixed_bytes", "names", "nested", "schema", "types", "variable")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.fields: list[pa.Field] = list(schema)
        self.types: list[pa.DataType] = [field.type for field in self.fields]
        self.names = frozenset(schema.names)
        self.columns: list[tuple[str, Converter]] = [
            (field.name, _converter(field.type, nullable=field.nullable)) for field in self.fields
        ]
        variable = [_is_text(kind) or pa.types.is_binary(kind) for kind in self.types]
        self.variable = [index for index, yes in enumerate(variable) if yes]
        self.nested = [index for index, kind in enumerate(self.types) if pa.types.is_nested(kind)]
        self.fixed_bytes = sum(4 if yes else 8 for yes in variable)

    def mismatch(self, topic: str, unfit: _Unfit, column: str, where: str = "") -> SchemaMismatch:
        """The error for the user."""
        path = ".".join([column, *reversed(unfit.path)])
        return SchemaMismatch(f"topic {topic!r}, column {path!r}{where}: {unfit.reason}", advice=unfit.advice)

    def unknown(self, topic: str, name: object, where: str = "") -> SchemaMismatch:
        """The error for a column that the topic does not have."""
        return SchemaMismatch(
            f"topic {topic!r} has no column {_shown(name)}{where}", advice=nearest(str(name), self.schema.names)
        )


_PLANS: dict[int, _Plan] = {}


def _plan(schema: pa.Schema) -> _Plan:
    """The plan of a schema, by identity: a plan keeps its schema alive, so an id is never another schema's."""
    plan = _PLANS.get(id(schema))
    if plan is None:
        if len(_PLANS) >= MAX_CACHED_PLANS:
            _PLANS.clear()
        plan = _PLANS[id(schema)] = _Plan(schema)
    return plan


def _shown(name: object) -> str:
    text = name if isinstance(name, str) else f"{type(name).__name__} {name!s}"
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


# --- Python values ----------------------------------------------------------------------------------------------------


def _converter(kind: pa.DataType, *, nullable: bool) -> Converter:
    """A function that returns the value as it is stored, or raises _Unfit. Exact types are tried first: that is the hot path."""
    slow = _slow_converter(kind, nullable=nullable)
    if pa.types.is_binary(kind):
        return _exact(bytes, slow)
    if pa.types.is_boolean(kind):
        return _exact(bool, slow)
    if pa.types.is_float64(kind):
        return _exact(float, slow)
    if _is_text(kind):
        return _string_converter(slow)
    if pa.types.is_integer(kind):
        return _integer_converter(kind, slow)
    if pa.types.is_map(kind):
        return _map_converter(kind, slow)
    if _is_list(kind):
        return _list_converter(kind, slow)
    if pa.types.is_struct(kind):
        return _struct_converter(kind, slow)
    return slow


def _exact(wanted: type, slow: Converter) -> Converter:
    def convert(value: object) -> object:
        return value if type(value) is wanted else slow(value)

    return convert


def _string_converter(slow: Converter) -> Converter:
    def convert(value: object) -> object:
        return value if type(value) is str and value.isascii() else slow(value)

    return convert


def _integer_converter(kind: pa.DataType, slow: Converter) -> Converter:
    low, high = -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1

    def convert(value: object) -> object:
        return value if type(value) is int and low <= value <= high else slow(value)

    return convert


def _map_converter(kind: pa.MapType, slow: Converter) -> Converter:
    key = _converter(kind.key_type, nullable=False)
    item = _converter(kind.item_type, nullable=kind.item_field.nullable)

    def convert(value: Any) -> object:
        if isinstance(value, Mapping):
            pairs: Iterable[Any] = value.items()
        elif isinstance(value, list | tuple):
            pairs = value
        else:
            return slow(value)
        result = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise _Unfit("a map is a dict, or a list of pairs")
            result.append((_inside("key", key, pair[0]), _inside("value", item, pair[1])))
        return result

    return convert


def _list_converter(kind: pa.DataType, slow: Converter) -> Converter:
    element = _converter(kind.value_type, nullable=kind.value_field.nullable)

    def convert(value: Any) -> object:
        if not isinstance(value, list | tuple):
            return slow(value)
        return [_inside("element", element, item) for item in value]

    return convert


def _struct_converter(kind: pa.StructType, slow: Converter) -> Converter:
    fields = [(child.name, _converter(child.type, nullable=child.nullable)) for child in kind]
    names = frozenset(name for name, _ in fields)

    def convert(value: Any) -> object:
        if not isinstance(value, Mapping):
            return slow(value)
        if not names.issuperset(value):
            stranger = next(name for name in value if name not in names)
            raise _Unfit(f"the struct has no field {_shown(stranger)}", nearest(str(stranger), names))
        return {name: _inside(name, convert_field, value.get(name)) for name, convert_field in fields}

    return convert


def _inside(name: str, convert: Converter, value: object) -> object:
    try:
        return convert(value)
    except _Unfit as unfit:
        unfit.path.append(name)
        raise


def _slow_converter(kind: pa.DataType, *, nullable: bool) -> Converter:
    """The whole rule for one type; what it does not know goes through Arrow, by the rules for Arrow data."""
    special = _special(kind)

    def convert(value: object) -> object:
        if value is None or _is_pandas_null(value):
            if nullable:
                return None
            raise _Unfit("null, or missing, where the schema says not null", "give a value")
        if special is not None and (result := special(value)) is not None:
            return result
        if isinstance(value, Mapping | list | tuple) or getattr(value, "nanosecond", False):
            # Arrow would take the nanoseconds of a pandas.Timestamp away without a word.
            raise _wrong_kind(value, kind)
        try:
            array = pa.array([value])
        except _ARROW_ERRORS:
            raise _wrong_kind(value, kind) from None
        return _conform_array(array, kind, nullable=nullable)[0].as_py()

    return convert


def _is_pandas_null(value: object) -> bool:
    """Whether the value is pandas.NA or pandas.NaT: known by name, because pandas need not be there."""
    return type(value).__name__ in {"NAType", "NaTType"}


def _wrong_kind(value: object, kind: pa.DataType) -> _Unfit:
    return _Unfit(f"a value of type {type(value).__name__} does not fit into {kind} without loss")


def _special(kind: pa.DataType) -> Converter | None:
    """What Arrow's own inference would get wrong or cannot do: None where the rules for Arrow data shall decide."""
    if _is_text(kind):
        return _text_value
    if pa.types.is_binary(kind):
        return _binary_value
    if pa.types.is_integer(kind):
        return lambda value: _integer_value(value, kind)
    if pa.types.is_float64(kind):
        return lambda value: _float_value(value, kind)
    if pa.types.is_float32(kind):
        return lambda value: _float32_value(value, kind)
    if pa.types.is_date(kind):
        return lambda value: value if type(value) is datetime.date else None
    if pa.types.is_timestamp(kind):
        return lambda value: _timestamp_value(value, kind)
    if pa.types.is_decimal(kind):
        return lambda value: _decimal_value(value, kind)
    return None


def _text_value(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Unfit("the text holds half a surrogate pair, which UTF-8 cannot express") from None
    return text


def _binary_value(value: object) -> bytes | None:
    if isinstance(value, str):
        text = _text_value(value)
        assert text is not None, "a str is text"
        return text.encode()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _integer_value(value: object, kind: pa.DataType) -> int | None:
    if isinstance(value, bool):
        raise _wrong_kind(value, kind)
    if not isinstance(value, int):
        return None
    number = int(value)
    limit = 1 << (kind.bit_width - 1)
    if -limit <= number < limit:
        return number
    raise _Unfit(f"an int outside the range of {kind}")


def _float_value(value: object, kind: pa.DataType) -> float | None:
    if isinstance(value, bool):
        raise _wrong_kind(value, kind)
    if isinstance(value, float):
        return float(value)
    if not isinstance(value, int):
        return None
    try:
        result = float(value)
    except OverflowError:
        raise _wrong_kind(value, kind) from None
    if int(result) != value:
        raise _wrong_kind(value, kind)
    return result


def _float32_value(value: object, kind: pa.DataType) -> float | None:
    number = _float_value(value, kind)
    if number is None:
        return None
    try:
        result: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise _Unfit(f"a float outside the range of {kind}") from None
    if isinstance(value, int) and result != number:
        raise _wrong_kind(value, kind)
    return result


def _timestamp_value(value: object, kind: pa.DataType) -> datetime.datetime | None:
    if type(value) is not datetime.datetime:
        return None
    if kind.tz is None:
        if value.tzinfo is not None:
            raise _Unfit(
                "a datetime with a zone in a timestamp without one", "remove the zone, or use a timestamp with one"
            )
        return value.replace(fold=0)
    if value.tzinfo is _UTC:
        return value
    if value.utcoffset() is None:
        raise _Unfit("a naive datetime in a timestamp with zone", "say which zone: value.replace(tzinfo=datetime.UTC)")
    try:
        return value.astimezone(_UTC)
    except (ValueError, OverflowError):
        raise _Unfit("a datetime outside the years 1 to 9999 in UTC") from None


def _decimal_value(value: object, kind: pa.DataType) -> decimal.Decimal | None:
    if isinstance(value, bool):
        raise _wrong_kind(value, kind)
    if isinstance(value, int):
        value = decimal.Decimal(int(value))
    if not isinstance(value, decimal.Decimal):
        return None
    if not value.is_finite():
        raise _wrong_kind(value, kind)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "a finite decimal has a number as exponent"
    if not any(digits):
        return decimal.Decimal(0)
    significant = list(digits)
    while significant[-1] == 0:
        significant.pop()
        exponent += 1
    if -exponent > kind.scale:
        raise _Unfit(f"a decimal with more places than {kind} has")
    if len(significant) + exponent > kind.precision - kind.scale:
        raise _Unfit(f"a decimal outside the range of {kind}")
    # Written out to the column's scale, without the rounding of a decimal context.
    coefficient = int("".join(map(str, significant))) * 10 ** (exponent + kind.scale)
    text = str(coefficient).rjust(kind.scale + 1, "0")
    sign = "-" if value.is_signed() else ""
    whole, places = (text[: -kind.scale], text[-kind.scale :]) if kind.scale else (text, "")
    return decimal.Decimal(f"{sign}{whole}.{places}")


# --- Arrow data -------------------------------------------------------------------------------------------------------


def _conform_array(array: pa.Array, kind: pa.DataType, *, nullable: bool) -> pa.Array:
    """The array in the wanted type, or _Unfit."""
    array = _plain(array)
    if not nullable and array.null_count:
        raise _Unfit("null where the schema says not null", "give a value")
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), kind)
    if pa.types.is_map(kind):
        return _conform_map(array, kind)
    if _is_list(kind):
        return _conform_list(array, kind)
    if pa.types.is_struct(kind):
        return _conform_struct(array, kind)
    if source == kind:
        return array
    if not _may_cast(source, kind):
        raise _Unfit(f"{source} does not fit into {kind}")
    try:
        if pa.types.is_decimal(kind) and pa.types.is_integer(source):
            array = array.cast(pa.decimal128(20, 0))
        result = array.cast(kind)
    except _ARROW_ERRORS:
        raise _Unfit(f"values of type {source} that do not fit into {kind} without loss") from None
    if _needs_a_look_back(source, kind) and not _same_values(result.cast(source), array):
        raise _Unfit(f"values of type {source} that do not fit into {kind} without loss")
    return result


def _plain(array: pa.Array) -> pa.Array:
    """The array without dictionary, run ends and extension."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _may_cast(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a conversion is one of kind only, so that Arrow's safe cast can decide about the values."""
    if _is_text(source):
        return _is_text(kind) or pa.types.is_binary(kind)
    if _is_bytes(source):
        return pa.types.is_binary(kind)
    if pa.types.is_integer(source):
        return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_floating(source):
        return pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if pa.types.is_decimal(source):
        return pa.types.is_decimal(kind) or pa.types.is_integer(kind)
    if pa.types.is_timestamp(source):
        if pa.types.is_timestamp(kind):
            return (source.tz is None) == (kind.tz is None)
        return pa.types.is_date(kind) and source.tz is None
    return pa.types.is_date(source) and pa.types.is_date(kind)


def _needs_a_look_back(source: pa.DataType, kind: pa.DataType) -> bool:
    """Where Arrow's safe cast rounds all the same."""
    if pa.types.is_float32(kind):
        return pa.types.is_float64(source)
    return pa.types.is_date(kind) and pa.types.is_timestamp(source)


def _same_values(back: pa.Array, array: pa.Array) -> bool:
    equal = pc.equal(back, array)
    if pa.types.is_floating(array.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    return pc.all(equal).as_py() is not False


def _conform_struct(array: pa.Array, kind: pa.StructType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _Unfit(f"{array.type} does not fit into a struct")
    given = [child.name for child in array.type]
    known = [child.name for child in kind]
    if stranger := _stranger(given, known):
        raise _Unfit(*stranger)
    parts = dict(zip(given, array.flatten() if array.null_count else _children(array), strict=True))
    children = []
    for child in kind:
        part = parts.get(child.name)
        if part is None:
            part = pa.nulls(len(array), child.type)
        else:
            part = _inside_array(child.name, part, child.type)
        # Below a null struct there is null, also in a field that may not be: only what lies above that is a fault.
        if not child.nullable and part.null_count > array.null_count:
            unfit = _Unfit("null, or missing, where the schema says not null", "give a value")
            unfit.path.append(child.name)
            raise unfit
        children.append(part)
    return pa.Array.from_buffers(kind, len(array), [_validity(array)], children=children)


def _children(array: pa.StructArray) -> list[pa.Array]:
    return [array.field(index) for index in range(array.type.num_fields)]


def _stranger(given: Sequence[str], known: Sequence[str]) -> tuple[str, str] | None:
    seen: set[str] = set()
    for name in given:
        if name not in known:
            return f"the struct has no field {_shown(name)}", nearest(name, known)
        if name in seen:
            return f"the field {_shown(name)} is there twice", "rename one of them"
        seen.add(name)
    return None


def _conform_list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _is_list(array.type):
        raise _Unfit(f"{array.type} does not fit into a list")
    offsets = _offsets(array)
    element = kind.value_field
    values = _inside_array("element", array.flatten(), element.type, nullable=element.nullable)
    return pa.Array.from_buffers(kind, len(array), [_validity(array), offsets], children=[values])


def _conform_map(array: pa.Array, kind: pa.MapType) -> pa.Array:
    if pa.types.is_map(array.type):
        # Arrow's functions on lists do not take maps, which are the same in memory.
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    elif not (
        _is_list(array.type)
        and pa.types.is_struct(array.type.value_type)
        and [child.name for child in array.type.value_type] == ["key", "value"]
    ):
        raise _Unfit(f"{array.type} does not fit into a map")
    offsets = _offsets(array)
    entries = array.flatten()
    if entries.null_count:
        raise _Unfit("null in the place of a pair of a map", "give a key and a value")
    keys, items = _children(entries)
    keys = _inside_array("key", keys, kind.key_type, nullable=False)
    items = _inside_array("value", items, kind.item_type, nullable=kind.item_field.nullable)
    pairs = pa.struct([kind.key_field, kind.item_field])
    child = pa.Array.from_buffers(pairs, len(entries), [None], children=[keys, items])
    return pa.Array.from_buffers(kind, len(array), [_validity(array), offsets], children=[child])


def _inside_array(name: str, array: pa.Array, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    try:
        return _conform_array(array, kind, nullable=nullable)
    except _Unfit as unfit:
        unfit.path.append(name)
        raise


def _offsets(array: pa.Array) -> pa.Buffer:
    """Offsets into ``array.flatten()``, which leaves out what lies below null lists."""
    lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    try:
        return _first_buffer(ends.cast(pa.int32()))
    except pa.ArrowInvalid:
        raise _Unfit("more than 2**31 elements in one batch", "hand over smaller batches") from None


def _validity(array: pa.Array) -> pa.Buffer | None:
    return _first_buffer(array.is_valid()) if array.null_count else None


def _first_buffer(array: pa.Array) -> pa.Buffer:
    assert array.offset == 0, "a computed array begins at its buffer's beginning"
    return array.buffers()[1]


def _holds_not_null(kind: pa.DataType) -> bool:
    """Whether the type says "not null" anywhere inside: Arrow does not see to it. (A map's key is one by itself.)"""
    if not pa.types.is_nested(kind):
        return False
    children = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or any(_holds_not_null(part) for part in (kind.key_type, kind.item_type))
    return any(not child.nullable or _holds_not_null(child.type) for child in children)


def _conform_column(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if column.type == field.type and not _holds_not_null(field.type):
        if not field.nullable and column.null_count:
            raise _Unfit("null where the schema says not null", "give a value")
        return column
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    chunks = [
        _conform_array(part, field.type, nullable=field.nullable) for chunk in column.chunks for part in _parts(chunk)
    ]
    return pa.chunked_array(chunks, type=field.type)


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """The array in parts whose strings and lists surely fit into 31-bit offsets."""
    if array.nbytes <= MAX_ROW_BYTES or len(array) < 2:
        yield array
        return
    half = len(array) // 2
    yield from _parts(array.slice(0, half))
    yield from _parts(array.slice(half))


def _conform_table(table: pa.Table | pa.RecordBatch, plan: _Plan, topic: str) -> pa.Table:
    try:
        table.validate(full=True)
    except _ARROW_ERRORS as error:
        raise SchemaMismatch(f"topic {topic!r}: the data is not valid Arrow data: {error}") from None
    positions: dict[str, int] = {}
    for index, name in enumerate(table.column_names):
        if name not in plan.names:
            if name.startswith(_PANDAS_INDEX):
                continue
            raise plan.unknown(topic, name)
        if name in positions:
            raise SchemaMismatch(f"topic {topic!r}, column {name!r} is there twice", advice="rename one of them")
        positions[name] = index
    columns = []
    for field in plan.fields:
        position = positions.get(field.name)
        try:
            if position is not None:
                columns.append(_conform_column(table.column(position), field))
            elif field.nullable or not table.num_rows:
                columns.append(pa.nulls(table.num_rows, field.type))
            else:
                raise _Unfit("the column is missing, and the schema says not null", "give it values")
        except _Unfit as unfit:
            raise plan.mismatch(topic, unfit, field.name) from None
    return pa.Table.from_arrays(columns, schema=plan.schema)


# --- every kind of input ----------------------------------------------------------------------------------------------


class RowBuffer:
    """Rows of one topic, taken one call at a time and checked at once; Arrow is made of all of them together.

    ``rows`` counts them, ``size_bytes`` is about what they take as Arrow. What was appended is the buffer's own: later
    changes to the caller's dicts, arrays and data frames do not reach it.
    """

    __slots__ = ("_parts", "_plan", "_topic", "rows", "size_bytes")

    def __init__(self, schema: pa.Schema, topic: str) -> None:
        self._plan = _PLANS.get(id(schema)) or _plan(schema)
        self._topic = topic
        self._parts: list[list[tuple[Any, ...]] | pa.Table] = []
        self.rows = 0
        self.size_bytes = 0

    def append(self, data: Any) -> int:
        """Take rows and return how many; SchemaMismatch says what does not fit, and then nothing was taken."""
        kind = type(data)
        if kind is dict:
            return self._take_rows((data,))
        if kind is list and data and type(data[0]) is dict:
            return self._take_rows(data)
        if isinstance(data, pa.Table | pa.RecordBatch):
            return self._take_table(_conform_table(data, self._plan, self._topic))
        if (table := _imported(data, self._topic)) is not None:
            return self._take_table(_copied(_conform_table(table, self._plan, self._topic)))
        if isinstance(data, Mapping):
            return self._take_rows((data,))
        if isinstance(data, Iterable) and not isinstance(data, str | bytes | bytearray | memoryview):
            return self._take_items(data)
        raise _not_rows(self._topic, data)

    def _take_rows(self, rows: Iterable[Any]) -> int:
        plan = self._plan
        names, columns, variable, nested = plan.names, plan.columns, plan.variable, plan.nested
        parts: list[list[tuple[Any, ...]] | pa.Table] = []
        taken: list[tuple[Any, ...]] = []
        count = size = total = 0
        for row in rows:
            if type(row) is not dict:
                row = self._as_dict(row, count)  # noqa: PLW2901 - the same row, as a dict
            if not names.issuperset(row):
                raise plan.unknown(self._topic, next(name for name in row if name not in names), f" (row {count})")
            get = row.get
            try:
                values = tuple([convert(get(name)) for name, convert in columns])
            except _Unfit:
                raise self._explain(row, count) from None
            taken.append(values)
            count += 1
            size += plan.fixed_bytes
            for index in variable:
                if value := values[index]:
                    size += len(value)
            for index in nested:
                if value := values[index]:
                    size += _deep_size(value)
            if size > SEAL_BYTES:
                if size > MAX_ROW_BYTES:
                    raise SchemaMismatch(
                        f"topic {self._topic!r}: row {count - 1} takes more than {MAX_ROW_BYTES:,} bytes",
                        advice="split it, or store the object elsewhere and produce its address",
                    )
                parts.append(_table_of(taken, plan))
                taken = []
                total += size
                size = 0
        if taken:
            last = self._parts[-1] if self._parts and not parts else None
            if isinstance(last, list):
                last += taken
            else:
                parts.append(taken)
        self._parts += parts
        self.rows += count
        self.size_bytes += total + size
        return count

    def _as_dict(self, row: object, count: int) -> dict[Any, Any]:
        if isinstance(row, Mapping):
            return dict(row)
        raise SchemaMismatch(
            f"topic {self._topic!r}: row {count} is of type {type(row).__name__}", advice="a row is a dict of columns"
        )

    def _explain(self, row: dict[Any, Any], count: int) -> SchemaMismatch:
        """The error of the first column that does not fit."""
        for name, convert in self._plan.columns:
            try:
                convert(row.get(name))
            except _Unfit as unfit:
                return self._plan.mismatch(self._topic, unfit, name, f" (row {count})")
        raise AssertionError("a row that did not fit fits")

    def _take_table(self, table: pa.Table) -> int:
        if table.num_rows:
            self._parts.append(table)
            self.rows += table.num_rows
            self.size_bytes += table.nbytes
        return table.num_rows

    def _take_items(self, data: Iterable[Any]) -> int:
        """An iterable of batches, or of rows that are not plain dicts."""
        items = iter(data)
        try:
            first = next(items)
        except StopIteration:
            return 0
        if isinstance(first, Mapping):
            return self._take_rows(_chain(first, items))
        tables = []
        for item in _chain(first, items):
            table = item if isinstance(item, pa.Table | pa.RecordBatch) else _imported(item, self._topic)
            if table is None:
                raise _not_rows(self._topic, item)
            tables.append(_conform_table(table, self._plan, self._topic))
        return self._take_table(pa.concat_tables(tables))

    def to_table(self) -> pa.Table:
        """All rows, in the order they came."""
        return concat([self])

    def fingerprint(self) -> int:
        """64 bits that stand for the rows: equal calls with equal rows give equal ones, in every process."""
        digest = xxhash.xxh3_64()
        for part in self._parts:
            if isinstance(part, list):
                try:
                    digest.update(_pack(part))
                except (TypeError, OverflowError, ValueError):
                    digest.update(repr(part).encode())  # a value that MessagePack lacks
            else:
                for batch in part.to_batches():
                    digest.update(batch.serialize())
        return digest.intdigest()


def concat(buffers: Sequence[RowBuffer]) -> pa.Table:
    """The rows of several buffers of one topic and schema, in order. At least one buffer."""
    plan = buffers[0]._plan
    tables: list[pa.Table] = []
    pending: list[tuple[Any, ...]] = []
    pending_bytes = 0
    for buffer in buffers:
        assert buffer._plan is plan, "buffers of one schema"
        for part in buffer._parts:
            if type(part) is list:
                pending += part
                continue
            if pending:
                tables.append(_table_of(pending, plan))
                pending = []
            tables.append(part)
        pending_bytes += buffer.size_bytes
        if pending_bytes > MAX_ROW_BYTES // 2 and pending:
            tables.append(_table_of(pending, plan))
            pending = []
            pending_bytes = 0
    if pending or not tables:
        tables.append(_table_of(pending, plan))
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def conform(data: Any, schema: pa.Schema, *, topic: str) -> pa.Table:
    """The data as rows of exactly this schema.

    Takes a Table, a RecordBatch, an iterable of them, a dict or an iterable of dicts, and whatever speaks Arrow's C stream or
    array interface (pandas, polars, duckdb). Raises SchemaMismatch naming topic and column.
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        return _conform_table(data, _plan(schema), topic)
    buffer = RowBuffer(schema, topic)
    buffer.append(data)
    return buffer.to_table()


def _table_of(rows: list[tuple[Any, ...]], plan: _Plan) -> pa.Table:
    if not rows:
        return plan.schema.empty_table()
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), plan.types, strict=True)]
    return pa.Table.from_arrays(columns, schema=plan.schema)


def _deep_size(value: Any) -> int:
    """About the bytes of a nested value that a converter made."""
    kind = type(value)
    if kind is bytes or kind is str:
        return 4 + len(value)
    if kind is list or kind is tuple:
        return 4 + sum(map(_deep_size, value))
    if kind is dict:
        return sum(map(_deep_size, value.values()))
    return 8


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _imported(data: Any, topic: str) -> pa.Table | None:
    """Data that speaks Arrow's C interface, else None."""
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
    except _ARROW_ERRORS as error:
        raise SchemaMismatch(
            f"topic {topic!r}: {type(data).__name__} does not convert to an Arrow table: {error}"
        ) from None
    return None


def _copied(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own: what pandas hands over may be the very array that its user goes on changing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _not_rows(topic: str, data: object) -> SchemaMismatch:
    return SchemaMismatch(
        f"topic {topic!r}: a value of type {type(data).__name__} is no table and no rows",
        advice="pass a pyarrow Table, RecordBatches, a list of dicts or a data frame",
    )


__all__ = ["RowBuffer", "concat", "conform"]
