"""The rows of Kafka's messages as a topic gets them: their columns, their topic, and which partition they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from spark_ext.support.columns import named
from spark_ext.support.spark_errors import unless_refused
from spark_ext.write.task_writer import ROUTING_COLUMN, SOURCE_COLUMN
from txnlog.common.names import parse_topic_name
from txnlog.common.validation import shown, type_of
from txnlog.errors import InvalidInputError, SchemaMismatch
from txnlog.format import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.ingest.positions import TopicPartition
    from txnlog.fold.state import TopicRecord

KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of Spark's Kafka source, with its headers."""

_WITHOUT_A_SCHEMA: Final = ("key", "value", "headers")
"""The columns of a topic that was created without a schema."""

_HEADERS: Final = (
    "map_from_arrays(array_distinct(headers.key), "
    "transform(array_distinct(headers.key), k -> element_at(filter(headers, h -> h.key = k), -1).value))"
)
"""Kafka's headers may have a key twice, and a map has the last one."""

_NO_SOURCE: Final = -1

_MESSAGE_BY_MESSAGE: Final = frozenset({"Project", "Filter", "Generate"})
"""What a plan may do with the messages of a partition: it keeps their order."""

_RESERVED: Final = frozenset({ROUTING_COLUMN, SOURCE_COLUMN})


@dataclass(frozen=True, slots=True)
class Rows:
    """How rows are made of messages.

    Attributes:
        topic: the topic of all of them; None where ``topic_by`` says it of each.
        topic_by: an expression over Kafka's columns.
        columns: by column an expression; None for Kafka's own columns.
        where: which messages become rows; None for all.
    """

    topic: str | None
    topic_by: str | Column | None = None
    columns: Mapping[str, str | Column] | None = None
    where: str | Column | None = None

    def needs_headers(self, record: TopicRecord | None) -> bool:
        """Whether the source must give the headers. Expressions are opaque, and get them."""
        return self.columns is not None or record is None or "headers" in schema.to_arrow(record.schema).names

    def of(self, frame: DataFrame, record: TopicRecord | None) -> DataFrame:
        """The rows of a frame of Kafka's, with the partition that each is of.

        The frame has the column ``_txnlog_source`` already.

        Raises:
            SchemaMismatch: the topic has no column for a message, or no column brings the topic's key.
            InvalidInputError: Spark refuses an expression.
        """
        expressions = self._default(record) if self.columns is None else self.columns
        _check_key(record, expressions)

        def made() -> DataFrame:
            chosen = frame if self.where is None else frame.where(self.where)
            routed = [] if self.topic_by is None else [_column(self.topic_by).alias(ROUTING_COLUMN)]
            found = [_column(expression).alias(name) for name, expression in expressions.items()]
            return chosen.select(*found, *routed, named(SOURCE_COLUMN))

        return unless_refused(
            made,
            "Spark refuses an expression of columns, where or topic_by",
            f"correct it: it is over Kafka's columns {', '.join(KAFKA_COLUMNS)}",
        )

    def _default(self, record: TopicRecord | None) -> dict[str, str | Column]:
        if record is None:
            return {name: named(name) if name != "headers" else F.expr(_HEADERS) for name in _WITHOUT_A_SCHEMA}
        wanted = schema.to_arrow(record.schema)
        if "value" not in wanted.names:
            raise SchemaMismatch(
                f"the topic {record.name!r} has no column 'value' for the value of a Kafka message",
                advice="say how its columns are made: columns={'id': 'cast(key AS bigint)', ...}",
            )
        found: dict[str, str | Column] = {name: named(name) for name in KAFKA_COLUMNS if name in wanted.names}
        if "headers" in found and pa.types.is_map(wanted.field("headers").type):
            found["headers"] = F.expr(_HEADERS)
        return found


def _column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _check_key(record: TopicRecord | None, columns: Mapping[str, object]) -> None:
    if record is not None and record.key is not None and record.key not in columns:
        raise SchemaMismatch(
            f"the topic {record.name!r} has the key {record.key!r}, and no column of that name is made of messages",
            advice=f"name it: columns={{{record.key!r}: 'cast(key AS string)', ...}}",
        )


def check_message_by_message(frame: DataFrame) -> None:
    """Raise InvalidInputError where rows are made of more than one message: that loses the order, or messages.

    A classic session's frame, as its plan is looked at: a subquery becomes a join, a window or an aggregate sorts or
    shuffles, and both give the messages of a partition back in another order.
    """
    plan = frame._jdf.queryExecution().analyzed()
    found = "a subquery" if plan.subqueriesAll().size() else None
    todo = [plan]
    while todo and found is None:
        node = todo.pop()
        children = node.children()
        todo += [children.apply(place) for place in range(children.size())]
        kind = str(node.nodeName())
        if children.size() and kind not in _MESSAGE_BY_MESSAGE:
            found = f"Spark's {kind}"
    if found is not None:
        raise InvalidInputError(
            f"an expression of columns, where or topic_by has {found}: each message becomes rows by itself, so that "
            "the messages of a partition keep their order",
            advice="join, aggregate and number rows when the topic is read, or in a stream from it",
        )


def checked_rows(topic: object, topic_by: object, columns: object, where: object) -> Rows:
    """Check the arguments of a call. Raises InvalidInputError."""
    if (topic is None) == (topic_by is None):
        raise InvalidInputError(
            "one of topic and topic_by says where the rows go",
            advice="pass topic='orders', or topic_by='topic' for topics with the names of Kafka's",
        )
    name = None if topic is None else parse_topic_name(topic)
    by = None if topic_by is None else _expression("topic_by", topic_by)
    found: dict[str, str | Column] | None = None
    if columns is not None:
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidInputError(
                f"columns is a dict with an expression for each column, not {type_of(columns)}",
                advice="pass columns={'id': 'cast(key AS bigint)', 'value': 'value'}",
            )
        found = {
            _name(key, routed=by is not None): _expression(f"columns[{key!r}]", value) for key, value in columns.items()
        }
    return Rows(name, by, found, None if where is None else _expression("where", where))


def _name(name: object, *, routed: bool) -> str:
    reserved = _RESERVED if routed else {SOURCE_COLUMN}
    if not isinstance(name, str) or name in reserved:
        raise InvalidInputError(
            f"columns cannot name the column {shown(name)}",
            advice="give names as text; with topic_by the column 'topic' is the topic of each row",
        )
    return name


def _expression(what: str, value: object) -> str | Column:
    # Behind Connect and in a classic session columns are of different classes: each has this method.
    if isinstance(value, str) or hasattr(value, "alias"):
        return value  # type: ignore[return-value]
    raise InvalidInputError(
        f"{what} is a SQL expression or a column of Spark's, not {type_of(value)}",
        advice="pass text such as 'cast(key AS string)', or F.col('key')",
    )


def with_source(frame: DataFrame, parts: Sequence[TopicPartition]) -> DataFrame:
    """The messages of some partitions, each with the place of its own in ``parts``."""
    places = _of_partition({part: place for place, part in enumerate(parts)}, _NO_SOURCE, "int")
    return frame.withColumn(SOURCE_COLUMN, places).where(named(SOURCE_COLUMN) >= 0)


def from_offsets(frame: DataFrame, least: Mapping[TopicPartition, int]) -> DataFrame:
    """The frame without the messages of some partitions that have lower offsets."""
    return frame.where(named("offset") >= _of_partition(least, 0, "bigint")) if least else frame


def _of_partition(values: Mapping[TopicPartition, int], other: int, kind: str) -> Column:
    """By partition a number, as a column: an expression that does not grow with the number of partitions.

    A condition for each of them, one in the other, ends at a thousand in an overflow of Java's stack.
    """
    found: Column | None = None
    for topic in sorted({part.topic for part in values}):
        numbers = {part.partition: value for part, value in values.items() if part.topic == topic}
        least, most = min(numbers), max(numbers)
        # An array by the partition's number, since a map would be searched for each row; from one text, since a
        # literal of thousands of elements takes Spark seconds to plan.
        text = ",".join(str(numbers.get(number, other)) for number in range(least, most + 1))
        table = F.split(F.lit(text), ",").cast(f"array<{kind}>")
        value = F.coalesce(F.get(table, named("partition") - F.lit(least)), F.lit(other))
        condition = named("topic") == topic
        found = F.when(condition, value) if found is None else found.when(condition, value)
    assert found is not None, "there is some partition"
    return found.otherwise(F.lit(other))


__all__ = ["KAFKA_COLUMNS", "Rows", "check_message_by_message", "checked_rows", "from_offsets", "with_source"]
