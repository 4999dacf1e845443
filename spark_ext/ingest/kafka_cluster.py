"""What a Kafka cluster says of topics, on the driver, before a job runs: ids, partitions, and the offsets they hold.

Spark's Kafka source brings Kafka's own client in Java, and so this asks with the options that the source gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from spark_ext.ingest.positions import Part
from spark_ext.support.python_process import ProcessLock, digest_of
from spark_ext.support.spark_errors import first_line
from spark_ext.support.spark_versions import has_jvm
from txnlog.errors import Durable, InvalidInputError, RetriableError, TxnLogError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "kafka."
_PATIENCE_S: Final = 60
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What a broker older than 2.8 says, whose topics have no ids: sixteen bytes of zero."""

_SOURCE: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset that a partition has, and the one that its next message gets."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Topics:
    """What a cluster says of topics: their ids, where it knows them, and what their partitions hold."""

    ids: Mapping[str, str]
    bounds: Mapping[Part, Bounds]


_MOST_CLIENTS: Final = 8
_clients: Final[OrderedDict[tuple[int, str], Any]] = OrderedDict()
"""Kafka's clients for administration by JVM and settings: a batch need not connect anew. The oldest one is closed."""

_lock: Final = ProcessLock(_clients.clear)


class KafkaCluster:
    """A cluster, asked through the JVM of a session.

    Args:
        spark: a session with a JVM that has the Kafka source.
        options: the source's, with ``kafka.bootstrap.servers`` among them.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._settings = {
            name[len(_PREFIX) :]: value for name, value in options.items() if name.lower().startswith(_PREFIX)
        }

    def topics(self, names: Sequence[str]) -> Topics:
        """Ids, partitions and their offsets.

        Raises:
            InvalidInputError: there is no such topic, or the cluster refuses the client.
            RetriableError: it does not answer.
        """
        with self._typed():
            admin = self._admin()
            described = self._described(admin, names)
            parts = [Part(name, int(item.partition())) for name in names for item in described.get(name).partitions()]
            earliest, latest = (self._offsets(admin, parts, which) for which in ("earliest", "latest"))
            return Topics(_ids(described, names), {part: Bounds(earliest[part], latest[part]) for part in parts})

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The ids alone. Raises what ``topics`` raises."""
        with self._typed():
            return _ids(self._described(self._admin(), names), names)

    def _described(self, admin: Any, names: Iterable[str]) -> Any:
        wanted = self._jvm.java.util.ArrayList()
        for name in names:
            wanted.add(name)
        return self._got(admin.describeTopics(wanted).allTopicNames())

    def _offsets(self, admin: Any, parts: Sequence[Part], which: str) -> dict[Part, int]:
        clients = self._jvm.org.apache.kafka.clients.admin
        common = self._jvm.org.apache.kafka.common
        asked = self._jvm.java.util.HashMap()
        places = {part: common.TopicPartition(part.topic, part.partition) for part in parts}
        for place in places.values():
            asked.put(place, getattr(clients.OffsetSpec, which)())
        level = self._settings.get("isolation.level", "read_uncommitted").upper()
        options = clients.ListOffsetsOptions(getattr(common.IsolationLevel, level))
        found = self._got(admin.listOffsets(asked, options).all())
        return {part: int(found.get(place).offset()) for part, place in places.items()}

    def _got(self, future: Any) -> Any:
        return future.get(_PATIENCE_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _admin(self) -> Any:
        """The client for administration."""
        key = id(self._gateway), digest_of(self._settings)
        with _lock:
            found = _clients.get(key)
            if found is None:
                clients = self._jvm.org.apache.kafka.clients.admin
                known = set(clients.AdminClientConfig.configNames())
                properties = self._jvm.java.util.Properties()
                for name, value in self._settings.items():
                    if name in known:  # those of consumers are the source's alone
                        properties.put(name, value)
                found = _clients[key] = clients.AdminClient.create(properties)
            _clients.move_to_end(key)
            dropped = [_clients.popitem(last=False)[1] for _ in range(len(_clients) - _MOST_CLIENTS)]
        for client in dropped:
            client.close()
        return found

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except TxnLogError:
            raise
        except Py4JJavaError as error:
            raise self._error(error) from error
        except Py4JError as error:
            raise stopped() from error

    def _error(self, error: Py4JJavaError) -> TxnLogError:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        kind, text = cause.getClass().getSimpleName(), str(cause.getMessage() or "")
        if kind == "UnknownTopicOrPartitionException":
            return InvalidInputError(
                f"Kafka has no topic of a name in subscribe: {text}",
                advice="create it in Kafka first, or name another one in subscribe",
                durable=Durable.NOTHING,
            )
        if kind in {"TimeoutException", "DisconnectException"}:
            return RetriableError(
                f"the Kafka cluster does not answer: {text or first_line(error)}",
                advice="see whether kafka.bootstrap.servers names it and it runs, and call again",
                durable=Durable.NOTHING,
            )
        return InvalidInputError(
            f"Kafka refuses, with {kind}: {text or first_line(error)}",
            advice="correct the options that begin with 'kafka.'",
            durable=Durable.NOTHING,
        )


def _ids(described: Any, names: Iterable[str]) -> dict[str, str]:
    found = {name: str(described.get(name).topicId().toString()) for name in names}
    return {name: number for name, number in found.items() if number != _NO_ID}


def stopped() -> InvalidInputError:
    """The error for a session that does not answer."""
    return InvalidInputError("the Spark session was stopped", advice="make a new one, and call again with it")


def check_source(spark: SparkSession) -> None:
    """Raise UnsupportedFeature where a session has no JVM in its driver, or no Kafka source."""
    if not has_jvm(spark):
        raise UnsupportedFeature(
            "ingest_kafka asks Kafka through the JVM of the driver, which a client of Spark Connect does not have",
            advice="run it in a driver with a classic session, such as a job of the cluster",
        )
    try:
        spark._jvm.java.lang.Class.forName(_SOURCE, False, spark._jvm.Thread.currentThread().getContextClassLoader())  # type: ignore[union-attr]
    except Py4JJavaError as error:
        raise UnsupportedFeature(
            "the session has no Kafka source",
            advice="start it with spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:"
            f"{spark.version}, or spark-submit --packages with that",
        ) from error


__all__ = ["Bounds", "KafkaCluster", "Topics", "check_source", "stopped"]
