"""Any action of the protocol, made from the types of its fields, so that a new action is tested from its first day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec.inspect
from hypothesis import strategies as st

from txnlog.common.format_limits import MAX_NUMBER
from txnlog.format.actions import AnyAction, Header
from txnlog.format.schema import ArrayType, MapType, StructField, StructType

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)

data_types = st.recursive(
    st.sampled_from(["string", "long", "decimal(10,2)", "whatever"]),
    lambda inner: st.one_of(
        st.builds(ArrayType, inner, st.booleans()),
        st.builds(MapType, inner, inner, st.booleans()),
        st.lists(st.builds(StructField, texts, inner, st.booleans()), max_size=3).map(
            lambda fields: StructType(tuple(fields))
        ),
    ),
    max_leaves=4,
)
schemas = st.lists(
    st.builds(StructField, texts, data_types, st.booleans(), st.dictionaries(texts, texts, max_size=2)), max_size=3
).map(lambda fields: StructType(tuple(fields)))


def integers(low: int | None) -> st.SearchStrategy[int]:
    """Integers from a bound on, or of 64 bits."""
    return st.integers(-MAX_NUMBER - 1 if low is None else low, MAX_NUMBER)


@dataclass(frozen=True)
class Palette:
    """Where texts and numbers come from; a small one makes actions that meet each other."""

    texts: st.SearchStrategy[str] = texts
    integers: Callable[[int | None], st.SearchStrategy[int]] = integers
    schemas: st.SearchStrategy[StructType] = schemas


ANY = Palette()


def of_type(kind: Any, palette: Palette = ANY) -> st.SearchStrategy[Any]:
    """Values of a field's type, within its bounds."""
    match kind:
        case msgspec.inspect.IntType():
            most = MAX_NUMBER if kind.le is None else kind.le
            return palette.integers(kind.ge).map(lambda value: min(value, most))
        case msgspec.inspect.StrType():
            return palette.texts
        case msgspec.inspect.FloatType():
            return finite
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.LiteralType():
            return st.sampled_from(kind.values)
        case msgspec.inspect.UnionType():
            return st.one_of([of_type(item, palette) for item in kind.types])
        case msgspec.inspect.VarTupleType():
            return st.lists(of_type(kind.item_type, palette), max_size=3).map(tuple)
        case msgspec.inspect.TupleType():
            return st.tuples(*[of_type(item, palette) for item in kind.item_types])
        case msgspec.inspect.DictType():
            return st.dictionaries(palette.texts, of_type(kind.value_type, palette), max_size=3)
        case msgspec.inspect.StructType():
            return palette.schemas if kind.cls is StructType else of_struct(kind.cls, palette)
        case _:
            raise AssertionError(f"no values for {kind}")


def of_struct(kind: type[Any], palette: Palette = ANY) -> st.SearchStrategy[Any]:
    """Instances of a struct, optional fields left out or given."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    required = {field.name: of_type(field.type, palette) for field in info.fields if field.required}
    optional = {field.name: of_type(field.type, palette) for field in info.fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda fields: kind(**fields))


KINDS: tuple[type[Any], ...] = AnyAction.__args__
actions = st.one_of([of_struct(kind) for kind in KINDS])
headers = of_struct(Header)
