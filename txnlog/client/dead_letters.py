"""Messages that nobody could deal with: their topic, and the entry that brings them there and takes them off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from txnlog.client.row_placement import place
from txnlog.common.names import parse_topic_name
from txnlog.common.ranges import normalize
from txnlog.data import schema_evolution
from txnlog.data.redelivery_counts import redeliveries_of
from txnlog.data.segment_rows import METADATA_FIELDS
from txnlog.errors import InvalidInputError, SchemaMismatch, TopicNotFound, TransactionConflict
from txnlog.fold.leases import Wanted, are_worn_out
from txnlog.fold.state import Draft, Redelivery, SubscriptionRecord, TopicRecord
from txnlog.fold.topics import topic_named
from txnlog.format import schema as schemas
from txnlog.format.actions import Acknowledgement, AnyAction, Header, PartitionRanges, Topic
from txnlog.format.delta_mode import DELTA
from txnlog.format.schema import DEAD_LETTER_COLUMNS, StructField, StructType
from txnlog.log.commands import Answer, Piece, SharedNumbers, digest_of_call
from txnlog.log.transaction_commands import CommitCommand, CommitResult, Opening
from txnlog.replies import advising_of

if TYPE_CHECKING:
    from txnlog.client.connection import Connection, TopicHandle


def schema_of(source: StructType) -> StructType:
    """The columns of a dead-letter topic: those of the source, and where the message came from."""
    own = tuple(field for field in source.fields if field.name not in DEAD_LETTER_COLUMNS)
    return StructType((*own, *(StructField(name, kind) for name, kind in DEAD_LETTER_COLUMNS.items())))


def missing_topic(draft: Draft, source: TopicRecord, name: str) -> list[Topic]:
    """What creates the dead-letter topic of a source; nothing where there is one.

    Raises:
        SchemaMismatch: there is one that cannot hold the source's messages.
    """
    wanted = parse_topic_name(name)
    if wanted == source.name:
        raise InvalidInputError(
            f"the topic {name!r} cannot be its own dead-letter topic", advice=f'use another one: "{name}-dead"'
        )
    columns = schema_of(source.schema)
    known = topic_named(draft, name)
    if known is None:
        return [Topic(wanted, columns, source.partitions, properties=DELTA.put_into({}, DELTA.of(source.properties)))]
    _check(known, columns)
    return []


def _check(known: TopicRecord, wanted: StructType) -> None:
    there = {field.name: field for field in known.schema.fields}
    for field in wanted.fields:
        found = there.pop(field.name, None)
        if found is None or not schema_evolution.takes(found, field):
            raise SchemaMismatch(
                f"the topic {known.name!r} cannot hold dead letters: its column {field.name!r} is "
                f"{'missing' if found is None else 'of another type'}",
                advice="name another dead_letter_topic; one that does not exist is created with the right columns",
            )
    for field in there.values():
        if not field.nullable:
            raise SchemaMismatch(
                f"the topic {known.name!r} cannot hold dead letters: its column {field.name!r} may not be null",
                advice="name another dead_letter_topic; one that does not exist is created with the right columns",
            )


def of_source(draft: Draft, source: TopicRecord) -> list[TopicRecord]:
    """The topics that take the dead letters of a topic's subscriptions, each once."""
    names = dict.fromkeys(item.dead_letter_topic for _, item in draft.subscriptions.items() if item.topic == source.id)
    found = [topic_named(draft, name) for name in names if name is not None]
    return [item for item in found if item is not None]


def check_not_needed(draft: Draft, topic: TopicRecord) -> None:
    """Raise InvalidInputError where a subscription of another topic sends its dead letters to this one."""
    found = [item for _, item in draft.subscriptions.items() if item.dead_letter_topic == topic.name]
    for item in found:
        source = draft.topics.get(item.topic)
        assert source is not None, "topics are never forgotten"
        if source.id != topic.id:
            raise InvalidInputError(
                f"the subscription {item.name!r} of {source.name!r} sends its dead letters to the topic {topic.name!r}",
                advice="drop the subscription first",
            )


def target(connection: Connection, subscription: SubscriptionRecord) -> TopicHandle:
    """The dead-letter topic of a subscription.

    Raises:
        TopicNotFound: it was dropped.
        SchemaMismatch: it cannot hold what the subscription's topic holds by now.
    """
    name = subscription.dead_letter_topic
    assert name is not None, "only a subscription with a dead-letter topic has dead letters"
    needed = (
        f"the subscription {subscription.name!r} needs its dead-letter topic {name!r}: create_subscription() with the "
        "same arguments and if_not_exists=True makes it again"
    )
    with advising_of(TopicNotFound, needed):
        handle = connection.topic_handle(name)
    source = connection.topic_record_by_id(subscription.topic)
    _check(handle.record, schema_of(source.schema))
    return handle


@dataclass(slots=True)
class _Move(CommitCommand):
    """The entry that does both, unless a message was delivered again since it was found."""

    travels = False  # whoever brought it would not look whether one was
    _: KW_ONLY
    wanted: Wanted
    found: Mapping[int, tuple[Redelivery, ...]]

    def decide(self, draft: Draft, at: Header, shared: SharedNumbers) -> Sequence[AnyAction] | Answer[CommitResult]:
        """See Command."""
        new = draft.outcomes.get(self.opening.txn) is None
        if new and not are_worn_out(draft, self.wanted, self.found, at.timestamp_ms):
            raise TransactionConflict(
                "messages that were to be dead letters were delivered, or acknowledged, meanwhile"
            )
        return CommitCommand.decide(self, draft, at, shared)


def move(
    connection: Connection,
    subscription: SubscriptionRecord,
    source: TopicRecord,
    wanted: Wanted,
    messages: pa.Table,
    found: Mapping[int, tuple[Redelivery, ...]],
) -> None:
    """Bring messages to the dead-letter topic and take them off the subscription, in one entry.

    Raises:
        TransactionConflict: one of them was acknowledged, or delivered again, meanwhile; nothing was done.
        TopicNotFound, SchemaMismatch: as of :func:`target`; nothing was done.
    """
    into = target(connection, subscription)
    reason = f"redelivered more than {subscription.max_redeliveries} times on the subscription {subscription.name}"
    letters = _letters(source, messages, reason, pa.array(redeliveries_of(messages, found), pa.int32()))
    pieces: list[Piece] = []
    for partition, rows in _by_partition(letters, into.partitions):
        pieces += place(connection, into.name, rows, partition, None, named=False)
    taken = tuple(
        PartitionRanges(partition, normalize((item.start, item.end) for item in found[partition]))
        for partition in sorted(found)
    )
    acknowledgement = Acknowledgement(subscription.id, wanted.epoch, taken)
    digest = digest_of_call(pieces, (acknowledgement,))
    txn_id = connection.txn_id(connection.appender.take_numbers(1)[0])
    opening = Opening(txn_id, connection.runtime.now_ms)
    connection.appender.call(
        _Move(opening, digest, pieces, acknowledgements=(acknowledgement,), plain=True, wanted=wanted, found=found)
    )


def of_failed_batch(
    into: TopicHandle, source: TopicRecord, messages: pa.Table, *, reason: str, redeliveries: int
) -> Iterator[tuple[int, pa.Table]]:
    """Messages with their metadata columns as rows of a dead-letter topic, with the partition of each part."""
    letters = _letters(source, messages, reason, pa.repeat(pa.scalar(redeliveries, pa.int32()), len(messages)))
    return _by_partition(letters, into.partitions)


def _by_partition(letters: pa.Table, partitions: int) -> Iterator[tuple[int, pa.Table]]:
    """Dead letters by the partition that they go to: those of one source partition stay together and in order."""
    sources = np.asarray(letters.column("_source_partition"))
    for source in np.unique(sources):
        yield int(source) % partitions, letters.filter(pa.array(sources == source))


def _letters(source: TopicRecord, messages: pa.Table, reason: str, redeliveries: pa.Array) -> pa.Table:
    partitions = np.asarray(messages.column("_partition"))
    offsets = np.asarray(messages.column("_offset"))
    added = {*DEAD_LETTER_COLUMNS, *(field.name for field in METADATA_FIELDS)}
    letters = messages.select([name for name in messages.column_names if name not in added])
    columns: dict[str, pa.Array] = {
        "_dead_reason": pa.repeat(reason, len(messages)),
        "_source_topic": pa.repeat(source.name, len(messages)),
        "_source_partition": pa.array(partitions, pa.int32()),
        "_source_offset": pa.array(offsets, pa.int64()),
        "_redeliveries": redeliveries,
    }
    for name, kind in DEAD_LETTER_COLUMNS.items():
        letters = letters.append_column(pa.field(name, schemas.type_to_arrow(kind)), columns[name])
    return letters


__all__ = ["check_not_needed", "missing_topic", "move", "of_failed_batch", "of_source", "schema_of", "target"]
