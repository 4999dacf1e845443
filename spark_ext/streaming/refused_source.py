"""The reader of a stream that cannot be read, which raises the reason at Spark's first call.

An error that a source raises while it creates its reader stays hidden: Spark 4.2 then stops the missing reader, and
reports the failure of that.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from spark_ext.support.short_errors import short_errors
from txnlog.errors import TxnLogError
from txnlog.replies import copy_of


@short_errors
class RefusedStreamReader(DataSourceStreamReader):
    """A reader all of whose methods raise the same error."""

    def __init__(self, error: TxnLogError) -> None:
        self._error = copy_of(error)

    def __repr__(self) -> str:
        return f"RefusedStreamReader({self._error!r})"

    def initialOffset(self) -> NoReturn:  # noqa: N802 - Spark's names, from here on
        """Where a query without a checkpoint would begin."""
        raise copy_of(self._error)

    def latestOffset(self, *_: Any) -> NoReturn:  # noqa: N802
        """Where a batch would end, in each form in which versions of Spark ask for it."""
        raise copy_of(self._error)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:  # noqa: ARG002
        """A batch that would be replayed."""
        raise copy_of(self._error)

    def read(self, partition: Any) -> NoReturn:  # noqa: ARG002
        """Never reached: no partition was planned."""
        raise copy_of(self._error)


__all__ = ["RefusedStreamReader"]
