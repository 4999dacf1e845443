"""Batch reads of the ``txnlog`` format with the option ``metadata``: a table of what the namespace consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_ext.support.short_errors import short_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_ext.support.options import ReadOptions

PARTITION_ROWS: Final = 1 << 16
"""Rows of an input partition, which travel to its task inside the plan."""


class MetadataPartition(InputPartition):
    """Rows for one task: ``value`` is an Arrow stream."""


@short_errors
class MetadataReader(DataSourceReader):
    """Reads the table in the process that plans, at the first action: its tasks need neither the log nor the store.

    Raises:
        SchemaMismatch: the user's own schema has a column that the table has not, or has otherwise.
        NamespaceNotFound, VersionNotAvailable, InvalidInputError: as ``metadata`` says.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        from spark_ext.read.metadata import rows_of, schema_of  # noqa: PLC0415 - needs what executors may not have
        from spark_ext.read.scan import check_schema  # noqa: PLC0415
        from spark_ext.support.spark_schemas import arrow_for_spark  # noqa: PLC0415

        check_schema(schema, schema_of(options), f"the table {options.metadata!r}")
        rows = rows_of(options).select(schema.names).cast(arrow_for_spark(schema))
        self._planned = [
            MetadataPartition(_as_bytes(rows.slice(start, PARTITION_ROWS)))
            for start in range(0, rows.num_rows, PARTITION_ROWS)
        ]

    def __repr__(self) -> str:
        return f"MetadataReader({len(self._planned)} partitions)"

    def __getstate__(self) -> dict[str, object]:
        # Executors get their own partitions one by one, not all of them with the function.
        return {"_planned": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Shares of the rows."""
        return self._planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a share."""
        if not isinstance(partition, MetadataPartition):
            return iter(())  # Spark's stand-in for a read without partitions
        return iter(pa.ipc.open_stream(partition.value).read_all().to_batches())


def _as_bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


__all__ = ["PARTITION_ROWS", "MetadataPartition", "MetadataReader"]
