"""How far the streaming queries of a session are behind, for operators: ``spark_ext.monitor``.

Spark asks a Python source for no metrics, so a listener of the session's queries notes where each of them has come to,
and the log says how far that is from its end. The listener itself only reads the event: everything that may wait for a
store is done by a thread of the monitor's, or by whoever asks.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from spark_ext.streaming.lag import TopicLag, lags_of, reported_lags
from spark_ext.streaming.lag_lines import WARN_AFTER, LagLines, note_dropped
from spark_ext.streaming.lag_openmetrics import lag_text
from spark_ext.streaming.offsets import StreamOffset
from spark_ext.support.namespace_cache import cached_handle, location_of, namespace_at
from spark_ext.support.options import storage_of_call
from spark_ext.support.spark_versions import has_jvm, is_stopped
from txnlog.api.internals import connection_of
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.validation import options_json, type_of, whole_number
from txnlog.errors import InvalidInputError, InvalidTransactionState

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from txnlog.client.connection import Connection

_logger: Final = logging.getLogger("txnlog.spark.lag")


@dataclass(frozen=True, slots=True)
class _Source:
    """A source of txnlog's in a progress: its number, up to where it has read, and what it said itself."""

    number: int
    end: StreamOffset
    reported: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Progress:
    """What a query's progress says of its sources of txnlog's."""

    run: str
    query: str
    batch: int
    sources: tuple[_Source, ...]

    @classmethod
    def of(cls, progress: Any) -> _Progress:
        """Raises InvalidInputError where an offset is damaged, or of another version of txnlog."""
        found = []
        for number, source in enumerate(progress.sources):
            end = None if source.endOffset is None else StreamOffset.from_text(source.endOffset)
            if end is not None:
                found.append(_Source(number, end, _parsed(source.latestOffset)))
        return cls(str(progress.runId), progress.name or str(progress.id), progress.batchId, tuple(found))


def _parsed(text: str | None) -> Mapping[str, Any]:
    with contextlib.suppress(TypeError, ValueError):
        value = json.loads(text or "")
        return value if isinstance(value, dict) else {}
    return {}


class _Listener(StreamingQueryListener):
    """Passes the events of a session's queries on; raises nothing, and waits for nothing."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch has ended."""
        self._monitor._on_progress(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query is behind no more."""
        self._monitor._on_end(str(event.runId))


class Monitor:
    """Watches how far the streaming queries of a session are behind in topics, until it is closed.

    :func:`~spark_ext.monitor` makes it; it is a context manager that closes itself at the end of the block. For each
    batch the logger ``txnlog.spark.lag`` gets a line at INFO, as JSON, and a warning where a query falls behind.
    """

    def __init__(self, spark: SparkSession, storage_options: Mapping[str, Any], warn_after: int) -> None:
        self._spark = spark
        self._storage_options = storage_options
        self._warn_after = warn_after
        self._since_ms = int(time.time() * 1000)
        self._lock = threading.Lock()
        self._closed = False
        self._running: dict[str, _Progress] = {}
        """By run of a query its newest progress."""
        self._due: dict[str, _Progress] = {}
        """By run what is to be written to the log; while there is anything, a thread is at work."""
        self._at_work = False
        self._lines = LagLines(warn_after)
        self._failures = 0
        self._logged: set[tuple[str, str]] = set()
        self._listener = _Listener(self)
        spark.streams.addListener(self._listener)

    def __repr__(self) -> str:
        return f"Monitor({len(self._running)} running queries{', closed' if self._closed else ''})"

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def lag(self, query: StreamingQuery | None = None) -> tuple[TopicLag, ...]:
        """How far queries are behind in each topic that they read, as the log says it now.

        A query counts from the end of its first batch after each start on: what its running batch has read is not
        processed yet. One that reads no topic has no lag. Where the log cannot be read from this process, the values
        are those that the source said when it planned the last batch.

        Args:
            query: one query, by its last progress; it may have ended. Left out, all queries of the session that run
                and had a batch since they were started, and all runs of ``spark_ext.process`` in this process.

        Raises:
            InvalidInputError: ``query`` is no streaming query, or the session was stopped.
            InvalidTransactionState: the monitor was closed.
        """
        self._check_open()
        if query is None:
            with self._lock:
                running = list(self._running.values())
            found = [lag for progress in running for lag in self._lags(progress)]
            with _lock:
                runs = list(_runs)
            for name, run in runs:
                found += self._of_run(name, run)
            return tuple(found)
        if not hasattr(query, "lastProgress"):
            raise InvalidInputError(
                f"query is a streaming query, not {type_of(query)}", advice="pass what start() or write_stream returned"
            )
        progress = query.lastProgress
        return () if progress is None else tuple(self._lags(_Progress.of(progress)))

    def metrics(self) -> str:
        """The lag of all queries as OpenMetrics text, which Prometheus and others read; the log is read for it.

        Names begin with ``txnlog_query_``; the comments in the text say what each value means. Runs of
        ``spark_ext.process`` in this process are in it as well.

        Raises:
            InvalidInputError: the session was stopped.
            InvalidTransactionState: the monitor was closed.
        """
        return lag_text(self.lag(), self._failures, self._since_ms)

    def close(self) -> None:
        """Watch no more; repeated it is fine. The queries go on. For a new one see :func:`~spark_ext.monitor`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._running.clear()
            self._due.clear()
        _forget(self)
        with contextlib.suppress(Exception):  # where the session was stopped, its listeners are gone
            # Behind Connect, PySpark 4.0 to 4.3 waits for ever where an event comes while its last listener is removed:
            # that one joins the thread which waits for its lock. While there are queries it stays, and does nothing.
            if not is_stopped(self._spark) and (has_jvm(self._spark) or not self._spark.streams.active):
                self._spark.streams.removeListener(self._listener)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidTransactionState("the monitor was closed", advice="make a new one: spark_ext.monitor(spark)")
        if is_stopped(self._spark):
            raise InvalidInputError(
                "the Spark session of the monitor was stopped", advice="make a new session, and a monitor of that one"
            )

    # --- events, in threads of Spark's ------------------------------------------------------------------------------

    def _on_progress(self, event: Any) -> None:
        try:
            progress = _Progress.of(event)
            if progress.sources:
                note_dropped(progress.query, progress.batch, event.stateOperators)
        except Exception as error:  # noqa: BLE001 - counted, and logged once: the query goes on
            self._note_failure(str(event.id), error)
            return
        if not progress.sources:
            return
        with self._lock:
            if self._closed:
                return
            self._running[progress.run] = self._due[progress.run] = progress
            if self._at_work:
                return
            self._at_work = True
        threading.Thread(target=self._work, name="txnlog-spark-lag", daemon=True).start()

    def _on_end(self, run: str) -> None:
        with self._lock:
            self._running.pop(run, None)

    # --- the log, in a thread of its own, or the caller's ------------------------------------------------------------

    def _work(self) -> None:
        """Write the lines of what is due; ends when nothing is, so that no thread outlives its queries."""
        while True:
            with self._lock:
                if not self._due:
                    self._at_work = False
                    return
                progress = self._due.pop(next(iter(self._due)))
            try:
                self._lines.note(self._lags(progress), progress.batch)
            except Exception as error:  # noqa: BLE001 - of a handler of the logger, say: the thread goes on
                self._note_failure(progress.query, error)

    def _lags(self, progress: _Progress) -> list[TopicLag]:
        found: list[TopicLag] = []
        for source in progress.sources:
            query, number = progress.query, source.number
            try:
                connection = self._connection(source)
                if connection is not None:
                    connection.follower.refresh()
                    if connection.mode == "r":
                        connection.follower.adopt_checkpoint()  # as the metrics of a handle do, to save memory
                    found += lags_of(connection, source.end, query=query, source=number)
                    continue
            except Exception as error:  # noqa: BLE001 - counted, and logged once: of other namespaces more is known
                self._note_failure(progress.query, error)
            with contextlib.suppress(KeyError, TypeError):  # of another version of txnlog
                found += reported_lags(source.reported, source.end, query=query, source=number)
        return found

    def _of_run(self, name: str, run: Callable[[], list[TopicLag]]) -> list[TopicLag]:
        try:
            return run()
        except Exception as error:  # noqa: BLE001 - as above
            self._note_failure(name, error)
            return []

    def _connection(self, source: _Source) -> Connection | None:
        """The handle that this process has anyway, else one at the path that the source said; None without one."""
        end = source.end
        known = cached_handle(
            lambda connection: end.is_of(connection.name, connection.coordinators, connection.log_label)
        )
        if known is None:
            path = source.reported.get("path")
            if not isinstance(path, str):
                return None  # a source says its path in the progress of each batch but one that is repeated
            known = namespace_at(location_of(path, self._storage_options), "r", self._storage_options)
        return connection_of(known)

    def _note_failure(self, query: str, error: Exception) -> None:
        """Count it, and log the first one of its kind of a query."""
        kind = query, type(error).__name__
        with self._lock:
            self._failures += 1
            if kind in self._logged:
                return
            self._logged.add(kind)
        _logger.warning("how far %r is behind is unknown (more such failures are only counted)", query, exc_info=error)


# --- one monitor a session --------------------------------------------------------------------------------------------

_monitors: Final[dict[str, Monitor]] = {}
_runs: Final[list[tuple[str, Callable[[], list[TopicLag]]]]] = []
"""The runs of ``spark_ext.process`` in this process, by name, and how each says how far it is behind."""
_lock: Final = threading.RLock()


def _session(spark: SparkSession) -> str:
    """The same for all objects of PySpark's that are one session."""
    if has_jvm(spark):
        return str(spark._jsparkSession.sessionUUID())
    return str(spark.session_id)  # type: ignore[attr-defined]  # Connect's


def monitor(
    spark: SparkSession, *, storage_options: Mapping[str, Any] | None = None, warn_after: int = WARN_AFTER
) -> Monitor:
    """Watch how far the streaming queries of a session that read topics are behind; a session has one monitor.

    ::

        monitor = spark_ext.monitor(spark)
        print(monitor.lag(query))

    Called again, it returns the same one until that is closed. It also works behind Spark Connect, where the client
    reads the log if it reaches the store.

    Args:
        spark: the session.
        storage_options: fsspec's, plain values only, for the namespaces that the queries read; without them the
            settings ``spark.txnlog.storage.<name>``.
        warn_after: after so many batches in a row that each ended with more messages behind than the one before, the
            logger ``txnlog.spark.lag`` gets a warning.

    Raises:
        InvalidInputError: an argument is not what it must be, the session was stopped, or it has a monitor with other
            arguments.
    """
    storage = storage_of_call(spark, storage_options)
    options_json(storage)
    whole_number("warn_after", warn_after, 1, MAX_NUMBER)
    session = _session(spark)
    with _lock:
        for known, other in list(_monitors.items()):
            if is_stopped(other._spark):
                del _monitors[known]
        found = _monitors.get(session)
        if found is None:
            found = _monitors[session] = Monitor(spark, storage, warn_after)
        elif (found._storage_options, found._warn_after) != (storage, warn_after):
            raise InvalidInputError(
                "the session has a monitor with other arguments", advice="close that one first: monitor.close()"
            )
        return found


def _forget(closed: Monitor) -> None:
    with _lock:
        for session, known in list(_monitors.items()):
            if known is closed:
                del _monitors[session]


@contextlib.contextmanager
def watched_run(name: str, lag: Callable[[], list[TopicLag]]) -> Iterator[None]:
    """Context in which monitors also ask for the lag of a run of ``spark_ext.process``."""
    own = name, lag
    with _lock:
        _runs.append(own)
    try:
        yield
    finally:
        with _lock:
            _runs.remove(own)


__all__ = ["Monitor", "monitor", "watched_run"]
