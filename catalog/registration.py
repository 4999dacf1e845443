"""Registering topics under names in Spark's SQL, as temporary views over the format or as published Delta tables.

Spark stores the names: a view lives as long as its session, a table of a database as long as Spark's catalog. PySpark
is imported at the call only: a catalog needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from catalog.delta_log.sql import delta_location
from txnlog.common.names import folded, nearest
from txnlog.common.validation import mapping, options_json, shown
from txnlog.errors import Durable, InvalidInputError, TopicNotFound
from txnlog.store.open import hadoop_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS: Final = ("views", "delta")
"""The values of ``as_``."""

_LEGAL: Final = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
"""The names of tables and databases that Spark's own catalog accepts."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A topic to be registered, with its name in Spark, its path for the format, and the URL of its folder."""

    topic: str
    name: str
    path: str
    url: str


def chosen(
    topics: Iterable[Candidate], wanted: Sequence[str] | None, names: Mapping[str, str] | None
) -> list[Candidate]:
    """The requested topics, each with a name that Spark accepts and that no other of them has.

    Raises:
        TopicNotFound: with the nearest name.
        InvalidInputError: Spark does not accept a name, or two topics have the same one.
    """
    known = {item.topic: item for item in topics}
    given = mapping("names", names or {})
    if wanted is not None and not isinstance(wanted, Iterable):
        raise InvalidInputError(f"topics is a list of names, not {shown(wanted)}")
    asked = list(known) if wanted is None else [wanted] if isinstance(wanted, str) else list(wanted)
    for topic in (*asked, *given):
        if topic not in known:
            raise TopicNotFound(f"no topic {shown(topic)}", advice=nearest(str(topic), known), durable=Durable.NOTHING)
    found: dict[str, Candidate] = {}
    for topic in dict.fromkeys(asked):
        name = given.get(topic, spark_name(topic))
        check_name("a view or table", name)
        other = found.get(folded(name))
        if other is not None:
            raise InvalidInputError(
                f"the topics {other.topic!r} and {topic!r} would both be {name!r} to Spark",
                advice=f"give one of them another name: names={{{topic!r}: ...}}",
                durable=Durable.NOTHING,
            )
        item = known[topic]
        found[folded(name)] = Candidate(topic, name, item.path, item.url)
    return list(found.values())


def spark_name(name: str) -> str:
    """The name for Spark's catalog: ``.`` and ``-`` of a namespace's or topic's name become ``_``."""
    return re.sub(r"[.-]", "_", name)


def check_name(what: str, name: object) -> None:
    """Raise InvalidInputError for a name that Spark's catalog does not accept."""
    if not isinstance(name, str) or _LEGAL.fullmatch(name) is None:
        raise InvalidInputError(
            f"{shown(name)} is no name for {what} in Spark",
            advice="use letters, digits and underscores",
            durable=Durable.NOTHING,
        )


# --- views ------------------------------------------------------------------------------------------------------------


def register_views(
    spark: SparkSession, topics: Sequence[Candidate], storage_options: Mapping[str, Any], *, replace: bool
) -> None:
    """Create a temporary view over the format for each topic.

    The views are created by calls, not by SQL: Spark shows the text of a statement, with its options, to everybody.

    Raises InvalidInputError where a view or table has a name already, unless ``replace`` is set, and for storage
    options that are not JSON values.
    """
    options = {"storageOptions": options_json(storage_options)} if storage_options else {}
    if not replace:
        hidden = [item for item in topics if spark.catalog.tableExists(item.name)]
        if hidden:
            raise InvalidInputError(
                f"there is a view or table {hidden[0].name!r} in the session already, and the view of the topic "
                f"{hidden[0].topic!r} would hide it",
                advice=f"pass replace=True to replace it, or names={{{hidden[0].topic!r}: ...}} for another name",
                durable=Durable.NOTHING,
            )
    for item in topics:
        spark.read.format("txnlog").options(**options).load(item.path).createOrReplaceTempView(item.name)


# --- Delta tables -----------------------------------------------------------------------------------------------------


def register_tables(spark: SparkSession, topics: Sequence[Candidate], database: str) -> list[Candidate]:
    """Create an external table for each topic that is published. Returns the published topics.

    Raises:
        UnsupportedFeature: the session has no Delta.
        InvalidInputError: none of them is published, another table has a name, or SQL cannot express a topic's URL.
            Nothing was created.
    """
    for item in topics:
        if "${" in item.url:
            raise InvalidInputError(
                f"the URL of the topic {item.topic!r} contains ${{, which Spark's SQL would replace with the value of "
                "a setting",
                advice='use as_="views", or move the root',
                durable=Durable.NOTHING,
            )
    published = [item for item in topics if _location(spark, f"delta.{_quoted(hadoop_url(item.url))}") is not None]
    if not published:
        raise InvalidInputError(
            f"none of {len(topics)} topics is published as a Delta table",
            advice="publish them first: cat.publish(namespace, topic)",
            durable=Durable.NOTHING,
        )
    missing = []
    for item in published:
        name = f"{_quoted(database)}.{_quoted(item.name)}"
        if not spark.catalog.databaseExists(database) or not spark.catalog.tableExists(name):
            missing.append((name, item))
            continue
        there = _location(spark, name)
        if there is None or _plain(there) != _plain(hadoop_url(item.url)):
            raise InvalidInputError(
                f"{database}.{item.name} is another table, at {there or 'a place of its own'}",
                advice=f"if it is of an earlier topic of the name: DROP TABLE {database}.{item.name}, which deletes no "
                f"file; otherwise pass names={{{item.topic!r}: ...}} or database=...",
                durable=Durable.NOTHING,
            )
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    for name, item in missing:
        spark.sql(f"CREATE TABLE {name} USING DELTA LOCATION {_literal(hadoop_url(item.url))}")
    return published


def _location(spark: SparkSession, table: str) -> str | None:
    return delta_location(spark, table, instead='use as_="views"')


def _plain(location: str) -> str:
    """A location in a form to compare: Spark writes file URLs with one slash or three."""
    return re.sub(r"^file:/+", "/", location).rstrip("/")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


__all__ = ["WAYS", "Candidate", "check_name", "chosen", "register_tables", "register_views", "spark_name"]
