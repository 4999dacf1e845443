"""A stream without a checkpoint directory, ``spark_ext.process``: its only position is the subscription's cursor.

A run takes the subscription over, reads the log up to that, and then processes batch after batch. The writes of the
handler and the acknowledgement of the batch's messages are in one entry, so a crash at any point leaves a batch done or
not begun, and the next run continues at the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from spark_ext.processing.ownership import release, take_over
from spark_ext.processing.run import Processed, Run, RunSettings
from spark_ext.processing.stop import Stop
from spark_ext.read.native_scan import check_reads
from spark_ext.read.scan import open_scan
from spark_ext.support.namespace_cache import target_of
from spark_ext.support.options import ReadOptions
from spark_ext.support.spark_versions import warn_of_functions_that_hang
from spark_ext.write.dataframe_transaction import Handler, check_handler
from txnlog.api.internals import connection_of
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.common.names import nearest, parse_label, parse_subscription_name, parse_topic_names
from txnlog.common.validation import duration_ms, shown, truth, whole_number
from txnlog.errors import InvalidInputError
from txnlog.replies import refused_write

if TYPE_CHECKING:
    import threading

    from pyspark.sql import SparkSession

    from txnlog.client.positions import Position

OnError = Literal["stop", "dead_letter"]

_ATTEMPTS: Final = {"stop": 1, "dead_letter": 3}
"""By ``on_error`` how often the handler is called on a batch: more often before its messages become dead letters."""


def process(
    spark: SparkSession,
    path: str,
    *,
    topics: str | Sequence[str],
    subscription: str,
    handler: Handler,
    trigger: str | Mapping[str, int | str | bool] = "available_now",
    on_error: OnError = "stop",
    max_rows: int | None = None,
    max_attempts: int | None = None,
    include_metadata: bool = False,
    native: bool = True,
    query_name: str | None = None,
    start: Position | Mapping[str, Position] = "earliest",
    stop: threading.Event | Callable[[], object] | None = None,
    progress: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Processed:
    """Process the messages of a subscription with a function, batch by batch, each batch in one transaction.

    ::

        spark_ext.process(spark, "/data/lake/sales", topics=["orders"], subscription="billing",
            handler=lambda batch, txn: txn.write(batch.groupBy("customer").count(), "counts"))

    What the handler writes and the acknowledgement of what the batch read are in one entry of the log: each message
    takes effect exactly once, wherever a run dies. There is no checkpoint directory: a new run goes on at the cursor,
    and fences an older one that is still there.

    Args:
        spark: the session.
        path: ROOT/NAMESPACE.
        topics: one or several, with the same columns; of several, the batch has the column ``_topic`` as well.
        subscription: its name, the same on all topics; exclusive, and created where it is missing.
        handler: called on the driver as ``handler(batch_df, txn)``, with a
            :class:`~spark_ext.DataFrameTransaction` that is committed when it returns. A batch ends
            between versions, so it never holds half a transaction.
        trigger: ``"available_now"`` (or ``{"availableNow": True}``, as ``write_stream`` takes it): all that is there at
            the start, then return. ``{"interval_ms": "1s"}``, or a number of milliseconds: until something stops it; a
            batch begins so long after the one before it began, or at once where that took longer.
        on_error: ``"stop"``: the batch is aborted, and what the handler raised is raised. ``"dead_letter"``: all
            messages of the batch go to the subscription's dead-letter topic, in one transaction with their
            acknowledgement, also where one alone is bad: the handler sees a batch, so nobody knows which. Without
            ``max_rows`` that is all that was waiting; with ``max_rows=1`` it is what one transaction produced, since a
            batch never holds half of one. But trouble with the store, and a call that txnlog or Spark's planning
            refuses on the driver, before it saw a row (a topic that is not there, columns that do not fit, a misspelt
            one), say nothing about messages and end the run at once. Nor does a batch that Spark cannot read without
            the handler, which is tried first.
        max_rows: the most messages of one batch, except that a transaction with more is read whole. None: a batch is
            all that there is.
        max_attempts: how often the handler is called on a batch before ``on_error`` counts: once for ``"stop"``, else
            three times. Before it is called again the run waits: a second, then twice as long each time, half a minute
            at most; by chance down to half of that. ``stop`` and signals end the pause, and the run with it.
        include_metadata: add ``_partition``, ``_offset``, ``_timestamp``, ``_txn_id``, ``_version`` to the batch.
        native: read batches by Spark's own Parquet scan. False: by the format, which is slower, but works where Spark
            has no file system for the root (``s3://`` without hadoop-aws).
        query_name: the consumer's name, by which a ``same_name`` subscription is taken over again; shown in the log.
        start: where a new subscription begins: ``"earliest"``, ``"latest"``, ``{partition: offset}`` or a time with a
            zone, none in the future, as in ``create_subscription``; or that by topic. An existing one continues at its
            cursor.
        stop: an event, or a function that returns whether to stop, by which a program ends the run after the current
            batch. Ctrl-C and SIGTERM do the same; the second one aborts the batch.
        progress: show a line on a terminal if the package ``rich`` is installed. The logger ``txnlog.spark`` logs a
            line for each batch.
        storage_options: fsspec's, plain values only; without them the settings ``spark.txnlog.storage.<name>``.

    Raises:
        InvalidInputError, NamespaceNotFound, TopicNotFound, SchemaMismatch, UnsupportedFeature: an argument, the topics
            or the subscription are not what they must be, and nothing was written; or, later, a batch or a call of the
            handler's is refused: nothing of that batch was committed, those before it were.
        ConsumerBusy: the subscription's takeover rule reserves it for another name.
        ConsumerFenced: another run, a consumer or a seek took the subscription over; the batch was not committed.
        CorruptionError: the log, a segment, or the note about the last batch in a Delta table is damaged; nothing of
            the current batch was committed.
        OutcomeUnknown: the store did not answer. Run again: the log shows whether the batch was committed.
        StoreError: the store refuses requests (credentials, space, a missing endpoint); nothing of the current batch
            was committed. Run again when it works.
        AbortableError, RetriableError: the transaction of a batch was aborted by others, or could not begin, five times
            in a row.
        Exception: what the handler raised. Nothing of its batch was committed.
    """
    check_handler(handler)
    if not isinstance(on_error, str) or on_error not in _ATTEMPTS:
        raise InvalidInputError(f"unknown on_error {shown(on_error)}", advice=nearest(str(on_error), _ATTEMPTS))
    if max_rows is not None:
        whole_number("max_rows", max_rows, 1, MAX_NUMBER)
    if query_name is not None:
        parse_label("query_name", query_name)
    parse_subscription_name(subscription)
    names = parse_topic_names(topics)
    interval_ms = _interval(trigger)
    attempts = _ATTEMPTS[on_error] if max_attempts is None else max_attempts
    whole_number("max_attempts", attempts, 1, MAX_NUMBER)
    include_metadata, native = truth("include_metadata", include_metadata), truth("native", native)
    progress = truth("progress", progress)
    asked = Stop(stop)
    target = target_of(spark, path, storage_options, advice="name it in topics=[...]")
    to_dead_letters = on_error == "dead_letter"
    order = RunSettings(
        ReadOptions(path, subscribe=names, include_metadata=include_metadata, storage_options=target.storage_options),
        target.storage,
        query_name or subscription,
        handler,
        interval_ms,
        to_dead_letters,
        attempts,
        max_rows,
        native,
    )
    # All topics are there, have the same columns, and can be read, before anything is written.
    with refused_write():
        namespace = open_scan(order.read, mode="rw").namespace
    if order.native:
        check_reads(spark, namespace)
        warn_of_functions_that_hang(spark)
    connection = connection_of(namespace)
    owned = take_over(
        connection, names, subscription, query_name=query_name, start=start, to_dead_letters=to_dead_letters
    )
    done = Run(spark, order, owned, connection, asked).run(progress=progress)
    release(connection, owned)
    return done


def _interval(trigger: object) -> int | None:
    """The trigger's interval in milliseconds; None where the run ends once it caught up."""
    if trigger in ("available_now", {"availableNow": True}):
        return None
    if isinstance(trigger, Mapping) and list(trigger) == ["interval_ms"]:
        return duration_ms("interval_ms", trigger["interval_ms"], 1, MAX_NUMBER)
    raise InvalidInputError(
        f"unknown trigger {shown(trigger)}", advice='pass "available_now", or a dict like {"interval_ms": 1000}'
    )


__all__ = ["process"]
