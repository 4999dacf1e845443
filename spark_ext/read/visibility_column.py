"""The visibility predicate as a Spark column on the segment number: ``txnlog.fold.visibility`` defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody imports it

from txnlog.format.keys import SEGMENT_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import Column

    from txnlog.fold.visibility import Visibility


def to_sql(visibility: Visibility) -> str:
    """Whether a row's segment is in the set, as text that Spark parses: literals one by one take far longer."""
    parts = [f"{SEGMENT_COLUMN} BETWEEN {first}L AND {last}L" for first, last in visibility.runs()]
    singles = visibility.singles()
    if singles:
        parts.append(f"{SEGMENT_COLUMN} IN ({', '.join(f'{number}L' for number in singles)})")
    return " OR ".join(parts) or "false"


def to_column(visibility: Visibility) -> Column:
    """Whether a row's segment is in the set: never null for a number, so it can be negated.

    On the partition column of a scan Spark evaluates it while planning, once a folder, and never per row.
    """
    return F.expr(to_sql(visibility))


__all__ = ["to_column", "to_sql"]
