"""Applying the actions of topics."""

from __future__ import annotations

import msgspec

from txnlog.common.format_limits import MAX_PARTITIONS, MAX_TOPICS
from txnlog.common.names import folded, parse_topic_name
from txnlog.common.validation import shown
from txnlog.errors import (
    Durable,
    InvalidInputError,
    LimitExceeded,
    NameNotAllowed,
    OffsetOutOfRange,
    SchemaMismatch,
    TopicExists,
    TopicNotFound,
)
from txnlog.fold.state import Draft, SchemaVersion, State, TopicRecord
from txnlog.fold.subscription_records import forget_subscription
from txnlog.format import schema as schemas
from txnlog.format.actions import AlterTopic, DeleteRecords, DropTopic, Header, Topic
from txnlog.format.keys import topic_folder
from txnlog.sentences import Call, Words


def live_topic(draft: Draft, topic: int) -> TopicRecord:
    """The topic with an id, or TopicNotFound where there is none or it was dropped."""
    record = draft.topics.get(topic)
    if record is None:
        raise TopicNotFound(f"no topic with the id {topic}", durable=Durable.NOTHING)
    if record.dropped:
        raise TopicNotFound(
            f"the topic {record.name!r} was dropped",
            advice=Words("make it again with ", Call("create_topic", "..."), ", or call again if somebody did"),
            durable=Durable.NOTHING,
        )
    return record


def topic_named(tables: State | Draft, name: str) -> TopicRecord | None:
    """The live topic of exactly this name. One whose name differs in case only is another one, and in its way."""
    number = tables.topic_names.get(folded(name))
    record = None if number is None else tables.topics.get(number)
    return record if record is not None and record.name == name else None


def create(draft: Draft, action: Topic, at: Header) -> None:
    """Create a topic; its id is the entry's version."""
    name = parse_topic_name(action.name)
    taken = draft.topic_names.get(folded(name))
    if taken is not None:
        other = live_topic(draft, taken)
        if other.name == name:
            raise TopicExists(f"the topic {name!r} exists")
        raise NameNotAllowed(
            f"the topic {other.name!r} differs from {name!r} only in case", advice="choose another name"
        )
    if draft.topics.get(at.version) is not None:
        raise InvalidInputError("one entry creates one topic, whose id is the entry's version")
    if len(draft.topic_names) >= MAX_TOPICS:
        raise LimitExceeded(f"the namespace has {MAX_TOPICS:,} topics", advice="drop some, or use another namespace")
    if action.partitions < 1:
        raise InvalidInputError(f"a topic has at least 1 partition, not {action.partitions}")
    if action.partitions > MAX_PARTITIONS:
        raise too_many_partitions(action.partitions)
    schemas.check(action.schema)
    if action.key is not None:
        schemas.check_key(action.schema, action.key)
    first = all(folded(other.name) != folded(name) for _, other in draft.topics.items())
    draft.topics.put(
        at.version,
        TopicRecord(
            at.version,
            name,
            topic_folder(name, at.version, first=first),
            (SchemaVersion(at.version, action.schema),),
            action.partitions,
            action.key,
            action.properties,
        ),
    )
    draft.topic_names.put(folded(name), at.version)


def too_many_partitions(number: int) -> LimitExceeded:
    """The error for more partitions than a topic may have."""
    return LimitExceeded(
        f"a topic has at most {MAX_PARTITIONS:,} partitions, not {shown(number)}", advice="use fewer partitions"
    )


def alter(draft: Draft, action: AlterTopic, at: Header) -> None:
    """Change schema or properties. Of a new schema the state keeps the key; the rest is the writer's (P-218)."""
    record = live_topic(draft, action.topic)
    if action.schema is not None:
        schemas.check(action.schema)
        if record.key is not None:
            schemas.check_key(action.schema, record.key)
            if _type_of(action.schema, record.key) != _type_of(record.schema, record.key):
                raise SchemaMismatch(f"the type of the key {record.key!r} cannot change: rows would change partition")
        record = msgspec.structs.replace(record, schemas=(*record.schemas, SchemaVersion(at.version, action.schema)))
    if action.properties is not None:
        record = msgspec.structs.replace(record, properties=action.properties)
    draft.topics.put(record.id, record)


def _type_of(schema: schemas.StructType, column: str) -> schemas.DataType | None:
    return next((field.type for field in schema.fields if field.name == column), None)


def drop(draft: Draft, action: DropTopic, at: Header) -> None:
    """Drop a topic and its subscriptions. Open transactions go on without it."""
    record = live_topic(draft, action.topic)
    draft.topics.put(record.id, msgspec.structs.replace(record, dropped_version=at.version))
    draft.topic_names.remove(folded(record.name))
    for subscription in [item for _, item in draft.subscriptions.items() if item.topic == record.id]:
        forget_subscription(draft, subscription, record.partitions)


def value_columns(topic: TopicRecord) -> list[str]:
    """The columns that make up the value of a message: one in which all of them are null ends its key.

    None where the topic began with its key alone: it is a set, also where columns were added later.
    """
    if topic.key is None or len(topic.schemas[0].schema.fields) == 1:
        return []
    headers = "headers" if topic.schemas[0].schema == schemas.DEFAULT_SCHEMA else None
    return [field.name for field in topic.schema.fields if field.name not in {topic.key, headers}]


def delete_records(draft: Draft, action: DeleteRecords, _at: Header) -> None:
    """Move the earliest offsets of partitions up."""
    record = live_topic(draft, action.topic)
    for partition, offset in action.before:
        check_deletable(draft, record, partition, offset)
        start = draft.start_of(record.id, partition)
        if offset < start:
            raise _not_there(record, partition, start, draft.end_of(record.id, partition), offset)
        if offset > start:
            draft.starts.put((record.id, partition), offset)


def check_deletable(draft: Draft, topic: TopicRecord, partition: int, offset: int) -> None:
    """Raise OffsetOutOfRange for a partition that a topic does not have, and for an offset behind its end."""
    if not 0 <= partition < topic.partitions:
        raise OffsetOutOfRange(f"the topic {topic.name!r} has no partition {partition}", durable=Durable.NOTHING)
    end = draft.end_of(topic.id, partition)
    if not 0 <= offset <= end:
        raise _not_there(topic, partition, draft.start_of(topic.id, partition), end, offset)


def _not_there(topic: TopicRecord, partition: int, start: int, end: int, offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        f"partition {partition} of the topic {topic.name!r} begins at offset {start} and ends at {end}; {offset} is "
        "outside",
        advice=f"use {start} to {end}",
        durable=Durable.NOTHING,
    )


__all__ = [
    "alter",
    "check_deletable",
    "create",
    "delete_records",
    "drop",
    "live_topic",
    "too_many_partitions",
    "topic_named",
    "value_columns",
]
