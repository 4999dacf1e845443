"""Data sources in Python that do nothing: what Spark itself needs for any source or sink that is written in Python.

``arrow_files`` reads Arrow batches that are in memory, since the files are mapped and were read before; ``nowhere``
counts the rows that it gets. What txnlog's format takes beyond them is ours, and the rest is Spark's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class ArrowFiles(DataSource):
    """The Arrow files of a folder, a task for each, batch by batch as they were written."""

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return "arrow_files"

    def _files(self) -> list[str]:
        return sorted(str(file) for file in Path(self.options["path"]).iterdir())

    def schema(self) -> StructType:
        """See DataSource."""
        with pa.memory_map(self._files()[0]) as file:
            return from_arrow_schema(pa.ipc.open_file(file).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """See DataSource."""
        return _Reader(self._files())


class _Reader(DataSourceReader):
    def __init__(self, files: list[str]) -> None:
        self._found = files

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as mapped:
            file = pa.ipc.open_file(mapped)
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


@dataclass(frozen=True)
class Counted(WriterCommitMessage):
    """The rows that a task got."""

    rows: int


class Nowhere(DataSource):
    """A sink that takes Arrow batches and drops them."""

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return "nowhere"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002 - likewise
        """See DataSource."""
        return _Dropping()


class _Dropping(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Counted(sum(batch.num_rows for batch in iterator))


def register(spark: SparkSession) -> None:
    """Make both formats known to a session, whose workers cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # has no types
    for source in (ArrowFiles, Nowhere):
        spark.dataSource.register(source)


__all__ = ["ArrowFiles", "Nowhere", "register"]
