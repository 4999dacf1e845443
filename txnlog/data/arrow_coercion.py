"""Arrow data of any kind becomes a column of one type of the topic's schema, without loss, or ``Unfit`` says why.

Arrow's own casts decide about values, but not about kinds: Arrow would parse text as numbers, take a naive time for UTC
and round doubles. So a table of allowed kinds comes first, and a look back at the values where the cast does not look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.common.names import folded, nearest, quoted_name
from txnlog.common.signal_errors import raise_of_handler
from txnlog.data.hidden_nulls import holds_not_null
from txnlog.errors import SchemaMismatch
from txnlog.sentences import Call, Words

ARROW_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, NotImplementedError)
"""What Arrow raises for data that it cannot take (some of its own errors are Python's)."""

MAX_PART_BYTES: Final = 1 << 30
"""Converted at once: the offsets of Arrow's strings, lists and maps have 31 bits."""

NULL_REFUSED: Final = "null, or missing, where the schema says not null"
KEY_REFUSED: Final = "null in the place of a key of a map"
NAIVE_REFUSED: Final = "a naive datetime in a timestamp with zone"
ZONE_REFUSED: Final = "a datetime with a zone in a timestamp without one"


class Unfit(Exception):
    """Something does not fit into a column; ``path`` grows from the inside out, up to the column."""

    def __init__(self, reason: str, advice: str = "fix the value, or use another type in the topic's schema") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.path: list[str] = []

    def within(self, name: str) -> Unfit:
        """This error, one level further out."""
        self.path.append(name)
        return self

    def within_key(self) -> Unfit:
        """This error, out of a key of a map: that is never null, and no altered topic allows it."""
        if self.reason == NULL_REFUSED and not self.path:
            self.reason, self.advice = KEY_REFUSED, "give a key"
        return self.within("key")

    def mismatch(self, topic: str, where: str = "") -> SchemaMismatch:
        """The error for a user, once the path is whole; ``where`` says which row."""
        path = ".".join(reversed(self.path))
        advice = self.advice
        if self.reason == NULL_REFUSED:
            column = self.path[-1]
            kind = "its type" if len(self.path) == 1 else f"its type, with {path!r} nullable"
            widened = f"widen={{{column!r}: pa.field({column!r}, {kind})}}"
            advice = Words(advice, ", or allow null: ", Call("alter_topic", repr(topic), widened))
        return SchemaMismatch(f"topic {topic!r}, column {path!r}{where}: {self.reason}", advice=advice)


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's strings."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's lists (a map is none)."""
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def unknown_column(
    topic: str, name: object, known: Sequence[str], where: str = "", given: Collection[object] = ()
) -> SchemaMismatch:
    """The error for a column that a topic does not have; ``given`` are all the names that the rows have."""
    if not isinstance(name, str):
        advice = "the names of columns are text"
    elif name.startswith("_"):
        own = ", ".join(map(repr, known[:8]))
        advice = (
            "reading adds the columns with a leading underscore: forward only the topic's own, with "
            f"messages.table.select([{own}]), in Spark df.select({own})"
        )
    else:
        advice = nearest(name, known)
        alike = next((column for column in known if folded(column) == folded(name)), None)
        if alike is None:  # one that differs in case alone could not be added
            added = Call("alter_topic", repr(topic), "add_columns=[...]")
            advice = Words(advice, "; or leave the column out, or first add it: ", added)
        elif alike in given:
            advice = f"names are case-sensitive, and the rows have {alike!r} as well: leave {quoted_name(name)} out"
        else:
            advice = f"names are case-sensitive: {advice}"
    return SchemaMismatch(f"topic {topic!r} has no column {quoted_name(name)}{where}", advice=advice)


# --- columns ----------------------------------------------------------------------------------------------------------


def conform_columns(
    given: Mapping[str, pa.Array | pa.ChunkedArray], fields: Iterable[pa.Field], rows: int
) -> list[pa.Array | pa.ChunkedArray]:
    """A column for each field, from those given by name; one that is missing is null. Raises Unfit."""
    columns = []
    for field in fields:
        column = given.get(field.name)
        try:
            if column is not None:
                columns.append(conform_column(column, field))
            elif field.nullable or not rows:
                columns.append(pa.nulls(rows, field.type))
            else:
                raise Unfit(NULL_REFUSED, "give the column values")
        except Unfit as unfit:
            raise unfit.within(field.name) from None
    return columns


def conform_column(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """The column in the field's type. Raises Unfit."""
    if column.type == field.type and not holds_not_null(field.type):
        if not field.nullable and column.null_count:
            raise Unfit(NULL_REFUSED, "give a value")
        return column
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [conform_array(part, field.type, nullable=field.nullable) for chunk in chunks for part in _parts(chunk)]
    return pa.chunked_array(parts, type=field.type)


def _parts(array: pa.Array) -> Iterator[pa.Array]:
    """The array in parts whose strings and lists surely fit into 31-bit offsets."""
    if array.nbytes <= MAX_PART_BYTES or len(array) < 2:
        yield array
        return
    half = len(array) // 2
    yield from _parts(array.slice(0, half))
    yield from _parts(array.slice(half))


# --- arrays -----------------------------------------------------------------------------------------------------------


def conform_array(array: pa.Array, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    """The array in the wanted type. Raises Unfit."""
    array = _plain(array)
    if not nullable and array.null_count:
        raise Unfit(NULL_REFUSED, "give a value")
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_map(kind):
        return _conform_map(array, kind)
    if pa.types.is_list(kind):
        return _conform_list(array, kind)
    if pa.types.is_struct(kind):
        return _conform_struct(array, kind)
    if array.type == kind:
        return array
    if not _may_cast(array.type, kind):
        raise _unlike(array.type, kind)
    try:
        return _cast(array, kind)
    except ARROW_ERRORS as error:
        raise_of_handler(error)
        raise Unfit(f"values of type {array.type} that do not fit into {kind} without loss") from None


def _plain(array: pa.Array) -> pa.Array:
    """The array without extension, dictionary and run ends."""
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
    """Whether values of one kind may be values of the other at all."""
    types = pa.types
    if is_text(source):
        return is_text(kind) or types.is_binary(kind)
    if _is_bytes(source):
        return types.is_binary(kind)
    if types.is_integer(source):
        return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if types.is_floating(source):
        return types.is_integer(kind) or types.is_floating(kind)
    if types.is_decimal(source):
        return types.is_decimal(kind) or types.is_integer(kind)
    if types.is_timestamp(source):
        # pandas has no dates: a naive midnight may be one.
        if types.is_date(kind):
            return source.tz is None
        return types.is_timestamp(kind) and (source.tz is None) == (kind.tz is None)
    return types.is_date(source) and types.is_date(kind)


def _unlike(source: pa.DataType, kind: pa.DataType) -> Unfit:
    """The error for values of a kind that is never the other one."""
    if not (pa.types.is_timestamp(source) and pa.types.is_timestamp(kind)):
        return Unfit(f"{source} does not fit into {kind}")
    if source.tz is None:
        ways = "tz_localize('UTC') in pandas, pyarrow.compute.assume_timezone(column, 'UTC') in Arrow"
        return Unfit(NAIVE_REFUSED, f"say which zone: {ways}")
    ways = "tz_localize(None) in pandas, pyarrow.compute.local_timestamp(column) in Arrow"
    return Unfit(ZONE_REFUSED, f"leave the zone out, the column has none: {ways}")


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow's cast, or one of ARROW_ERRORS where a value would change."""
    types = pa.types
    source = array.type
    if types.is_decimal(kind) and types.is_integer(source):
        return array.cast(pa.decimal128(20, 0)).cast(kind)
    rounds = (types.is_floating(kind) and types.is_integer(source)) or (
        types.is_floating(kind) and types.is_floating(source) and source.bit_width > kind.bit_width
    )
    if not rounds and not (types.is_date(kind) and types.is_timestamp(source)):
        return array.cast(kind)
    result = array.cast(kind, safe=False)
    same = pc.equal(result.cast(source), array)
    if types.is_floating(source):
        same = pc.or_(same, pc.and_(pc.is_nan(result), pc.is_nan(array)))
    if pc.all(same).as_py() is False:
        raise ValueError("a value would change")
    return result


def _inside(name: str, array: pa.Array, kind: pa.DataType, *, nullable: bool = True) -> pa.Array:
    try:
        return conform_array(array, kind, nullable=nullable)
    except Unfit as unfit:
        raise unfit.within(name) from None


# --- nested arrays ----------------------------------------------------------------------------------------------------


def _conform_struct(array: pa.Array, kind: pa.StructType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise Unfit(f"{array.type} does not fit into a struct")
    given = [child.name for child in array.type]
    check_names(given, [child.name for child in kind])
    parts = dict(zip(given, _children(array), strict=True))
    children = []
    for child in kind:
        part = parts.get(child.name)
        part = pa.nulls(len(array), child.type) if part is None else _inside(child.name, part, child.type)
        # Below a null struct lies null, in a field that is never null as well: only what goes beyond that is a fault.
        if not child.nullable and part.null_count > array.null_count:
            raise Unfit(NULL_REFUSED, "give a value").within(child.name)
        children.append(part)
    return pa.Array.from_buffers(kind, len(array), [_validity(array)], children=children)


def _children(array: pa.StructArray) -> list[pa.Array]:
    """The fields of a struct, null where the struct is null."""
    if array.null_count:
        return array.flatten()
    return [array.field(index) for index in range(array.type.num_fields)]


def check_names(given: Sequence[str], known: Sequence[str]) -> None:
    """Raise Unfit for a field of a struct that is unknown or there twice."""
    seen: set[str] = set()
    for name in given:
        if name not in known:
            raise Unfit(f"the struct has no field {quoted_name(name)}", nearest(str(name), known))
        if name in seen:
            raise Unfit(f"the struct has the field {quoted_name(name)} twice", "rename one of them")
        seen.add(name)


def _conform_list(array: pa.Array, kind: pa.ListType) -> pa.Array:
    if not is_list(array.type):
        raise Unfit(f"{array.type} does not fit into a list")
    element = kind.value_field
    values, offsets = _unrolled(array)
    values = _inside("element", values, element.type, nullable=element.nullable)
    return pa.Array.from_buffers(kind, len(array), [_validity(array), offsets], children=[values])


def _conform_map(array: pa.Array, kind: pa.MapType) -> pa.Array:
    source = array.type
    if pa.types.is_map(source):
        # Arrow's functions on lists do not take maps, which are the same in memory; its cast refuses null above null.
        pair = [source.key_field, source.item_field]
        pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=pair)
        buffers = array.buffers()[:2]
        array = pa.Array.from_buffers(
            pa.list_(pa.struct(pair)), len(array), buffers, offset=array.offset, children=[pairs]
        )
    elif not (
        is_list(source)
        and pa.types.is_struct(source.value_type)
        and [child.name for child in source.value_type] == ["key", "value"]
    ):
        # Data frames without maps write lists of such structs.
        raise Unfit(f"{source} does not fit into a map", "use a map, or a list of structs of key and value")
    entries, offsets = _unrolled(array)
    if entries.null_count:
        raise Unfit("null in the place of a pair of a map", "give a key and a value")
    keys, items = _children(entries)
    try:
        keys = conform_array(keys, kind.key_type, nullable=False)
    except Unfit as unfit:
        raise unfit.within_key() from None
    items = _inside("value", items, kind.item_type, nullable=kind.item_field.nullable)
    pairs = pa.struct([kind.key_field, kind.item_field])
    child = pa.Array.from_buffers(pairs, len(entries), [None], children=[keys, items])
    return pa.Array.from_buffers(kind, len(array), [_validity(array), offsets], children=[child])


def _unrolled(array: pa.Array) -> tuple[pa.Array, pa.Buffer]:
    """The elements of all lists in a row, and the offsets into them. What lies below a null list is left out."""
    lengths = pc.if_else(array.is_valid(), pc.list_value_length(array).cast(pa.int64()), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    try:
        return array.flatten(), _values(ends.cast(pa.int32()))
    except pa.ArrowInvalid:
        raise Unfit("more than 2**31 elements in one batch", "pass smaller batches") from None


def _validity(array: pa.Array) -> pa.Buffer | None:
    return _values(array.is_valid()) if array.null_count else None


def _values(array: pa.Array) -> pa.Buffer:
    assert array.offset == 0, "a computed array begins where its buffer begins"
    return array.buffers()[1]


__all__ = [
    "ARROW_ERRORS",
    "MAX_PART_BYTES",
    "NAIVE_REFUSED",
    "NULL_REFUSED",
    "ZONE_REFUSED",
    "Unfit",
    "check_names",
    "conform_array",
    "conform_column",
    "conform_columns",
    "is_list",
    "is_text",
    "unknown_column",
]
