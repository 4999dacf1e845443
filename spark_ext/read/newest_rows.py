"""A topic with a key as the table that it describes: of each key its newest row."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.support.columns import named
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError
from txnlog.fold.topics import value_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from txnlog.fold.state import TopicRecord

_ORDER: Final = ("_version", "_offset", "_partition")
"""A key has one partition, where later rows have higher offsets; of rows that were put elsewhere by hand the version
decides."""

_KEY: Final = "_newest_key"
_ROW: Final = "_newest_row"


def check_key(topic: TopicRecord, newest_by: object) -> str:
    """The topic's key. Raises InvalidInputError where ``newest_by`` is another column."""
    if newest_by == topic.key and topic.key is not None:
        return topic.key
    raise InvalidInputError(
        f"newest_by is the column that is the key of a topic, not {shown(newest_by)}",
        advice=f"the topic {topic.name!r} has no key: leave newest_by out"
        if topic.key is None
        else f"pass newest_by={topic.key!r}",
    )


def newest_rows(frame: DataFrame, topic: TopicRecord, names: Sequence[str], metadata: Sequence[str]) -> DataFrame:
    """Of each key the newest row, unless that one ends its key. A null key is none.

    Args:
        frame: the rows with their metadata columns.
        topic: the record of the topic, which has a key.
        names: the columns of the version that is read.
        metadata: the metadata columns that the result has.
    """
    key = topic.key
    assert key is not None, "checked before"
    values = [name for name in value_columns(topic) if name in names]
    row = F.struct(*(named(name).alias(f"c{place}") for place, name in enumerate([*names, *metadata])))
    newest = (
        frame.where(named(key).isNotNull())
        .groupBy(named(key).alias(_KEY))
        .agg(F.max_by(row, F.struct(*(named(name) for name in _ORDER))).alias(_ROW))
    )
    # The key as it was grouped by: a condition on it goes down to the files.
    columns = [
        (F.col(_KEY) if name == key else F.col(f"{_ROW}.c{place}")).alias(name)
        for place, name in enumerate([*names, *metadata])
    ]
    if values:
        has_value = [F.col(f"{_ROW}.c{list(names).index(name)}").isNotNull() for name in values]
        newest = newest.where(reduce(or_, has_value))
    return newest.select(*columns)


__all__ = ["check_key", "newest_rows"]
