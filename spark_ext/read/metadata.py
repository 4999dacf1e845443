"""The metadata of a namespace as DataFrames: by a call, and for the option ``metadata`` of the format."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from spark_ext.support.namespace_cache import location_of_namespace, namespace_at
from spark_ext.support.options import storage_of_call
from txnlog.api.tables import check_has_versions, table_named
from txnlog.replies import only_looking

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_ext.support.options import ReadOptions
    from spark_ext.support.paths import Location


@only_looking()
def metadata(
    spark: SparkSession,
    path: str,
    table: str,
    *,
    limit: int | None = None,
    version: int | None = None,
    timestamp: datetime.datetime | str | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A table of a namespace's metadata as a DataFrame: what ``ns.table(table, ...)`` returns.

    All rows are read by the driver when this function is called. The option ``metadata`` of the format gives the same.

    Args:
        spark: the session; its settings ``spark.txnlog.storage.<name>`` are storage options if none are given.
        path: ROOT/NAMESPACE.
        table: ``"transactions"``, ``"segments"``, ``"subscriptions"``, ``"producers"``, ``"history"`` or ``"files"``.
        limit: at most so many rows; see ``ns.table``.
        version: the history, or the segments, as they were at a version; by default the table as it is now.
        timestamp: the same, at the newest version of a time with a zone.
        storage_options: fsspec's, with which the log is read.

    Raises:
        NamespaceNotFound, VersionNotAvailable, InvalidInputError: an argument is wrong, such as a path that names a
            topic, or the name of a table that there is not; with the nearest name.
    """
    storage = storage_of_call(spark, storage_options)
    found = _table(_location(path, storage), storage, table, limit, version, timestamp)
    if not found.num_rows:
        return spark.createDataFrame([], from_arrow_schema(found.schema))
    return spark.createDataFrame(found)


def schema_of(options: ReadOptions) -> StructType:
    """The columns of the table that the option ``metadata`` names. Raises what :func:`rows_of` does, as far as it can.

    What is wrong with the options is said when the DataFrame is made, as for topics, and not at its first action.
    """
    assert options.metadata is not None, "the option is there"
    found = table_named(options.metadata)
    if options.version_as_of is not None or options.timestamp_as_of is not None:
        check_has_versions(options.metadata)
    _location(options.path, options.storage_options)
    return from_arrow_schema(found.schema)


def rows_of(options: ReadOptions) -> pa.Table:
    """The table that the option ``metadata`` names. Raises what :func:`metadata` does."""
    assert options.metadata is not None, "the option is there"
    storage = options.storage_options
    location = _location(options.path, storage)
    return _table(location, storage, options.metadata, options.limit, options.version_as_of, options.timestamp_as_of)


def _location(path: str, storage: Mapping[str, Any]) -> Location:
    return location_of_namespace(path, storage, what="metadata is that of", more=", and select its rows")


def _table(
    location: Location,
    storage: Mapping[str, Any],
    name: str,
    limit: int | None,
    version: int | None,
    timestamp: datetime.datetime | str | int | None,
) -> pa.Table:
    return namespace_at(location, "r", storage).table(name, limit=limit, version=version, timestamp=timestamp)


__all__ = ["metadata", "rows_of", "schema_of"]
