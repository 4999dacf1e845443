"""A Spark job that writes the rows of a DataFrame into files, which nothing names yet; its errors are ours."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.support import spark_errors
from spark_ext.support.columns import named
from spark_ext.write import arrow_batches
from spark_ext.write.task_writer import PARTITION_COLUMN, WriteSpec, WrittenSegment, write_marked
from txnlog.api.internals import connection_of
from txnlog.format.column_text import SPARK_SQL_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from txnlog.api.namespace import Namespace
    from txnlog.fold.state import TopicRecord


@dataclass(frozen=True, slots=True)
class FrameJob:
    """A job that has not run: what its tasks know, and how it is run."""

    spec: WriteSpec
    mark: str
    collect: Callable[[], list[Row]]

    def run(self, ns: Namespace, unnamed: Iterable[int] = ()) -> list[WrittenSegment]:
        """Run it; returns its files, all of them durable.

        ``unnamed`` are numbers of before that the log has not yet, like those of the job: a vacuum would close their
        blocks while the job runs.

        Raises a typed error where a task raised one, and else what Spark raises.
        """
        with connection_of(ns).keep_blocks_alive([*unnamed, self.spec.numbers.txn]):
            try:
                answers = self.collect()
            except PySparkException as error:
                ours = spark_errors.typed(error, self.mark) or spark_errors.without_txnlog(error)
                if ours is None:
                    raise
                raise ours from error
        return [WrittenSegment.from_json(row.segment) for row in answers]


def frame_job(df: DataFrame, record: TopicRecord | None, spec: WriteSpec, *, without_python: bool = False) -> FrameJob:
    """The job for a DataFrame whose rows go to a topic, or where its column ``topic`` says.

    For ``without_python`` see ``arrow_batches.collect``.
    """
    mark = f"(of the job {uuid.uuid4().hex})"
    rows_of = df if record is None else _with_partition(df, record)
    # By position: mapInArrow takes names for expressions, and a dot in one of them for a path.
    plain = rows_of.toDF(*(f"c{position}" for position in range(len(rows_of.columns))))
    task = partial(write_marked, names=rows_of.columns, spec=spec, mark=mark)
    place = (spec.root, spec.namespace, None if record is None else record.name)
    collect = partial(
        arrow_batches.collect,
        plain,
        task,
        "segment string",
        mark=mark,
        place=place,
        without_python=without_python,
    )
    return FrameJob(spec, mark, collect)


def _with_partition(df: DataFrame, record: TopicRecord) -> DataFrame:
    """The DataFrame with every row's partition, computed by Spark itself, if the topic has a key."""
    if record.key is None or record.partitions == 1:
        return df
    kind = next(field.type for field in record.schema.fields if field.name == record.key)
    assert isinstance(kind, str), "keys have plain types"
    kind = SPARK_SQL_NAMES.get(kind, kind)
    # The hash depends on the type, so it is the topic's, not the DataFrame's (an int hashes otherwise than a long).
    key = named(record.key) if record.key in df.columns else F.lit(None)
    # A value that is not of that type is refused later, with its column's name.
    return df.withColumn(PARTITION_COLUMN, F.pmod(F.xxhash64(key.try_cast(kind)), F.lit(record.partitions)).cast("int"))


__all__ = ["FrameJob", "frame_job"]
