"""Messages of Kafka into topics, exactly once, and without a checkpoint: ``spark_ext.ingest_kafka``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_ext.ingest.end_ingestion import check_not_ended
from spark_ext.ingest.kafka_batches import KafkaBatches, Starts, without_source
from spark_ext.ingest.kafka_cluster import KafkaCluster, check_source
from spark_ext.ingest.kafka_frames import Rows, check_message_by_message, checked_rows, with_source
from spark_ext.ingest.kafka_options import HEADERS, ISOLATION_LEVEL, KafkaOptions, kafka_options
from spark_ext.ingest.offset_json import offsets_text
from spark_ext.ingest.plan_folder import location_of_folder, make_folder, note_query, remove_folder
from spark_ext.ingest.position_checks import check_positions, gone, went_back
from spark_ext.ingest.positions import Ingestion, TopicPartition, positions
from spark_ext.streaming.triggers import check_query_name, triggered
from spark_ext.support.namespace_cache import target_of
from spark_ext.support.spark_errors import unless_refused
from spark_ext.support.spark_versions import check_session
from spark_ext.write import write_jobs
from txnlog.api.internals import connection_of
from txnlog.common.names import parse_label
from txnlog.errors import Durable, InvalidInputError, RetriableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from txnlog.api.namespace import Namespace
    from txnlog.errors import TxnLogError
    from txnlog.fold.state import TopicRecord

_logger: Final = logging.getLogger("txnlog.spark")

_SOURCE: Final = "kafka"
_MOST_TRIES: Final = 5
"""How often a call begins anew where another first run was faster. Each try finds what that one has logged."""


def ingest_kafka(
    spark: SparkSession,
    path: str,
    *,
    subscribe: str | Sequence[str],
    options: Mapping[str, str],
    topic: str | None = None,
    topic_by: str | Column | None = None,
    columns: Mapping[str, str | Column] | None = None,
    where: str | Column | None = None,
    name: str | None = None,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a streaming query that brings messages of Kafka into topics, each exactly once.

    ::

        query = spark_ext.ingest_kafka(spark, "/data/lake/sales", subscribe="orders", topic="orders",
            options={"kafka.bootstrap.servers": "kafka:9092"},
            columns={"id": "cast(key AS bigint)", "carrier": "cast(value AS string)"})

    The rows of a batch and the offsets of its partitions are in one entry of the log, and where they begin is in one
    before the first batch. So a query that is started again continues behind the last message that the log has: it
    brings none twice, and leaves none out. There is no checkpoint to keep: each run has one of its own, in a temporary
    folder of the driver's.

    A micro-batch is one transaction. The messages of a partition keep their order: in a topic without a key they all go
    to the same partition.

    Args:
        spark: a classic session that has Spark's Kafka source (``spark-sql-kafka-0-10``).
        path: ROOT/NAMESPACE.
        subscribe: the Kafka topic, or a list of them. All of their partitions are read.
        options: those of Spark's Kafka source, with ``kafka.bootstrap.servers`` and all that the client needs. Their
            meaning is the source's, but for ``startingOffsets``, which is ``earliest`` if left out, and counts only
            where the log has no position yet; and ``kafka.isolation.level``, which is ``read_committed`` if left out.
        topic: where the rows go.
        topic_by: instead of ``topic`` an expression for the topic of each row, such as ``"topic"``: the name of
            Kafka's. Needs ``name``.
        columns: by column an expression over Kafka's columns of one message (``key``, ``value``, ``topic``,
            ``partition``, ``offset``, ``timestamp``, ``timestampType``, ``headers``), as SQL or as a column of Spark's.
            If left out, the topic gets the columns that have Kafka's names.
        where: a condition on Kafka's columns; other messages are left out, and count as ingested.
        name: the ingestion's identity, and the producer of its transactions: a query that is started under it takes
            over with the first batch that it commits, and fences an older one. If left out, it is ``kafka:`` and the
            argument ``topic``: of two ingestions into one topic, one needs a name, or each fences the other.
        trigger: arguments of ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.
        query_name: shown by Spark.
        storage_options: fsspec's, plain values only; without them the settings ``spark.txnlog.storage.<name>``.

    Raises:
        InvalidInputError: an argument is not what it must be; Kafka has no such topic, or refuses the client; a Kafka
            topic was created again under its name, or the topic that the rows go to was, or is another one than before;
            the ingestion was ended (``end_ingestion``); Spark refuses an option, an expression or the query. No query
            was started.
        OffsetOutOfRange: Kafka does not have the messages any more at which the ingestion continues
            (``failOnDataLoss=false`` accepts that), or its offsets went back.
        SchemaMismatch: the columns do not fit the topic, or its key is missing among them.
        NamespaceNotFound, TopicNotFound: the path is no namespace, or it has no such topic.
        UnsupportedFeature: the session has no Kafka source, or is a client of Spark Connect.
        RetriableError: Kafka does not answer, or gives no ids of topics any more; or an open transaction in it hides
            messages that are in the topic.
        LimitExceeded: the log cannot remember so many partitions.
        OutcomeUnknown, StoreError: the store did not answer, or refuses, where the ingestion noted where it begins;
            call it again.
    """
    check_session(spark)
    wanted = kafka_options(subscribe, options)
    rows = checked_rows(topic, topic_by, columns, where)
    label = _name(name, rows)
    check_query_name(spark, query_name)
    check_source(spark)
    target = target_of(spark, path, storage_options, advice="name it in topic=")
    ns = target.open()
    connection_of(ns).follower.refresh()
    record = None if rows.topic is None else connection_of(ns).topic_handle(rows.topic).record
    source = _reader(spark, wanted, rows, record, {})
    _check_columns(ns, source, rows, record)
    triggered(source.writeStream, trigger)  # refuses here what is no trigger
    cluster = KafkaCluster(spark, wanted.given)
    cluster.check_settings()
    found = cluster.topics(wanted.subscribe)
    ingestion = Ingestion(label, found.ids, None if record is None else record.id)
    for _ in range(_MOST_TRIES):
        starts = _starts(ns, ingestion, wanted, found.parts, cluster)
        folder = make_folder(spark, starts.offsets)
        batches = KafkaBatches(ns, target.storage, folder, ingestion, starts, rows, cluster)
        source = _reader(spark, wanted, rows, record, {"startingOffsets": offsets_text(starts.offsets)})
        writer = triggered(source.writeStream.option("checkpointLocation", location_of_folder(folder)), trigger)
        if query_name is not None:
            writer = writer.queryName(query_name)
        if (query := _started(writer.foreachBatch(batches.run), batches)) is not None:
            return query
    raise RetriableError(
        f"other runs of the ingestion {label!r} began at the same moment, {_MOST_TRIES} times",
        advice="call again",
        durable=Durable.NOTHING,
    )


def _started(writer: DataStreamWriter, batches: KafkaBatches) -> StreamingQuery | None:
    """The query; None where another run has begun at lower offsets meanwhile."""
    try:
        query = unless_refused(
            writer.start, "Spark refuses to start the query", "correct the trigger or the query's name"
        )
    except BaseException:
        remove_folder(batches.folder)
        raise
    note_query(batches.folder, query)
    batches.query = query
    agrees = False
    try:
        agrees = batches.begin()
    finally:
        if not agrees:
            query.stop()
    return query if agrees else None


def _name(name: object, rows: Rows) -> str:
    if name is not None:
        return parse_label("name", name)
    if rows.topic is None:
        raise InvalidInputError(
            "an ingestion with topic_by needs a name", advice="pass name=..., and keep it: it is the identity"
        )
    return parse_label("name", f"kafka:{rows.topic}")


def _reader(
    spark: SparkSession, wanted: KafkaOptions, rows: Rows, record: TopicRecord | None, more: Mapping[str, str]
) -> DataFrame:
    reader = spark.readStream.format(_SOURCE).options(**wanted.given).option("subscribe", ",".join(wanted.subscribe))
    if rows.needs_headers(record):
        reader = reader.option(HEADERS, "true")
    reader = reader.options(**more)
    return unless_refused(reader.load, "Spark's Kafka source refuses its options", "correct them")


def _check_columns(ns: Namespace, source: DataFrame, rows: Rows, record: TopicRecord | None) -> None:
    """Check what rows are made of, before anything is asked of Kafka.

    Raises:
        InvalidInputError: an expression is wrong, or takes more than one message.
        SchemaMismatch: the rows would fit no topic.
    """
    frame = rows.of(with_source(source, [TopicPartition("any", 0)]), record)
    check_message_by_message(frame)
    write_jobs.planned_for(record, without_source(frame)).targets(ns)


def _starts(
    ns: Namespace, ingestion: Ingestion, wanted: KafkaOptions, parts: Sequence[TopicPartition], cluster: KafkaCluster
) -> Starts:
    """Where each partition continues, or begins. Nothing is written.

    Raises:
        InvalidInputError: a topic is not that of before; the ingestion was ended; startingOffsets do not fit.
        OffsetOutOfRange: Kafka does not have the messages at which the ingestion continues, or has fewer than the log.
        RetriableError: it has them, and a transaction that is open hides them.
    """
    connection = connection_of(ns)
    connection.follower.refresh()
    owner = connection.producer_record(ingestion.name)
    check_not_ended(ns, ingestion.name)
    before = positions(ns, ingestion.name, parts)  # refuses a name that is too long, too
    check_positions(ns, ingestion, before)
    # Another run may move the positions on meanwhile. So Kafka's ends are compared with those of before they were
    # asked for, and its beginnings with those of behind that: neither is a loss only since the answers are older.
    found = cluster.bounds(parts)
    for part, position in before.items():
        if found[part].latest < position.offset:
            raise _behind(ingestion.name, part, position.offset, found[part].latest, cluster)
    connection.follower.refresh()
    known = positions(ns, ingestion.name, parts)
    check_positions(ns, ingestion, known)
    offsets, lost = {part: position.offset for part, position in known.items()}, set()
    wanted.check_starts(parts)
    _say_which_starts_count(wanted, offsets)
    for part, position in known.items():
        earliest = found[part].earliest
        if earliest > position.offset:
            error = gone(part, position.offset, earliest)
            if wanted.fail_on_data_loss:
                raise error
            _logger.warning("%s", error.message)
            offsets[part] = earliest
            lost.add(part)
    added = {part: bounds for part, bounds in found.items() if part not in known}
    for part, offset in wanted.offsets_of(added).items():
        if found[part].latest < offset <= cluster.written(part):
            raise _hidden(part, found[part].latest, f"startingOffsets begin at {offset}")
    new = wanted.starts(added)
    return Starts({**offsets, **new}, new, frozenset(lost), None if owner is None else owner.epoch)


def _say_which_starts_count(wanted: KafkaOptions, known: Mapping[TopicPartition, int]) -> None:
    """Say that startingOffsets are not followed, where they are given and the log has positions."""
    if strange := wanted.starts_of_others():
        _logger.warning("startingOffsets name Kafka topics that are not subscribed to: %s", ", ".join(strange))
    if other := wanted.other_starts(known):
        part = other[0]
        _logger.warning(
            "startingOffsets differ from where the log has the ingestion, which counts: the %s continues at %d (and %d "
            "more partitions); another name begins anew",
            part,
            known[part],
            len(other) - 1,
        )
    elif wanted.starts_given and known:
        _logger.info("startingOffsets count for none of %d partitions: the ingestion continues there", len(known))


def _behind(name: str, part: TopicPartition, position: int, latest: int, cluster: KafkaCluster) -> TxnLogError:
    """The error for a partition that ends below its position."""
    if cluster.written(part) >= position:
        return _hidden(part, latest, f"the log has those up to {position}, which were read uncommitted")
    return went_back(name, part, f"ends at offset {latest}, and the log has its messages up to {position}")


def _hidden(part: TopicPartition, latest: int, problem: str) -> RetriableError:
    """The error for messages that a transaction in Kafka hides, and behind which an ingestion is to go on."""
    return RetriableError(
        f"a transaction in Kafka is open in the {part}: its messages from offset {latest} on cannot be read as "
        f"committed, and {problem}",
        advice=f"wait until it has ended, and call again; or set {ISOLATION_LEVEL}=read_uncommitted as before",
        durable=Durable.NOTHING,
    )


__all__ = ["ingest_kafka"]
