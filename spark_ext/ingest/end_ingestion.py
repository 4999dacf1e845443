"""The end of an ingestion, and where it was then: ``spark_ext.end_ingestion``.

Positions move on as long as a run works. So where another name is to begin is read behind an entry of the log that no
commit of a run comes behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_ext.ingest.offset_json import offsets_text
from spark_ext.ingest.position_commits import note_end
from spark_ext.ingest.positions import end_of, ingestions
from spark_ext.support.namespace_cache import location_of_namespace, namespace_at
from spark_ext.support.option_parsing import EARLIEST_OFFSET
from spark_ext.support.options import storage_of_call
from txnlog.api.internals import connection_of
from txnlog.common.names import nearest, parse_label
from txnlog.common.validation import shown
from txnlog.errors import Durable, InvalidInputError
from txnlog.replies import in_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_ext.support.paths import Location
    from txnlog.api.namespace import Namespace

_ENDED: Final = "end_ingestion"
"""Who fenced the producer of an ingestion that was ended, as the log has it."""


def end_ingestion(
    spark: SparkSession,
    path: str,
    name: str,
    *,
    from_beginning: Sequence[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """End an ingestion from Kafka, and return where it was: the option ``startingOffsets`` of one under another name.

    ::

        offsets = spark_ext.end_ingestion(spark, "/data/lake/sales", "kafka:orders", from_beginning=["orders"])
        query = spark_ext.ingest_kafka(spark, "/data/lake/sales", subscribe=["orders", "returns"], name="orders-2",
            options={"kafka.bootstrap.servers": "kafka:9092", "startingOffsets": offsets}, topic="orders")

    All runs under this name end with ``ProducerFenced`` instead of their next commit, and ``ingest_kafka`` refuses the
    name from now on. So nothing comes behind these offsets, and under the other name each message that the ended one
    did not bring comes once.

    Kafka is not asked. A partition that was added, and that no run has seen, is not among the offsets: ``ingest_kafka``
    names it, and begins when it has an offset too, which is -2, its first message.

    Args:
        spark: a session, whose settings may have storage options.
        path: ROOT/NAMESPACE.
        name: of the ingestion.
        from_beginning: Kafka topics that were created again: all of their partitions get -2, the first message. Under
            another name nothing else shows that a topic is not the one of before.
        storage_options: fsspec's, plain values only; without them the settings ``spark.txnlog.storage.<name>``.

    Raises:
        InvalidInputError: the log has no ingestion of this name, or it read no such topic; with the nearest name.
            Nothing has ended.
        NamespaceNotFound: the path is no namespace.
        OutcomeUnknown, StoreError: the store did not answer, or refuses; call it again: a second end does no harm.
    """
    label = parse_label("name", name)
    again = _names(from_beginning)
    storage = storage_of_call(spark, storage_options)
    ns = namespace_at(location_of_ingestions(path, storage), "rw", storage)
    connection = connection_of(ns)
    connection.follower.refresh()
    known = ingestions(ns)
    if label not in known:
        raise no_ingestion(label, known)
    _check_topics(again, {part.topic for part in known[label]})
    with in_parts():
        note_end(ns, label, _ENDED)
        connection.follower.refresh()
    found = ingestions(ns)[label]
    return offsets_text({part: EARLIEST_OFFSET if part.topic in again else offset for part, offset in found.items()})


def _names(given: object) -> list[str]:
    if not isinstance(given, str) and isinstance(given, Iterable):
        names = list(given)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidInputError(
        f"from_beginning is a list of names of Kafka topics, not {shown(given)}",
        advice="pass from_beginning=['orders']",
    )


def _check_topics(wanted: Iterable[str], known: Collection[str]) -> None:
    for topic in wanted:
        if topic not in known:
            raise InvalidInputError(
                f"the ingestion has read no Kafka topic {shown(topic)}",
                advice=nearest(topic, known),
                durable=Durable.NOTHING,
            )


def location_of_ingestions(path: str, storage: Mapping[str, Any]) -> Location:
    """The namespace that a path names. Raises InvalidInputError where it names a topic."""
    return location_of_namespace(path, storage, what="ingestions are those of")


def no_ingestion(name: str, known: Iterable[str]) -> InvalidInputError:
    """No ingestion in the log has this name; ``known`` are the names that it has."""
    return InvalidInputError(f"the log has no ingestion {name!r}", advice=nearest(name, known), durable=Durable.NOTHING)


def was_ended(ns: Namespace, name: str) -> bool:
    """Whether ``end_ingestion`` ended an ingestion, as this client knows the log."""
    return connection_of(ns).stream(end_of(name)) is not None


def check_not_ended(ns: Namespace, name: str) -> None:
    """Raise InvalidInputError for an ingestion that was ended: another one has its offsets, and would double it."""
    if was_ended(ns, name):
        raise InvalidInputError(
            f"the ingestion {name!r} was ended by end_ingestion: another one goes on where it was, or is to",
            advice="if another one goes on, start this one no more; if none was begun yet, begin one under another "
            "name (name=...) with the option startingOffsets: end_ingestion returns the offsets again, if it is called "
            "with the same from_beginning",
            durable=Durable.NOTHING,
        )


__all__ = ["check_not_ended", "end_ingestion", "location_of_ingestions", "no_ingestion", "was_ended"]
