"""Whose a subscription is that ``spark_ext.process`` reads: the takeover by a run, and the cursors below it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_ext.support.former_owners import UNNAMED, is_of_another, warn_of_former_owner
from txnlog.api import subscriptions
from txnlog.api.internals import connection_of
from txnlog.client import dead_letters
from txnlog.client.positions import check_position
from txnlog.client.subscription_ownership import check_all_free, check_streamable, release_epochs, try_to_take
from txnlog.common.names import nearest
from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, SubscriptionNotFound, TxnLogError
from txnlog.replies import advising_of, in_parts, note_written

if TYPE_CHECKING:
    from spark_ext.read.scan import Scan
    from txnlog.client.connection import Connection
    from txnlog.client.positions import Position
    from txnlog.fold.state import Cursor, State, SubscriptionRecord
    from txnlog.results import Committed

_logger: Final = logging.getLogger("txnlog.spark")

_TAKE_ATTEMPTS: Final = 4
_TAKE_PAUSE_MS: Final = 500.0

_SHOWN_POSITIONS: Final = 8
"""The most partitions whose positions an advice states; for more it states the expression that returns them."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """A topic's subscription, by id, as one run owns it: only while its epoch is this one."""

    topic: str
    subscription: int
    epoch: int


@in_parts()
def take_over(
    connection: Connection,
    topics: Sequence[str],
    subscription: str,
    *,
    query_name: str | None,
    start: Position | Mapping[str, Position],
    to_dead_letters: bool,
) -> tuple[Ownership, ...]:
    """Become the consumer of the subscription on all topics, in one entry: an older run is fenced from here on.

    When this returns the materialized state includes that entry, and so whatever an older run committed is in the
    cursors. A missing subscription is created, after all checks that may refuse the call.

    Raises:
        TopicNotFound: with the nearest name.
        UnsupportedFeature: the subscription is of a kind whose messages several consumers share.
        ConsumerBusy: its takeover rule reserves it for another name.
        InvalidInputError: dead letters are wanted and it has no topic for them, or it needs ``query_name``.
        OutcomeUnknown: the store did not answer; run again.
    """
    connection.follower.refresh()
    name = query_name or f"{UNNAMED}{connection.runtime.unique()[:8]}"
    known: list[SubscriptionRecord] = []
    missing: list[str] = []
    for topic in topics:
        record = connection.subscription_record(connection.topic_record(topic).id, subscription)
        if to_dead_letters:
            _check_dead_letters(connection, topic, subscription, record)
        if record is None:
            missing.append(topic)
            continue
        check_streamable(record)
        if record.takeover == "same_name" and query_name is None:
            raise InvalidInputError(
                f"the subscription {subscription!r} of {topic!r} is taken over under the same name only",
                advice="pass query_name=..., the same at every run",
            )
        known.append(record)
    starts = {topic: _start_of(topic, start, topics) for topic in topics}
    for topic, position in starts.items():  # checked for an existing subscription as well, which ignores it
        check_position(connection.topic_record(topic), position, connection.log_now_ms())
    check_all_free(connection, known, name, may_end_query=True)
    made: list[SubscriptionRecord] = []
    for topic in missing:
        # Another first run may create it at the same time: then its subscription is used.
        found = subscriptions.create(connection, topic, subscription, start=starts[topic], if_not_exists=True)
        subscriptions.report_created(connection, found, "the run", "where its start says")
        made.append(found.record)
    by_topic = {connection.topic_record_by_id(record.topic).name: record for record in (*known, *made)}
    with connection.naming_dropped():
        epochs = _take(connection, [record.id for record in by_topic.values()], name)
        for topic, record in by_topic.items():
            if is_of_another(record, name):
                cursors = connection.cursors_of(record.id)
                before = {partition: cursor.position for partition, cursor in cursors.items()}
                warn_of_former_owner(topic, record, name, before)
    return tuple(Ownership(topic, by_topic[topic].id, epochs[by_topic[topic].id]) for topic in topics)


def release(connection: Connection, owned: Iterable[Ownership]) -> None:
    """Release the subscription for plain consumers after a run that ended normally. Never raises.

    A run that failed keeps it, as one that crashed does: a consumer opened to investigate must not take it over.
    """
    try:
        release_epochs(connection, {item.subscription: item.epoch for item in owned})
    except TxnLogError as error:
        _logger.warning(
            "The run ended, and its subscription could not be released: a consumer needs takeover=True", exc_info=error
        )


def _start_of(topic: str, start: Position | Mapping[str, Position], topics: Sequence[str]) -> Position:
    if not isinstance(start, Mapping) or not any(isinstance(key, str) for key in start):
        return start  # type: ignore[return-value]  # one start for all topics
    by_topic: Mapping[str, Position] = start  # type: ignore[assignment]
    for name in by_topic:
        if name not in topics:
            raise InvalidInputError(
                f"start names the topic {ascii(name)[:80]}, which is not read", advice=nearest(str(name), topics)
            )
    return by_topic.get(topic, "earliest")


def _check_dead_letters(
    connection: Connection, topic: str, subscription: str, record: SubscriptionRecord | None
) -> None:
    """Raise InvalidInputError unless there is a dead-letter topic for messages on which the handler fails."""
    what = f'on_error="dead_letter", but the subscription {subscription!r} of {topic!r}'
    if record is None:
        raise InvalidInputError(
            f"{what} does not exist yet",
            advice=f"create it with ns.create_subscription({topic!r}, ..., dead_letter_topic=...), which creates that "
            'topic as well; or pass on_error="stop"',
        )
    if record.dead_letter_topic is None:
        start = f"{{item.partition: item.cursor for item in ns.lag({topic!r}, {subscription!r})}}"
        cursors = connection.cursors_of(record.id)
        if len(cursors) <= _SHOWN_POSITIONS:
            start = str({partition: cursor.position for partition, cursor in sorted(cursors.items())})
        raise InvalidInputError(
            f"{what} has no dead-letter topic, and its settings cannot be changed",
            advice=f"ns.create_subscription({topic!r}, 'another name', start={start}, dead_letter_topic=...) creates "
            'one that starts at the cursor of this one: process that one from now on; or pass on_error="stop"',
        )
    dead_letters.target(connection, record)


def _take(connection: Connection, wanted: Sequence[int], name: str) -> dict[int, int]:
    for _ in range(_TAKE_ATTEMPTS - 1):
        try:
            return try_to_take(connection, wanted, name, name)
        except OutcomeUnknown:  # an epoch that this call may have created belongs to nobody
            note_written()
            connection.runtime.sleep_ms(_TAKE_PAUSE_MS)
    return try_to_take(connection, wanted, name, name)


@contextmanager
def naming_dropped(connection: Connection) -> Iterator[None]:
    """Context in which the error for a subscription that was dropped during the run names it, and says what to do."""
    again = (
        "run it again: it goes on at the cursor of the subscription that has the name by then, and creates one at the "
        "position start where there is none"
    )
    with advising_of(SubscriptionNotFound, again), connection.naming_dropped():
        yield


def check_acknowledged(connection: Connection, owned: Iterable[Ownership], result: Committed, batch: str) -> None:
    """Raise SubscriptionNotFound where a batch was committed without its acknowledgement: whose it was, was dropped."""
    for item in owned:
        left_out = [text for text in result.dropped if text.startswith(f"{item.topic}/")]
        if left_out and not connection.has_subscription(item.subscription):
            _, _, name = left_out[0].partition("/")
            raise SubscriptionNotFound(
                f"the subscription {name!r} of {item.topic!r} was dropped while its batch was processed: the batch was "
                f"committed without its acknowledgement, at version {result.version} ({batch})",
                advice="create the subscription behind these offsets, then run again: from its old cursor a run "
                "repeats the batch",
                durable=Durable.MAYBE,
            )


def owned_cursors(scan: Scan, owned: Iterable[Ownership]) -> dict[str, tuple[Ownership, Mapping[int, Cursor]]]:
    """By topic what a run owns and its cursors in the materialized state. Raises ConsumerFenced where one was lost."""
    connection = connection_of(scan.namespace)
    wanted = list(owned)

    def look(_state: State) -> dict[str, tuple[Ownership, Mapping[int, Cursor]]]:
        result: dict[str, tuple[Ownership, Mapping[int, Cursor]]] = {}
        for item in wanted:
            connection.check_consumer(item.subscription, item.epoch)
            result[item.topic] = item, connection.cursors_of(item.subscription)
        return result

    with naming_dropped(connection):
        return connection.follower.look(look)


__all__ = ["Ownership", "check_acknowledged", "naming_dropped", "owned_cursors", "release", "take_over"]
