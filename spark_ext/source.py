"""The ``txnlog`` format as a Python data source of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from spark_ext.streaming.refused_source import RefusedStreamReader
from spark_ext.support.options import read_options, write_options
from spark_ext.support.short_errors import short_errors
from spark_ext.support.spark_versions import check_streaming_sink, check_streaming_source
from txnlog.errors import TxnLogError
from txnlog.replies import only_looking

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


@short_errors
class TxnLogDataSource(DataSource):
    """Topics as a data source: batch and stream, read and write. Spark finds it by itself as ``txnlog``.

    Every method runs in a process that Spark starts for planning; what goes to executors is in modules of its own.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "txnlog"

    @only_looking()
    def schema(self) -> StructType:
        """The columns of the topic, and the metadata columns if they were asked for; or those of a metadata table."""
        options = read_options(self.options)
        if options.metadata is not None:
            from spark_ext.read.metadata import schema_of  # noqa: PLC0415

            return schema_of(options)
        from spark_ext.read.scan import open_scan  # noqa: PLC0415 - writing needs none of it

        return open_scan(options).schema

    @only_looking()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a consistent view of one or several topics, or a table of the namespace's metadata."""
        options = read_options(self.options, streaming=False)
        if options.metadata is not None:
            from spark_ext.read.metadata_reader import MetadataReader  # noqa: PLC0415

            return MetadataReader(options, schema)
        from spark_ext.read.format_batch_reader import TopicBatchReader  # noqa: PLC0415

        return TopicBatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Reads topics as a stream."""
        try:
            check_streaming_source()
            from spark_ext.streaming.format_source import TopicStreamReader  # noqa: PLC0415 - older versions lack what it needs

            return TopicStreamReader(read_options(self.options, streaming=True), schema)
        except TxnLogError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a DataFrame as one transaction."""
        from spark_ext.write.format_batch_writer import TopicBatchWriter  # noqa: PLC0415

        return TopicBatchWriter(write_options(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes every micro-batch as one transaction."""
        check_streaming_sink()
        from spark_ext.streaming.format_sink import TopicStreamWriter  # noqa: PLC0415

        return TopicStreamWriter(write_options(self.options, streaming=True), schema, overwrite)


__all__ = ["TxnLogDataSource"]
