"""Columns of DataFrames by their names, as a schema has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

if TYPE_CHECKING:
    from pyspark.sql import Column


def _quoted(name: str) -> str:
    """A name as SQL and expressions take it, whatever characters are in it: dots are no paths here."""
    return f"`{name.replace('`', '``')}`"


def named(name: str) -> Column:
    """The column of a name."""
    return F.col(_quoted(name))


__all__ = ["named"]
