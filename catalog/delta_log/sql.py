"""Looking up a Delta table in Spark's SQL. PySpark is imported at the call only: a catalog needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.common.validation import shortened
from txnlog.errors import InvalidInputError, no_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delta_location(spark: SparkSession, table: str, *, instead: str | None = None) -> str | None:
    """The location of the Delta table with a name; None where there is no table, or none of Delta's.

    Args:
        spark: the session.
        table: its name as SQL has it, with backticks where it needs them.
        instead: a way that needs no Delta, for the advice.

    Raises:
        InvalidInputError: SQL cannot read the name.
        UnsupportedFeature: the session has no Delta.
    """
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415 - with a session only

    try:
        found = spark.sql(f"DESCRIBE DETAIL {table}").select("format", "location").collect()[0]
    except ParseException as error:
        raise InvalidInputError(
            f"{shortened(table)} is no name in SQL", advice="put backticks around its parts: `my-db`.bills"
        ) from error
    except AnalysisException as error:
        # Without Delta, Spark parses DETAIL as a table, and the name as one of its columns.
        if " `DETAIL` " in str(error):
            raise no_delta(instead=instead) from None
        return None
    location: str = found.location
    return location if found.format == "delta" else None


__all__ = ["delta_location"]
