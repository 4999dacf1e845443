"""Columns of DataFrames by their names, as a schema has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

if TYPE_CHECKING:
    from pyspark.sql import Column


def _quoted(name: str) -> str:
    """A name as SQL and expressions take it, whatever characters are in it: dots are no paths here."""
    return f"`{name.replace('`', '``')}`"


def named(name: str) -> Column:
    """The column of a name."""
    return F.col(_quoted(name))


def without_metadata(kind: Any) -> Any:
    """A type of Spark's schema JSON, or a schema, without the metadata of its fields.

    A DataFrame's is anything. A topic's is free text of whoever made it, and Spark would obey some of it: take a
    default for what a file does not have, other types, columns by numbers in the place of their names.
    """
    if isinstance(kind, dict):
        return {key: without_metadata(value) for key, value in kind.items() if key != "metadata"}
    if isinstance(kind, list):
        return [without_metadata(item) for item in kind]
    return kind


__all__ = ["named", "without_metadata"]
