"""A Delta table of somebody else's, as Spark's Delta has it: what it knows of an application, and appending once.

Delta keeps, for each application id, the last version that was committed under it (its ``txn`` action). An append under
a version that is not above it is skipped, silently; one that meets another of the same application is refused. An
append without rows is a commit as well: it is how a version is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from catalog.delta_commit import DOMAIN
from catalog.delta_sql import delta_location
from spark_ext.columns import named, quoted
from spark_ext.spark_versions import has_jvm
from spark_ext.task_errors import first_line
from txnlog.arguments import shortened, shown
from txnlog.errors import InvalidInputError, TransactionConflict, UnsupportedFeature, no_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OURS: Final = "txnlog"
_LOOKED_AT: Final = 20
"""Versions of a table's history that are read at first: what is looked for is nearly always among the newest."""

_FORGETS: Final = "delta.setTransactionRetentionDuration"
"""A property of tables that lets them forget applications, and with them that work was done."""

_IDENTITY: Final = "delta.identity."
"""What the metadata of a column begins with whose values are GENERATED AS IDENTITY."""

_RESERVED: Final = frozenset({"txnappid", "txnversion", "usermetadata", "path", "mode", "replacewhere"})
"""Options of Delta's that say what is written, or over what: those are the call's own."""


class DeltaTable:
    """A table at a path or under a name, which must be there.

    Args:
        spark: a session that has Delta.
        table: a path or URL, or a name as SQL has it (``sales.orders``, with backticks where it needs them).

    Raises:
        InvalidInputError: it is no name in SQL, there is no such table, it is none of Delta's or the table of a topic,
            it cannot be read, or it forgets applications.
        UnsupportedFeature: the session has no Delta, or is behind Spark Connect.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        if not isinstance(table, str) or not table.strip():
            raise InvalidInputError(f"a Delta table is a path or a name, not {shown(table)}")
        self._spark = spark
        self._log = _delta_log(spark)
        self.name = table
        self._is_path = "/" in table
        self._location = table if self._is_path else self._location_of(table)
        snapshot = self._snapshot()
        if snapshot.version() < 0:
            raise self._missing()
        features = snapshot.protocol().writerFeatures()
        if features.isDefined() and features.get().contains(DOMAIN):
            raise InvalidInputError(f"{shortened(table)} is the table of a topic", advice="use txn.write(df, topic)")
        metadata = snapshot.metadata()
        if metadata.configuration().contains(_FORGETS):
            raise InvalidInputError(
                f"the Delta table {shortened(table)} forgets after a while what it was given ({_FORGETS})",
                advice=f"ALTER TABLE ... UNSET TBLPROPERTIES ('{_FORGETS}')",
            )
        self.id: str = metadata.id()

    def _location_of(self, name: str) -> str:
        try:
            found = delta_location(self._spark, name)
        except PySparkException as error:
            raise self._unreadable(error) from error
        if found is None:
            raise self._missing()
        return found

    def _missing(self) -> InvalidInputError:
        return InvalidInputError(
            f"there is no Delta table {shortened(self.name)}",
            advice="make it first, with the columns that it is to have: a name that is misspelt would be another table",
        )

    def _snapshot(self) -> Any:
        try:
            return self._log.forTableWithSnapshot(self._spark._jsparkSession, self._location)._2()
        except Py4JError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(f"the Delta table {shortened(self.name)} cannot be read: {first_line(error)}")

    # --- what it knows ----------------------------------------------------------------------------------------------

    def last(self, app: str) -> int | None:
        """The last version of an application; None before the first."""
        found = self._snapshot().transactions().get(app)
        return int(found.get()) if found.isDefined() else None

    def apps(self, prefix: str) -> list[str]:
        """The applications that it knows, of those that begin so."""
        found: str = self._snapshot().transactions().keys().mkString("\n")
        return [app for app in found.split("\n") if app.startswith(prefix)]

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What was noted with an application's commits, with their versions, newest first; what clean-up left of them.

        A record is noted by :meth:`append`.
        """
        oldest: int | None = None
        for limit in (f" LIMIT {_LOOKED_AT}", ""):
            history = self._spark.sql(f"DESCRIBE HISTORY delta.{quoted(self._location)}{limit}")
            for row in history.select("version", "userMetadata").collect():
                if oldest is not None and row.version >= oldest:
                    continue
                oldest = row.version
                record = _record_of(row.userMetadata)
                if record is not None and record.get("app") == app:
                    yield row.version, record

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self, df: DataFrame, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]
    ) -> None:
        """Append under a version of an application. Where Delta knows it, or a later one, nothing is written.

        Raises:
            TransactionConflict: another append of the application was committed meanwhile, or the table is another one
                by now; this one was not.
            Exception: what Spark raises, for columns that do not fit and so on. Nothing was appended.
        """
        if self._snapshot().metadata().id() != self.id:  # Delta would make a table where there is none
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} was dropped, or replaced by another one, since it was named",
                advice="do the work again, if there is a table for it",
            )
        note = json.dumps({_OURS: {"app": app, "version": version, **record}}, separators=(",", ":"))
        writer = df.write.format("delta").mode("append").options(**options)
        writer = writer.option("txnAppId", app).option("txnVersion", str(version)).option("userMetadata", note)
        try:
            writer.save(self._location)  # not by its name: that may mean another table by now
        except (Py4JError, PySparkException) as error:
            if "DELTA_CONCURRENT_TRANSACTION" not in str(error):
                raise
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} got another batch of {app} meanwhile",
                advice="one writer at a time: the other one goes on",
            ) from error

    def take(self, app: str, version: int, record: Mapping[str, Any]) -> None:
        """Take a version of an application without a row: from here on nothing is appended under an older one."""
        # No column at all would do, if all Deltas said so. Of the table's own ones none can be wrong, but those that it
        # numbers by itself, whose values it refuses although there is no row.
        fields = json.loads(self._snapshot().metadata().schemaString())["fields"]
        given = [item["name"] for item in fields if not any(name.startswith(_IDENTITY) for name in item["metadata"])]
        rows = self._spark.read.format("delta").load(self._location).select(*map(named, given)).limit(0)
        self.append(rows, app, version, record, {})


def check_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options for Delta's writer. Raises InvalidInputError for those that are not the caller's to give."""
    found = dict(options or {})
    for name in found:
        if not isinstance(name, str) or name.lower() in _RESERVED:
            raise InvalidInputError(
                f"the option {shown(name)} is not free here",
                advice="rows are appended, under the transaction's identity",
            )
    return found


def _delta_log(spark: SparkSession) -> Any:
    if not has_jvm(spark):
        raise UnsupportedFeature(
            "what a Delta table knows of an application is asked in the driver, and this session is Spark Connect's",
            advice="run it in a driver of its own, or use two-phase commit (docs/python.md)",
        )
    found = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    if not isinstance(found, JavaClass):
        raise no_delta()
    return found


def _record_of(note: str | None) -> Mapping[str, Any] | None:
    """What we noted with a commit; None where somebody else did, or nobody."""
    if note is None or not note.startswith(f'{{"{_OURS}":'):
        return None
    try:
        found = json.loads(note)[_OURS]
    except (ValueError, KeyError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


__all__ = ["DeltaTable", "check_options"]
