"""Messages of topics with a key: what a message says follows from its number, which stands in its headers.

So a message without a value, which ends its key, is one that a history can name. There are few keys, so that messages
of one key come often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from txnlog.format import schema as schemas

KEY: Final = "key"
"""The column of the key."""

KEYED_SCHEMA: Final = schemas.to_arrow(schemas.DEFAULT_SCHEMA)

_KEYS: Final = ("a", "b", "c", "d")
_WITHOUT_KEY: Final = 13
"""One of so many messages has no key."""

_ENDS: Final = 4
"""One of so many has no value."""

_NUMBER: Final = "number"


def key_of(number: int) -> str | None:
    """The key of a message."""
    mixed = _mixed(number)
    return None if mixed % _WITHOUT_KEY == 0 else _KEYS[mixed // _WITHOUT_KEY % len(_KEYS)]


def has_value(number: int) -> bool:
    """Whether a message has a value."""
    return _mixed(~number) % _ENDS != 0


def _mixed(number: int) -> int:
    """A number that looks like another one's by chance only."""
    return (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 40


def keyed_table_of(numbers: Sequence[int]) -> pa.Table:
    """The messages of these numbers."""
    return pa.Table.from_pylist([_row(number) for number in numbers], schema=KEYED_SCHEMA)


def _row(number: int) -> dict[str, object]:
    key, text = key_of(number), str(number).encode()
    value = text if has_value(number) else None
    return {KEY: None if key is None else key.encode(), "value": value, "headers": [(_NUMBER, text)]}


def numbers_of(table: pa.Table) -> list[int]:
    """The numbers of messages, of topics with a key and of those without one.

    A message that does not say what it was sent with has a number that nobody ever produced.
    """
    if "headers" not in table.column_names:
        values: list[int] = table.column("value").to_pylist()
        return values
    return [_checked(row) for row in table.select([KEY, "value", "headers"]).to_pylist()]


def _checked(row: dict[str, object]) -> int:
    headers = row["headers"]
    assert isinstance(headers, list), "each message has headers"
    number = int(dict(headers)[_NUMBER])
    return number if row == _row(number) else -1 - number


__all__ = ["KEY", "has_value", "key_of", "keyed_table_of", "numbers_of"]
