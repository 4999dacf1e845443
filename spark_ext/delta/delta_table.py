"""A Delta table that is no topic, through Spark's Delta: idempotent appends, and the versions of an application.

Delta keeps, for each application id, the last version that was committed under it (its ``txn`` action). An append under
a version that is not above it is skipped silently; one that races with another of the same application is refused. An
append without rows is a commit as well: in this way a version is claimed.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_ext.support.columns import named
from spark_ext.support.spark_errors import condition_of, first_line
from spark_ext.support.spark_versions import has_jvm
from txnlog.client.shadowing import check_not_hidden
from txnlog.common.validation import mapping, shortened, shown
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    SchemaMismatch,
    StoreError,
    TransactionConflict,
    TxnLogError,
    UnsupportedFeature,
    no_delta,
)

check_not_hidden("catalog.delta_log.commit")
from catalog.delta_log.commit import DOMAIN  # noqa: E402 - where another "catalog" is first, the error names it
from catalog.delta_log.sql import delta_location  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger: Final = logging.getLogger("txnlog.spark")

_SPARKS: Final = (Py4JError, PySparkException)
"""The exceptions of Spark and Delta in the driver: PySpark has classes of its own for some of Java's."""

_CREDENTIALS: Final = re.compile(r"[^/]*://[^/@]*:(?!\d+/)[^@]*@")
"""The beginning of a URL with any password: parsers end a host at the first "/", "?" or "#". It matches no port."""

_OURS: Final = "txnlog"
_LOOKED_AT: Final = 20
"""Versions of a table's history that are read first: the wanted one is nearly always among the newest."""

_FORGETS: Final = "delta.setTransactionRetentionDuration"
"""A table property by which Delta forgets applications, and so that their work was done."""

_NOTES: Final = "spark.databricks.delta.commitInfo.enabled"
"""A setting of the session without which Delta stores no note with a commit, so that its writer is unknown."""

_IDENTITY: Final = "delta.identity."
"""The prefix of the metadata keys of a column that is GENERATED AS IDENTITY."""

_RESERVED: Final = frozenset({"txnappid", "txnversion", "usermetadata", "path", "mode", "replacewhere"})
"""Options of Delta's writer that this module sets itself."""

_OVERTAKEN: Final = "DELTA_CONCURRENT_TRANSACTION"
"""Delta's error condition if another append under the same application was committed meanwhile."""

_DO_NOT_FIT: Final = frozenset({"DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS"})
"""Delta's error conditions if a DataFrame's columns, or their types, are not the table's."""


class DeltaTable:
    """An existing Delta table at a path or under a name.

    Args:
        spark: a session that has Delta.
        table: a path or URL, or a name as SQL has it (``sales.orders``, with backticks where it needs them).

    Raises:
        InvalidInputError: the name is not valid in SQL; the table does not exist, is none of Delta's, is that of a
            topic, cannot be read, or forgets applications; or the session makes Delta store no notes with its commits.
        UnsupportedFeature: the session has no Delta, or is behind Spark Connect.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        if not isinstance(table, str) or not table.strip():
            raise InvalidInputError(f"a Delta table is a path or a name, not {shown(table)}")
        _check_url(table)
        self._spark = spark
        self._log = _delta_log(spark)
        if spark.conf.get(_NOTES, "true").lower() != "true":  # type: ignore[union-attr]  # there is a default
            raise InvalidInputError(
                f"with {_NOTES}=false the writer of a commit of a Delta table is unknown",
                advice="set it to true, which is its default",
            )
        self.name = table
        self._is_path = "/" in table
        self._location = table if self._is_path else self._location_of(table)
        try:
            snapshot = self._newest()
        except _SPARKS as error:
            raise self._unreadable(error) from error
        if snapshot.version() < 0:
            raise self._missing()
        features = snapshot.protocol().writerFeatures()
        if features.isDefined() and features.get().contains(DOMAIN):
            raise InvalidInputError(f"{shortened(table)} is the table of a topic", advice="use txn.write(df, topic)")
        metadata = snapshot.metadata()
        if metadata.configuration().contains(_FORGETS):
            raise InvalidInputError(
                f"the Delta table {shortened(table)} forgets after some time which appends it has ({_FORGETS})",
                advice=f"ALTER TABLE ... UNSET TBLPROPERTIES ('{_FORGETS}')",
            )
        self.id: str = metadata.id()

    def _location_of(self, name: str) -> str:
        try:
            found = delta_location(self._spark, name)
        except _SPARKS as error:
            raise self._unreadable(error) from error
        if found is None:
            raise self._missing()
        return found

    def _missing(self) -> InvalidInputError:
        return InvalidInputError(
            f"there is no Delta table {shortened(self.name)}",
            advice="create it first, with its columns (it is not created here, since a misspelt name would be another "
            'table); a name without "/" is looked up in the session\'s catalog, and a path must be absolute',
        )

    def _newest(self) -> Any:
        return self._log.forTableWithSnapshot(self._spark._jsparkSession, self._location)._2()

    def _snapshot(self) -> Any:
        """The newest snapshot of the table. Raises StoreError."""
        try:
            return self._newest()
        except _SPARKS as error:
            raise self._silent(error) from error

    def _unreadable(self, error: Exception) -> InvalidInputError:
        return InvalidInputError(f"the Delta table {shortened(self.name)} cannot be read: {first_line(error)}")

    def _silent(self, error: Exception) -> StoreError:
        return StoreError(f"the log of the Delta table {shortened(self.name)} cannot be read: {first_line(error)}")

    # --- what it knows ----------------------------------------------------------------------------------------------

    def last(self, app: str) -> int | None:
        """The last version of an application; None before the first. Raises StoreError."""
        found = self._snapshot().transactions().get(app)
        return int(found.get()) if found.isDefined() else None

    def apps(self, prefix: str) -> list[str]:
        """The applications of the table whose names begin with a prefix. Raises StoreError."""
        found: str = self._snapshot().transactions().keys().mkString("\n")
        return [app for app in found.split("\n") if app.startswith(prefix)]

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The records in an application's commits, with the table's versions, newest first, as far as Delta kept them.

        Records are written by :meth:`append`. A note that does not name the application is not a record of it.

        Raises:
            StoreError: the table's log cannot be read.
            CorruptionError: a note that names the application cannot be parsed. If it were ignored, the work that it
                records would be done once more.
        """
        oldest: int | None = None
        for limit in ((_LOOKED_AT,), ()):
            for row in self._history(*limit):
                if oldest is not None and row.version >= oldest:
                    continue
                oldest = row.version
                try:
                    record = _record_of(row.userMetadata, app)
                except (ValueError, RecursionError) as error:
                    raise CorruptionError(
                        f"the note about {app} in version {row.version} of the Delta table {shortened(self.name)} is "
                        "damaged",
                        advice="compare its rows with the topics, then continue with a new subscription, producer or "
                        "application, which has notes of its own",
                        durable=Durable.MAYBE,
                    ) from error
                if record is not None:
                    yield row.version, record

    def _history(self, *limit: int) -> list[Any]:
        """The table's versions with their notes, newest first. It takes a job of Spark's. Raises StoreError."""
        try:
            # Not by SQL, where Spark would replace `${...}` in the path by the value of a setting.
            table = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
            found = table.forPath(self._spark._jsparkSession, self._location).history(*limit)
            return DataFrame(found, self._spark).select("version", "userMetadata").collect()
        except _SPARKS as error:
            raise self._silent(error) from error

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self, df: DataFrame, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]
    ) -> None:
        """Append under a version of an application. Nothing is appended if Delta knows that version or a later one.

        Delta does not report that it skipped an append, and may raise an error after it committed one (a hook that
        failed). So, however the write ended, the commits made since are searched for this append.

        Raises:
            TransactionConflict: another append of the application was committed meanwhile, or before under this version
                or a later one, or the table was replaced by another one. This append was not committed.
            SchemaMismatch: the columns are not the table's. Nothing was appended.
            OutcomeUnknown: it could not be found out whether the table has the rows.
            StoreError: the table's log cannot be read. Nothing was appended.
            Exception: what Spark raises. Nothing was appended.
        """
        before = self._snapshot()
        if before.metadata().id() != self.id:  # Delta would create a missing table
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} was dropped, or replaced by another one, since it was opened",
                advice="create the table if it is missing, and do the work again",
            )
        # Copies of one log, and a log that was restored to an older state, give the same TxnIDs: hence a random id.
        noted = {"app": app, "version": version, **record, "commit": uuid.uuid4().hex}
        note = json.dumps({_OURS: noted}, separators=(",", ":"))
        writer = df.write.format("delta").mode("append").options(**options)
        writer = writer.option("txnAppId", app).option("txnVersion", str(version)).option("userMetadata", note)
        raised: Exception | None = None
        try:
            writer.save(self._location)  # not by its name, which may mean another table by now
        except _SPARKS as error:
            raised = error
        try:
            committed = self._has_commit(app, note, noted["commit"], before.version())
            last = None if committed or raised else self.last(app)
        except StoreError as error:
            raise OutcomeUnknown(
                f"it is unknown whether the Delta table {shortened(self.name)} has the rows: {error.message}",
                advice="do the same work again: rows that the table has are not appended a second time",
            ) from raised or error
        if committed and raised is not None:
            _logger.warning(
                "the Delta table %s has the rows, and then failed: %s", shortened(self.name), first_line(raised)
            )
        elif raised is not None:
            raise self._refusal(raised, app)
        elif not committed:
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} has version {last} of {app}, and skipped this one: {version}",
                advice="a newer run wrote it, or a copy of the namespace, or the namespace before it was restored to "
                "an older state; compare the table with the topics",
            )

    def _refusal(self, error: Exception, app: str) -> Exception:
        """The error for an append that was not committed: one of txnlog's if Delta refused it, otherwise Spark's."""
        condition = condition_of(error).partition(".")[0]
        refusal: TxnLogError
        if condition in _DO_NOT_FIT:
            refusal = SchemaMismatch(
                f"the columns do not fit the Delta table {shortened(self.name)}: {first_line(error)}",
                advice="select the table's columns and cast them to its types, or add new ones with "
                'options={"mergeSchema": "true"}',
            )
        elif condition == _OVERTAKEN:
            refusal = TransactionConflict(
                f"the Delta table {shortened(self.name)} got another batch of {app} meanwhile",
                advice="run one writer at a time: the other one goes on",
            )
        else:
            return error
        refusal.__cause__ = error
        return refusal

    def _has_commit(self, app: str, note: str, commit: str, version: int) -> bool:
        """Whether one of the commits since a version has this note. Raises StoreError."""
        try:
            return note in self._notes_behind(version)
        except _SPARKS:  # no public interface, and another one in Delta 4.0. The history needs a job, but always works
            since = itertools.takewhile(lambda found: found[0] > version, self.newest_records(app))
            return any(record.get("commit") == commit for _, record in since)

    def _notes_behind(self, version: int) -> list[str]:
        """The notes of the commits since a version, read in 10 to 20 milliseconds, where the history takes 400."""
        notes = []
        none = self._spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        log = self._log.forTable(self._spark._jsparkSession, self._location)
        commits = log.getChanges(version + 1, none, False)
        while commits.hasNext():
            actions = commits.next()._2().iterator()
            while actions.hasNext():
                action = actions.next()
                if action.getClass().getSimpleName() != "CommitInfo":
                    continue
                if action.userMetadata().isDefined():
                    notes.append(action.userMetadata().get())
                break  # nearly always the first action: the others may be one for each file
        return notes

    def take(self, app: str, version: int, record: Mapping[str, Any]) -> None:
        """Claim a version of an application with a commit without rows: Delta appends nothing under older ones then."""
        # Not every version of Delta accepts a DataFrame without columns; the table's own columns always fit, except for
        # identity columns, for which Delta refuses values even if there is no row.
        fields = json.loads(self._snapshot().metadata().schemaString())["fields"]
        given = [item["name"] for item in fields if not any(name.startswith(_IDENTITY) for name in item["metadata"])]
        rows = self._spark.read.format("delta").load(self._location).select(*map(named, given)).limit(0)
        self.append(rows, app, version, record, {})


def check_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options for Delta's writer. Raises InvalidInputError for those that the caller cannot set."""
    found = mapping("options", options)
    for name, value in found.items():
        if not isinstance(name, str) or name.lower() in _RESERVED:
            raise InvalidInputError(
                f"the option {shown(name)} cannot be passed here",
                advice="leave it out: rows are appended under the transaction's identity, and this sets it",
            )
        if value is None:
            raise InvalidInputError(f"the option {shown(name)} is None", advice="leave it out, or give it a value")
    return found


def _check_url(table: str) -> None:
    """Refuse a URL with a password without repeating it: Hadoop would ignore it, and messages show table names."""
    if _CREDENTIALS.match(table):
        raise InvalidInputError(
            "the URL of the Delta table carries a password",
            advice="leave it out: Spark takes credentials from the session's settings (spark.hadoop.fs....)",
        )


def _delta_log(spark: SparkSession) -> Any:
    if not has_jvm(spark):
        raise UnsupportedFeature(
            "the versions of an application in a Delta table are read in Spark's driver, and a session of Spark "
            "Connect has none",
            advice="run it in a classic session, or use two-phase commit (docs/python.md)",
        )
    found = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    if not isinstance(found, JavaClass):
        raise no_delta()
    return found


def _record_of(note: str | None, app: str) -> Mapping[str, Any] | None:
    """The record in the note of a commit; None if there is no note, or it is not of txnlog or not of this application.

    Raises ValueError or RecursionError if the note names the application and cannot be parsed.
    """
    if note is None or not note.startswith(f'{{"{_OURS}":') or json.dumps(app) not in note:
        return None
    found = json.loads(note)[_OURS]
    return found if isinstance(found, dict) and found.get("app") == app else None


__all__ = ["DeltaTable", "check_options"]
