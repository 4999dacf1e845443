"""A Delta table of somebody else's, as Spark's Delta has it: what it knows of an application, and appending once.

Delta keeps, for each application id, the last version that was committed under it (its ``txn`` action). An append under
a version that is not above it is skipped, silently; one that meets another of the same application is refused. An
append without rows is a commit as well: it is how a version is taken.
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
"""What Spark and Delta raise in the driver: PySpark has classes of its own for some of Java's."""

_CREDENTIALS: Final = re.compile(r"[^/]*://[^/@]*:(?!\d+/)[^@]*@")
"""How a URL with a password begins, whatever that holds: parsers end a host at the first "/", "?" or "#". No port."""

_OURS: Final = "txnlog"
_LOOKED_AT: Final = 20
"""Versions of a table's history that are read at first: what is looked for is nearly always among the newest."""

_FORGETS: Final = "delta.setTransactionRetentionDuration"
"""A property of tables that lets them forget applications, and with them that work was done."""

_NOTES: Final = "spark.databricks.delta.commitInfo.enabled"
"""A setting of the session without which Delta notes nothing with a commit, and nothing tells whose it was."""

_IDENTITY: Final = "delta.identity."
"""What the metadata of a column begins with whose values are GENERATED AS IDENTITY."""

_RESERVED: Final = frozenset({"txnappid", "txnversion", "usermetadata", "path", "mode", "replacewhere"})
"""Options of Delta's that say what is written, or over what: those are the call's own."""

_OVERTAKEN: Final = "DELTA_CONCURRENT_TRANSACTION"
"""What Delta calls it where another append under the same application was committed meanwhile."""

_DO_NOT_FIT: Final = frozenset({"DELTA_METADATA_MISMATCH", "DELTA_FAILED_TO_MERGE_FIELDS"})
"""What Delta calls it where a DataFrame's columns, or their types, are not the table's."""


class DeltaTable:
    """A table at a path or under a name, which must be there.

    Args:
        spark: a session that has Delta.
        table: a path or URL, or a name as SQL has it (``sales.orders``, with backticks where it needs them).

    Raises:
        InvalidInputError: it is no name in SQL, there is no such table, it is none of Delta's or the table of a topic,
            it cannot be read, it forgets applications, or the session lets Delta note nothing with its commits.
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
                f"with {_NOTES}=false nothing tells whose a commit of a Delta table is",
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
                f"the Delta table {shortened(table)} forgets after a while what it was given ({_FORGETS})",
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
            advice="make it first, with its columns: a name that is misspelt would be another table; "
            'what has no "/" is a name of the session\'s catalog, and a path is absolute',
        )

    def _newest(self) -> Any:
        return self._log.forTableWithSnapshot(self._spark._jsparkSession, self._location)._2()

    def _snapshot(self) -> Any:
        """The newest one of a table that was there. Raises StoreError."""
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
        """The applications that it knows, of those that begin so. Raises StoreError."""
        found: str = self._snapshot().transactions().keys().mkString("\n")
        return [app for app in found.split("\n") if app.startswith(prefix)]

    def newest_records(self, app: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """What was noted with an application's commits, with their versions, newest first; what clean-up left of them.

        A record is noted by :meth:`append`. What names no application is none: it may be anything but that.

        Raises:
            StoreError: the table's log cannot be read.
            CorruptionError: a note that names the application cannot be parsed. Taken for none, what it tells of would
                be done once more.
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
                        f"what the Delta table {shortened(self.name)} notes of {app} with its version {row.version} "
                        "is damaged",
                        advice="compare its rows with the topics, then go on with a new subscription, producer or "
                        "application: that has notes of its own",
                        durable=Durable.MAYBE,
                    ) from error
                if record is not None:
                    yield row.version, record

    def _history(self, *limit: int) -> list[Any]:
        """Versions and what was noted with them, newest first: a job of Spark's. Raises StoreError."""
        try:
            # Not by a statement: Spark puts what a setting says for `${...}` in it, and the path would be another's.
            table = self._spark._jvm.io.delta.tables.DeltaTable  # type: ignore[union-attr]
            found = table.forPath(self._spark._jsparkSession, self._location).history(*limit)
            return DataFrame(found, self._spark).select("version", "userMetadata").collect()
        except _SPARKS as error:
            raise self._silent(error) from error

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self, df: DataFrame, app: str, version: int, record: Mapping[str, Any], options: Mapping[str, str]
    ) -> None:
        """Append under a version of an application. Where Delta knows it, or a later one, nothing is written.

        Delta tells nobody that it skipped an append, and may raise what came behind one (a hook that failed). So,
        however it ended, the commits that came since are asked whether one is this.

        Raises:
            TransactionConflict: another append of the application was committed meanwhile, or before under this version
                or a later one, or the table is another one by now; this one was not.
            SchemaMismatch: the columns are not the table's. Nothing was appended.
            OutcomeUnknown: the table does not tell whether it took the rows.
            StoreError: its log cannot be read. Nothing was appended.
            Exception: what Spark raises. Nothing was appended.
        """
        before = self._snapshot()
        if before.metadata().id() != self.id:  # Delta would make a table where there is none
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} was dropped, or replaced by another one, since it was named",
                advice="do the work again, if there is a table for it",
            )
        # A TxnID does not tell copies of one log apart, nor a log from what it was before it was put back.
        noted = {"app": app, "version": version, **record, "commit": uuid.uuid4().hex}
        note = json.dumps({_OURS: noted}, separators=(",", ":"))
        writer = df.write.format("delta").mode("append").options(**options)
        writer = writer.option("txnAppId", app).option("txnVersion", str(version)).option("userMetadata", note)
        raised: Exception | None = None
        try:
            writer.save(self._location)  # not by its name: that may mean another table by now
        except _SPARKS as error:
            raised = error
        try:
            took = self._took(app, note, noted["commit"], before.version())
            last = None if took or raised else self.last(app)
        except StoreError as error:
            raise OutcomeUnknown(
                f"the Delta table {shortened(self.name)} does not tell whether it took the rows: {error.message}",
                advice="do the same work again: rows that it took are not appended a second time",
            ) from raised or error
        if took and raised is not None:
            _logger.warning("the Delta table %s took the rows, and then: %s", shortened(self.name), first_line(raised))
        elif raised is not None:
            raise self._told(raised, app)
        elif not took:
            raise TransactionConflict(
                f"the Delta table {shortened(self.name)} has version {last} of {app}, and skipped this one: {version}",
                advice="another one wrote it: a newer run, a copy of the namespace, or the namespace before it was put "
                "back; compare them",
            )

    def _told(self, error: Exception, app: str) -> Exception:
        """What Spark raised for an append that is not there: an error of ours where it was Delta who refused it."""
        condition = condition_of(error).partition(".")[0]
        told: TxnLogError
        if condition in _DO_NOT_FIT:
            told = SchemaMismatch(
                f"the columns do not fit the Delta table {shortened(self.name)}: {first_line(error)}",
                advice="select the table's columns and cast them to its types, or add new ones with "
                'options={"mergeSchema": "true"}',
            )
        elif condition == _OVERTAKEN:
            told = TransactionConflict(
                f"the Delta table {shortened(self.name)} got another batch of {app} meanwhile",
                advice="one writer at a time: the other one goes on",
            )
        else:
            return error
        told.__cause__ = error
        return told

    def _took(self, app: str, note: str, commit: str, version: int) -> bool:
        """Whether one of the commits since a version is the one that noted this. Raises StoreError."""
        try:
            return note in self._notes_behind(version)
        except _SPARKS:  # no public interface: Delta 4.0 has another one. The history takes a job, but all have it
            since = itertools.takewhile(lambda found: found[0] > version, self.newest_records(app))
            return any(record.get("commit") == commit for _, record in since)

    def _notes_behind(self, version: int) -> list[str]:
        """What was noted with the commits since a version: 10 to 20 milliseconds, where the history takes 400."""
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
                break  # it is nearly always the first: of the others there may be one for each file
        return notes

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
    found = mapping("options", options)
    for name, value in found.items():
        if not isinstance(name, str) or name.lower() in _RESERVED:
            raise InvalidInputError(
                f"the option {shown(name)} is not free here",
                advice="rows are appended, under the transaction's identity",
            )
        if value is None:
            raise InvalidInputError(f"the option {shown(name)} is None", advice="leave it out, or give it a value")
    return found


def _check_url(table: str) -> None:
    """Refuse a URL with a password without repeating it: Hadoop takes none from there, and messages show tables."""
    if _CREDENTIALS.match(table):
        raise InvalidInputError(
            "the URL of the Delta table carries a password",
            advice="leave it out: Spark takes credentials from the session's settings (spark.hadoop.fs....)",
        )


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


def _record_of(note: str | None, app: str) -> Mapping[str, Any] | None:
    """What we noted with an application's commit; None where somebody else did, or nobody, or of another application.

    Raises ValueError or RecursionError where it names the application and cannot be parsed.
    """
    if note is None or not note.startswith(f'{{"{_OURS}":') or json.dumps(app) not in note:
        return None
    found = json.loads(note)[_OURS]
    return found if isinstance(found, dict) and found.get("app") == app else None


__all__ = ["DeltaTable", "check_options"]
