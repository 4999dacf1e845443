"""A stream that cannot be read: Spark is told why by what it asks first.

What a source raises while it makes its reader is hidden: Spark 4.2 then stops the reader that it has not got, and
reports that.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from spark_ext.support.short_errors import short_errors
from txnlog.errors import TxnLogError


@short_errors
class RefusedStreamReader(DataSourceStreamReader):
    """Raises the same error whatever it is asked."""

    def __init__(self, error: TxnLogError) -> None:
        self._error = error

    def __repr__(self) -> str:
        return f"RefusedStreamReader({self._error!r})"

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's names, from here on
        """Where a query without a checkpoint would begin."""
        raise self._error

    def latestOffset(self, *_: Any) -> NoReturn:  # noqa: N802
        """Where a batch would end, in each form in which versions of Spark ask for it."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """A batch that would be replayed."""
        raise self._error

    def read(self, partition: Any) -> NoReturn:  # noqa: ARG002
        """Never reached: no partition was planned."""
        raise self._error


__all__ = ["RefusedStreamReader"]
