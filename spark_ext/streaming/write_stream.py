"""A query whose handler writes each micro-batch to many topics in one transaction: ``spark_ext.write_stream``."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from spark_ext.delta.idempotence import of_stream
from spark_ext.streaming import batch_commit
from spark_ext.streaming.batch_errors import BatchOutcome, reaching_spark
from spark_ext.streaming.query_checkpoint import Checkpoint
from spark_ext.streaming.triggers import check_query_name, triggered
from spark_ext.support.namespace_cache import Target, target_of
from spark_ext.support.paths import check_absolute_checkpoint
from spark_ext.support.spark_versions import has_jvm
from spark_ext.write import write_jobs
from spark_ext.write.dataframe_transaction import DataFrameTransaction, Handler, check_handler, no_frame
from txnlog.api.internals import connection_of
from txnlog.common.names import parse_label
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError
from txnlog.log.needed_features import check_holes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from txnlog.api.namespace import Namespace

_logger = logging.getLogger("txnlog.spark")


def write_stream(
    df: DataFrame,
    path: str,
    *,
    checkpoint: str,
    handler: Handler,
    acknowledge: str | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    txn_app_id: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a streaming query each of whose micro-batches is one transaction.

    ::

        query = spark_ext.write_stream(df, "/data/lake/sales", checkpoint=c, acknowledge="billing",
            handler=lambda batch, txn: (txn.write(batch.where("late"), "delays"),
                                        txn.write(batch.groupBy("carrier").count(), "counts")))

    What the handler writes and the acknowledgement of what the batch read are in one entry of the log. A batch that was
    committed before is skipped without calling the handler, so each batch takes effect exactly once.

    Args:
        df: a streaming DataFrame.
        path: ROOT/NAMESPACE.
        checkpoint: the query's checkpoint, a path or URL that this process can read.
        handler: called on the driver as ``handler(batch_df, txn)``, with a
            :class:`~spark_ext.DataFrameTransaction` that is committed when it returns, and aborted when it
            raises (the query fails then). A batch fails, too, where it catches what a failed write raised.
        acknowledge: the subscription whose offsets are acknowledged in the same entry, of every source that reads
            under this name.
        output_mode: ``"append"``; or ``"update"``, in which each batch of a running aggregate has the rows that changed
            in it; or ``"complete"``, in which it has all rows of the result: ``txn.write(batch, topic)`` overwrites the
            topic then, unless it is called with ``mode="append"``. Needs the feature ``holes``.
        trigger: arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.
        query_name: shown by Spark.
        txn_app_id: the stream's identity instead of the checkpoint's.
        storage_options: fsspec's, plain values only; without them the settings ``spark.txnlog.storage.<name>``.

    Raises:
        InvalidInputError: an argument is not what it must be: the path names a topic, the DataFrame is no stream,
            ``acknowledge`` is more than one name, ``output_mode`` none of these, or one that the query cannot have,
            ``trigger`` nothing that Spark knows, ``query_name`` that of a running query, or the checkpoint's location
            relative or nothing that can be read. No query was started.
        UnsupportedFeature: ``output_mode="complete"`` needs the feature ``holes``. No query was started.
        NamespaceNotFound: the path is no namespace.

    The query itself ends with ``StreamingQueryException``, whose text has the class of ours. Nothing of its last batch
    is committed, unless that is ``OutcomeUnknown``; and a query that is started again with the same checkpoint repeats
    the batch, or skips it where it is committed.

    - ``ConsumerFenced``: another run, a consumer or a seek took the subscription over, or messages expired.
    - ``ConsumerBusy``: the subscription's takeover rule keeps it for another name.
    - ``SubscriptionNotFound``, ``TopicNotFound``: it was dropped meanwhile.
    - ``InvalidInputError``: the checkpoint is an older copy, or the cursor was moved.
    - ``TransactionConflict``: another writer of a topic that is overwritten, or of an acknowledgement, was first.
    - ``OutcomeUnknown``: the store did not answer; ``StoreError``: it refuses.
    - What the handler raised, and what Spark raises where a job fails.
    """
    if not hasattr(df, "mapInArrow"):
        raise no_frame("write_stream", df, "call it with (df, path, ...), df = spark.readStream....load(...)")
    if not getattr(df, "isStreaming", False):
        raise InvalidInputError("the DataFrame is no stream", advice="use spark_ext.transaction for a batch")
    check_handler(handler)
    if acknowledge is not None and not isinstance(acknowledge, str):
        raise InvalidInputError(
            f"acknowledge is the name of one subscription, not {type(acknowledge).__name__}",
            advice="read every source with the same name as its option 'subscription': all of them are acknowledged",
        )
    if txn_app_id is not None:
        parse_label("txnAppId", txn_app_id)
    check_query_name(df.sparkSession, query_name)
    check_absolute_checkpoint(checkpoint)
    _check_output_mode(output_mode)
    writer = triggered(df.writeStream.outputMode(output_mode).option("checkpointLocation", checkpoint), trigger)
    target = target_of(df.sparkSession, path, storage_options, advice="name it in txn.write(df, topic)")
    is_complete = output_mode == "complete"
    batches = _Batches(target, checkpoint, handler, acknowledge, txn_app_id, uuid.uuid4().hex, is_complete)
    ns, _ = batches.open()  # refuses here what cannot be opened
    if is_complete:
        connection_of(ns).follower.look(lambda state: check_holes(state, "output_mode='complete'"))
    if acknowledge is not None:
        read = _subscriptions(df)
        if read is not None and acknowledge not in read:
            raise batch_commit.not_read(ns.name, acknowledge, read)  # before a source creates the subscription
    writer = writer.foreachBatch(batches.run)
    if query_name is not None:
        writer = writer.queryName(query_name)
    try:
        batches.query = query = writer.start()
    except AnalysisException as error:
        if output_mode != "append" or "OUTPUT_MODE" not in (error.getCondition() or ""):
            raise
        raise InvalidInputError(
            "a running aggregate without a watermark has no rows that are complete, and output_mode='append', the "
            "default, writes no others",
            advice="output_mode='update' writes the rows that changed, 'complete' the whole result; or say with "
            "withWatermark when a row is complete",
        ) from error
    return query


_SOURCE: Final = "StreamingRelationV2"
"""The class of a source in an analyzed plan, which is internal to Spark."""


def _subscriptions(df: DataFrame) -> list[str] | None:
    """The subscriptions that a stream's sources read, from its plan; None where that shows no source, as in Connect.

    The first batch finds out what this look does not.
    """
    if not has_jvm(df.sparkSession):
        return None
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    leaves = [leaves.apply(place) for place in range(leaves.size())]
    sources = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == _SOURCE]
    if not sources:  # a stream reads something: this Spark has another name for it
        return None
    return sorted({name for source in sources if (name := source.extraOptions().get("subscription")) is not None})


def _check_output_mode(mode: object) -> None:
    """Raise InvalidInputError for a mode that Spark does not have."""
    if mode not in ("append", "update", "complete"):
        raise InvalidInputError(
            f"Spark has no output mode {shown(mode)}", advice="use 'append', 'update' or 'complete'"
        )


@dataclass(eq=False)
class _Batches:
    """One run of a query: it lives as long as the run, and so does what it knows.

    It travels by pickle where Spark is behind Connect: there batches run in a process of the server's.
    """

    target: Target
    checkpoint: str
    handler: Handler
    acknowledge: str | None
    txn_app_id: str | None
    run_id: str
    is_complete: bool = False
    query: StreamingQuery | None = field(default=None, repr=False)
    _opened: tuple[Namespace, Checkpoint] | None = field(default=None, repr=False)
    _warned: bool = False

    def open(self) -> tuple[Namespace, Checkpoint]:
        """The handles of this process. Raises NamespaceNotFound, and InvalidInputError for the checkpoint."""
        if self._opened is None:
            ns = self.target.open()
            self._opened = ns, Checkpoint(self.checkpoint, self.target.location.root, self.target.storage_options)
        return self._opened

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None, "query": None}

    def run(self, df: DataFrame, batch_id: int) -> None:
        """What Spark calls with each micro-batch."""
        with reaching_spark(self.query, batch_id) as outcome:
            self._run(df, batch_id, outcome)

    def _run(self, df: DataFrame, batch_id: int, outcome: BatchOutcome) -> None:
        ns, checkpoint = self.open()
        offsets = checkpoint.offsets(batch_id)
        if offsets is None:
            raise InvalidInputError(
                f"{checkpoint.location} does not hold the offsets of batch {batch_id}",
                advice="the checkpoint must be one that this process can read",
            )
        begun = batch_commit.begin_batch(ns, checkpoint, self.txn_app_id, batch_id, offsets)
        if begun is None:
            if checkpoint.has_state():
                # The next batch needs this one's state and watermark, which only computing the batch creates.
                df.write.format("noop").mode("overwrite").save()
            return
        identity, batch = begun
        wanted = []
        if self.acknowledge is not None:
            # Before the handler runs: its work would be lost if the batch could not be acknowledged.
            read_ranges = batch_commit.ranges_of_batch(ns, checkpoint, offsets, self.acknowledge)
            wanted = batch_commit.acknowledgements(ns, read_ranges, identity, self.run_id)
        if not self._warned:  # once a run, which one process makes
            self._warned = True
            batch_commit.warn_of_unacknowledged(ns, offsets, self.acknowledge)
        known = of_stream(connection_of(ns), identity.query, batch_id, batch.offsets_digest)
        # Without a check of targets, as the format's sink has it: in a handler a name means the topic that has it when
        # it is written to (docs/spark.md), and that may have been created again on purpose.
        with (
            batch_commit.batch_transaction(ns, write_jobs.reserve_job(ns), batch, wanted) as inner,
            DataFrameTransaction(
                ns,
                inner,
                self.target.storage,
                identity=known,
                batch=f"batch {batch_id}",
                complete_since=batch_commit.last_version(ns, batch) if self.is_complete else None,
            ) as txn,
        ):
            outcome.txn = inner
            self.handler(df, txn)
            txn._check_handled()
        batch_commit.warn_of_dropped(batch, txn.result)


__all__ = ["write_stream"]
