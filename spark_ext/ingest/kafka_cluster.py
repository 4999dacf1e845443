"""What a Kafka cluster says of topics, on the driver, before a job runs: ids, partitions, and the offsets they hold.

Spark's Kafka source brings Kafka's own client in Java, and so this asks with the options that the source gets.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from spark_ext.ingest.positions import TopicPartition
from spark_ext.support.python_process import ProcessLock, digest_of
from spark_ext.support.spark_errors import first_line
from spark_ext.support.spark_versions import has_jvm, is_stopped, session_stopped
from txnlog.errors import Durable, InvalidInputError, RetriableError, TxnLogError, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PREFIX: Final = "kafka."
_PATIENCE_S: Final = 60
_ZERO_UUID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What a broker older than 2.8 says, whose topics have no ids: sixteen bytes of zero."""

_UNCOMMITTED: Final = "read_uncommitted"

_OF_THE_SOURCE: Final = {
    "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
}
"""Settings of consumers that Spark's source has, and takes from nobody."""

_PROVIDED: Final = re.compile(r"\$\{[^}]*:[^}]*\}")
"""A value that one of Kafka's providers of settings has."""

_SOURCE: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_API_ERROR: Final = "org.apache.kafka.common.errors.ApiException"
_UNKNOWN_TOPIC: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
_RETRIABLE: Final = "org.apache.kafka.common.errors.RetriableException"

_INTERRUPTED: Final = frozenset(
    {
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
        "org.apache.kafka.common.errors.InterruptException",
    }
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The first offset that a partition has, and the one that its next message gets."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class Topics:
    """What a cluster says of topics: their ids, where it knows them, and their partitions."""

    ids: Mapping[str, str]
    parts: tuple[TopicPartition, ...]


_MOST_CLIENTS: Final = 8
_idle: Final[list[tuple[tuple[int, str], Any]]] = []
"""Clients for administration that have answered, and that nobody uses, each with its JVM and settings: a batch need not
connect anew. Of more than these the one that was used longest ago is closed."""

_lock: Final = ProcessLock(_idle.clear)


class KafkaCluster:
    """A cluster, asked through the JVM of a session.

    Args:
        spark: a session with a JVM that has the Kafka source.
        options: the source's, with ``kafka.bootstrap.servers`` among them.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._spark = spark
        # Spark's source takes these names in any case.
        self._settings = {
            name[len(_PREFIX) :].lower(): value for name, value in options.items() if name.lower().startswith(_PREFIX)
        }

    def check_settings(self) -> None:
        """Raise InvalidInputError for settings that Kafka's clients refuse: only tasks have the source's consumers."""
        self._asked(self._check_settings)
        self._asked(self._check_consumer)

    def topics(self, names: Sequence[str]) -> Topics:
        """Ids and partitions.

        Raises:
            InvalidInputError: there is no such topic, or the cluster refuses the client.
            RetriableError: it does not answer.
        """

        def ask() -> Topics:
            with self._admin() as admin:
                described = self._described(admin, names)
            parts = [
                TopicPartition(name, int(item.partition())) for name in names for item in described[name].partitions()
            ]
            return Topics(_ids(described), tuple(sorted(parts)))

        return self._asked(ask)

    def bounds(self, parts: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """What partitions have, by the isolation level of the settings. Raises what ``topics`` raises."""

        def ask() -> dict[TopicPartition, Bounds]:
            level = self._settings.get("isolation.level", _UNCOMMITTED)
            with self._admin() as admin:
                earliest, latest = (self._offsets(admin, parts, which, level) for which in ("earliest", "latest"))
            return {part: Bounds(earliest[part], latest[part]) for part in parts}

        return self._asked(ask)

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The ids alone. Raises what ``topics`` raises."""

        def ask() -> dict[str, str]:
            with self._admin() as admin:
                return _ids(self._described(admin, names))

        return self._asked(ask)

    def written(self, part: TopicPartition) -> int:
        """The end of a partition behind messages of open transactions as well. Raises what ``topics`` raises."""

        def ask() -> int:
            with self._admin() as admin:
                return self._offsets(admin, [part], "latest", _UNCOMMITTED)[part]

        return self._asked(ask)

    def _check_settings(self) -> None:
        clients = self._jvm.org.apache.kafka.clients
        given = self._jvm.java.util.HashMap()
        # What a provider of settings gives instead, such as ${file:/secrets:password}, only the clients know.
        plain = {name: value for name, value in self._settings.items() if not _PROVIDED.search(value)}
        for name, value in plain.items():
            given.put(name, value)
        for config in (clients.admin.AdminClientConfig, clients.consumer.ConsumerConfig):
            definitions = config.configDef()
            checked = definitions.validateAll(given)
            for name in plain:  # each by its name: to go through all settings of Kafka's takes seconds from Python
                found = checked.get(name)
                if found is not None and not found.errorMessages().isEmpty():
                    is_secret = str(definitions.configKeys().get(name).type) == "PASSWORD"
                    text = "" if is_secret else f": {found.errorMessages().get(0)}"
                    raise InvalidInputError(
                        f"Kafka refuses the option '{_PREFIX}{name}'{text}",
                        advice="correct it, or leave it out",
                        durable=Durable.NOTHING,
                    )

    def _check_consumer(self) -> None:
        """Make a consumer as the source's tasks do, which loads classes and keys; it connects to nothing."""
        settings = self._jvm.java.util.HashMap()
        for name, value in {"group.id": "txnlog", **self._settings, **_OF_THE_SOURCE}.items():
            settings.put(name, value)
        self._made(lambda: self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)).close()

    def _described(self, admin: Any, names: Sequence[str]) -> dict[str, Any]:
        """What Kafka says of each topic. Raises InvalidInputError naming the first one that it does not have."""
        wanted = self._jvm.java.util.ArrayList()
        for name in names:
            wanted.add(name)
        answers = admin.describeTopics(wanted).topicNameValues()
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = self._got(answers.get(name))
            except Py4JJavaError as error:
                if not any(_UNKNOWN_TOPIC in _classes(cause) for cause in _causes(error)):
                    raise
            if name not in found:  # here, where Java's error is no cause of ours
                raise _no_topic(repr(name))
        return found

    def _offsets(
        self, admin: Any, parts: Sequence[TopicPartition], which: str, level: str
    ) -> dict[TopicPartition, int]:
        clients = self._jvm.org.apache.kafka.clients.admin
        common = self._jvm.org.apache.kafka.common
        asked = self._jvm.java.util.HashMap()
        places = {part: common.TopicPartition(part.topic, part.partition) for part in parts}
        for place in places.values():
            asked.put(place, getattr(clients.OffsetSpec, which)())
        options = clients.ListOffsetsOptions(common.IsolationLevel.valueOf(level.upper()))
        found = self._got(admin.listOffsets(asked, options).all())
        return {part: int(found.get(place).offset()) for part, place in places.items()}

    def _got(self, future: Any) -> Any:
        return future.get(_PATIENCE_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    @contextlib.contextmanager
    def _admin(self) -> Iterator[Any]:
        """A client for administration, which nobody else uses meanwhile. After an error it is closed.

        It would connect again and again, for ever: to a server that refuses a password, or is not there any more.
        """
        key = id(self._gateway), digest_of(self._settings)
        with _lock:
            place = next((place for place, (other, _) in enumerate(_idle) if other == key), None)
            admin = None if place is None else _idle.pop(place)[1]
        if admin is None:
            admin = self._made(self._new_admin)
        try:
            yield admin
        except BaseException:
            self._close(admin)
            raise
        with _lock:
            _idle.append((key, admin))
            dropped = [_idle.pop(0)[1] for _ in range(len(_idle) - _MOST_CLIENTS)]
        for client in dropped:
            self._close(client)

    def _new_admin(self) -> Any:
        """With all settings but those of consumers alone: others have names that no list has."""
        clients = self._jvm.org.apache.kafka.clients
        own, others = clients.admin.AdminClientConfig.configNames(), clients.consumer.ConsumerConfig.configNames()
        properties = self._jvm.java.util.Properties()
        for name, value in self._settings.items():
            if own.contains(name) or not others.contains(name):
                properties.put(name, value)
        return clients.admin.AdminClient.create(properties)

    def _close(self, admin: Any) -> None:
        with contextlib.suppress(Py4JError):  # the session may have been stopped, and its JVM have ended
            admin.close(self._jvm.java.time.Duration.ZERO)

    def _made(self, create: Callable[[], Any]) -> Any:
        """A client. What Kafka says of settings that it cannot read may quote them: a part of a password, or a key."""
        try:
            return create()
        except Py4JJavaError as error:
            causes = _causes(error)
        cause = causes[-1]
        kind = _classes(cause)[0].rpartition(".")[2]
        text = f": {cause.getMessage()}" if kind == "ConfigException" else ", and its text may have a part of them"
        raise InvalidInputError(
            f"Kafka refuses the options that begin with '{_PREFIX}', with {kind}{text}",
            advice=f"correct them: {', '.join(_PREFIX + name for name in sorted(self._settings))}",
            durable=Durable.NOTHING,
        )

    def _asked(self, ask: Callable[[], T]) -> T:
        """What asking gives. Errors of Java's are no cause of ours: a traceback would show what they quote."""
        try:
            return ask()
        except Py4JJavaError as error:
            causes = _causes(error)
            if _INTERRUPTED.intersection(str(cause.getClass().getName()) for cause in causes):
                raise  # ``query.stop()`` interrupts its thread, and Spark must see that it is its own interrupt
        except Py4JNetworkError:
            raise session_stopped() from None
        except Py4JError as error:
            if is_stopped(self._spark):
                raise session_stopped() from None
            raise UnsupportedFeature(
                f"the Kafka client of the session lacks a call: {first_line(error)}",
                advice="give the session spark-sql-kafka-0-10 in the version of its Spark",
            ) from error
        raise self._error(causes)

    def _error(self, causes: Sequence[Any]) -> TxnLogError:
        """The error for what Kafka answered, or that it did not: of its errors the innermost, whose text is Kafka's."""
        known = [cause for cause in causes if _API_ERROR in _classes(cause)]
        cause = (known or causes)[-1]
        kind = _classes(cause)[0].rpartition(".")[2]
        text = str(cause.getMessage() or kind) if known or kind == "TimeoutException" else kind
        if _UNKNOWN_TOPIC in _classes(cause):
            return _no_topic(f"of a name in subscribe: {text}")
        if kind == "TimeoutException" or _RETRIABLE in _classes(cause):
            return RetriableError(
                f"the Kafka cluster does not answer: {text}",
                advice="see whether kafka.bootstrap.servers names it and it runs, and call again",
                durable=Durable.NOTHING,
            )
        return InvalidInputError(
            f"Kafka refuses, with {kind}: {text}",
            advice="correct the options that begin with 'kafka.'",
            durable=Durable.NOTHING,
        )


def _causes(error: Py4JJavaError) -> list[Any]:
    """An error of Java's with its causes, the innermost last."""
    found = [error.java_exception]
    while (cause := found[-1].getCause()) is not None:
        found.append(cause)
    return found


def _classes(thrown: Any) -> list[str]:
    """The name of an error's class, and those of its parents."""
    found, kind = [], thrown.getClass()
    while kind is not None:
        found.append(str(kind.getName()))
        kind = kind.getSuperclass()
    return found


def _no_topic(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"Kafka has no topic {what}",
        advice="create it in Kafka first, or name another one in subscribe",
        durable=Durable.NOTHING,
    )


def _ids(described: dict[str, Any]) -> dict[str, str]:
    found = {name: str(item.topicId().toString()) for name, item in described.items()}
    return {name: number for name, number in found.items() if number != _ZERO_UUID}


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


__all__ = ["Bounds", "KafkaCluster", "Topics", "check_source"]
