"""Creating, describing and dropping topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from txnlog.client import dead_letters
from txnlog.common.format_limits import MAX_PARTITIONS
from txnlog.common.names import nearest, parse_topic_name
from txnlog.common.validation import text_properties, truth, whole_number
from txnlog.errors import Durable, InvalidInputError, TopicExists, TopicNotFound
from txnlog.fold.state import Draft, TopicRecord
from txnlog.fold.topics import too_many_partitions, topic_named
from txnlog.format import schema
from txnlog.format.actions import DropTopic, Header, Topic
from txnlog.format.column_text import difference_text
from txnlog.format.compaction import CLEANUP_POLICY
from txnlog.format.delta_mode import DELTA, check_delta_columns
from txnlog.format.topic_settings import GivenSettings, check_properties
from txnlog.log.commands import ONE_CREATION, Answer, Simple, effect
from txnlog.log.needed_features import check_holes
from txnlog.replies import IfUnknown, unknown_outcome
from txnlog.results import TopicInfo
from txnlog.sentences import Argument, Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def create(
    connection: Connection,
    name: str,
    columns: pa.Schema | None,
    partitions: int,
    key: str | None,
    *,
    if_not_exists: bool,
    properties: Mapping[str, str] | None,
    given: Mapping[str, Any],
) -> TopicRecord:
    """Create a topic; see ``Namespace.create_topic``."""
    stored = _schema_of(columns)
    if key is not None and not isinstance(key, str):
        raise InvalidInputError(f"key is the name of a column, not {type(key).__name__}")
    settings = GivenSettings.parse(given)
    labels = text_properties(properties)
    check_properties(labels)
    if_not_exists = truth("if_not_exists", if_not_exists)
    action = Topic(
        parse_topic_name(name),
        stored,
        _partitions(partitions),
        key,
        settings.put_into(labels),
    )

    def decide(draft: Draft, _at: Header) -> list[Topic] | Answer[TopicRecord]:
        record = topic_named(draft, action.name)
        if record is not None:
            if (clash := _clash(record, action, settings)) is not None:
                raise TopicExists(
                    Words(f"the topic {name!r} exists with other ", clash),
                    advice=Words(
                        "choose another name, or take it as it is: ",
                        Call("topic", repr(name)),
                        " shows it, and ",
                        Call("alter_topic", repr(name), "..."),
                        " adds columns",
                    ),
                )
            if not if_not_exists:
                raise TopicExists(f"the topic {name!r} exists")
            return Answer(record)
        check_delta_columns(stored, DELTA.of(action.properties))
        check_compactable(draft, action.name, action.key, action.properties)
        return [action]

    def result(draft: Draft, at: Header) -> TopicRecord:
        record = draft.topics.get(at.version)
        assert record is not None, "just created"
        return record

    return connection.appender.call(Simple(decide, result, ONE_CREATION))


def drop(connection: Connection, name: str) -> None:
    """Drop a topic and its subscriptions; see ``Namespace.drop_topic``."""
    parse_topic_name(name)

    def decide(draft: Draft, _at: Header) -> list[DropTopic]:
        record = existing(draft, name)
        dead_letters.check_not_needed(draft, record)
        return [DropTopic(record.id)]

    with unknown_outcome(IfUnknown.DROP_TOPIC):
        connection.appender.call(effect(decide))


def existing(draft: Draft, name: str) -> TopicRecord:
    """The live topic of a name. Raises TopicNotFound with the nearest name where there is none."""
    record = topic_named(draft, name)
    if record is None:
        names = [item.name for _, item in draft.topics.items() if not item.dropped]
        raise TopicNotFound(f"no topic {name!r}", advice=nearest(name, names), durable=Durable.NOTHING)
    return record


def check_compactable(draft: Draft, name: str, key: str | None, properties: Mapping[str, str]) -> None:
    """Raise InvalidInputError, or UnsupportedFeature, where a topic with these properties cannot be compacted."""
    if CLEANUP_POLICY.of(properties) != "compact":
        return
    if key is None:
        raise InvalidInputError(
            f"the topic {name!r} has no key, so that there is no newest message of one",
            advice=Words("create a topic with one: ", Call("create_topic", "name", Argument("key", ...))),
        )
    check_holes(draft, "key compaction")


def describe(record: TopicRecord) -> TopicInfo:
    """A topic, for users."""
    return TopicInfo(
        record.name,
        schema.to_arrow(record.schema),
        record.partitions,
        record.key,
        dict(record.properties),
        record.id,
    )


def _schema_of(given: pa.Schema | None) -> schema.StructType:
    if given is None:
        return schema.DEFAULT_SCHEMA
    return schema.from_arrow(given)


def _clash(there: TopicRecord, wanted: Topic, settings: GivenSettings) -> str | None:
    """How a topic differs from one that is wanted; None if it does not."""
    if all(item.schema != wanted.schema for item in there.schemas):  # it may have been altered since
        return f"columns: {difference_text(there.schema, wanted.schema)}"
    if there.partitions != wanted.partitions:
        return f"partitions: {there.partitions} instead of {wanted.partitions}"
    if there.key != wanted.key:
        return f"key: {there.key!r} instead of {wanted.key!r}"
    return settings.difference(there.properties)


def _partitions(value: object) -> int:
    """The number of partitions of a topic, from 1 to the format's limit."""
    number = whole_number("partitions", value, 1)
    if number > MAX_PARTITIONS:
        raise too_many_partitions(number)
    return number


__all__ = ["check_compactable", "create", "describe", "drop", "existing"]
