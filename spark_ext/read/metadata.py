"""The metadata of a namespace as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from spark_ext.support.namespace_cache import location_of, namespace_at
from spark_ext.support.options import storage_of_call
from txnlog.errors import InvalidInputError
from txnlog.replies import only_looking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@only_looking()
def metadata(
    spark: SparkSession,
    path: str,
    table: str,
    *,
    limit: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """A table of a namespace's metadata as a DataFrame: what ``ns.table(table, limit=limit)`` returns, as it is now.

    All rows are read by the driver when this function is called.

    Args:
        spark: the session; its settings ``spark.txnlog.storage.<name>`` are storage options if none are given.
        path: ROOT/NAMESPACE.
        table: ``"transactions"``, ``"segments"``, ``"subscriptions"``, ``"producers"``, ``"history"`` or ``"files"``.
        limit: at most so many rows; see ``ns.table``.
        storage_options: fsspec's, with which the log is read.

    Raises:
        NamespaceNotFound, InvalidInputError: an argument is wrong, such as a path that names a topic, or the name of a
            table that there is not; with the nearest name.
    """
    storage = storage_of_call(spark, storage_options)
    location = location_of(path, storage)
    if location.topic is not None:
        raise InvalidInputError(
            f"the path names the topic {location.topic!r}: metadata is that of a whole namespace",
            advice=f"leave the topic out of the path, which then ends in {location.namespace!r}, and select its rows",
        )
    found = namespace_at(location, "r", storage).table(table, limit=limit)
    if not found.num_rows:
        return spark.createDataFrame([], from_arrow_schema(found.schema))
    return spark.createDataFrame(found)


__all__ = ["metadata"]
