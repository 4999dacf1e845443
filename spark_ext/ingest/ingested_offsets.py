"""How far ingestions from Kafka have come, as the log says it: ``spark_ext.ingested_offsets``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_ext.ingest.end_ingestion import location_of_ingestions, no_ingestion, was_ended
from spark_ext.ingest.positions import partitions_of_ingestions
from spark_ext.support.namespace_cache import namespace_at
from spark_ext.support.options import storage_of_call
from txnlog.api.internals import connection_of
from txnlog.common.names import parse_label
from txnlog.replies import only_looking
from txnlog.results.shown import Shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class IngestedPartition(Shown):
    """How far an ingestion has come in a partition of Kafka.

    Attributes:
        ingestion: the name of the ingestion.
        topic: the topic in Kafka.
        partition: the partition of that topic.
        offset: the offset of the next message, as Kafka says it of a consumer group: what lies before it is committed.
        version: the version of the namespace that moved the offset last; ``ns.table("history")`` says when that was,
            and which process did it.
        ended: whether ``end_ingestion`` ended the ingestion.
    """

    ingestion: str
    topic: str
    partition: int
    offset: int
    version: int
    ended: bool


@only_looking()
def ingested_offsets(
    spark: SparkSession, path: str, name: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> list[IngestedPartition]:
    """Say how far ingestions from Kafka have come in each partition, by ingestion, topic and partition.

    ::

        for at in spark_ext.ingested_offsets(spark, "/data/lake/sales"):
            print(at.ingestion, at.topic, at.partition, at.offset)

    That is what the log says, whether an ingestion is running or not. Kafka is not asked: how many messages are still
    to come is what its own tools say of the end of each partition, less the offset here. A partition that was added,
    and that no run has seen, is not in the list. Nothing is written.

    Args:
        spark: a session, whose settings may have storage options.
        path: ROOT/NAMESPACE.
        name: of one ingestion; by default all of them.
        storage_options: fsspec's, plain values only; without them the settings ``spark.txnlog.storage.<name>``.

    Raises:
        InvalidInputError: the log has no ingestion of this name; with the nearest one. The path names a topic. No
            session, or one that stopped.
        NamespaceNotFound: the path is no namespace.
        StoreError: the store did not answer, or refuses.
    """
    label = None if name is None else parse_label("name", name)
    storage = storage_of_call(spark, storage_options)
    ns = namespace_at(location_of_ingestions(path, storage), "r", storage)
    connection = connection_of(ns)
    connection.follower.refresh()
    known = list(partitions_of_ingestions(ns))
    if label is not None and label not in (names := {ingestion for ingestion, *_ in known}):
        raise no_ingestion(label, names)
    found = [
        IngestedPartition(
            ingestion,
            part.topic,
            part.partition,
            offset=record.batch,
            version=record.version,
            ended=was_ended(ns, ingestion),
        )
        for ingestion, part, record in known
        if label in {None, ingestion}
    ]
    return sorted(found, key=lambda at: (at.ingestion, at.topic, at.partition))


__all__ = ["IngestedPartition", "ingested_offsets"]
