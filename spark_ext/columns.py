"""Columns of DataFrames by their names, as a schema has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

if TYPE_CHECKING:
    from pyspark.sql import Column


def named(name: str) -> Column:
    """The column of a name, whatever characters are in it: dots are no paths here."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


__all__ = ["named"]
