"""Who becomes a subscription's consumer: the entry that makes it so, and what its takeover rule asks for."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from txnlog.common.validation import time_of
from txnlog.engine.effects import STILL_WANTED, Cancelled
from txnlog.errors import ConsumerBusy, OutcomeUnknown, UnsupportedFeature
from txnlog.fold.state import Draft, State, SubscriptionRecord
from txnlog.fold.subscription_records import live_subscription
from txnlog.format.actions import AnyAction, Consumer, Header
from txnlog.log.commands import ONE_EPOCH, Answer, Simple, effect

if TYPE_CHECKING:
    from txnlog.client.connection import Connection

T = TypeVar("T")


def keeps_its_place(record: SubscriptionRecord) -> bool:
    """Whether a consumer keeps its place for a lease, so that it must show signs of life."""
    return record.type == "failover" or (record.type == "exclusive" and record.takeover == "after_lease")


def take_epoch(
    connection: Connection, subscription: int, consumer: str, stream: str | None = None, *, takeover: bool = False
) -> int:
    """Make ``consumer`` the consumer of one subscription. Returns its epoch. See :func:`take_epochs`."""
    return take_epochs(connection, {subscription: None}, consumer, stream, takeover=takeover)[subscription]


def take_epochs(
    connection: Connection,
    wanted: Mapping[int, int | None],
    consumer: str,
    stream: str | None = None,
    *,
    takeover: bool = False,
) -> dict[int, int]:
    """Make ``consumer`` the consumer of these subscriptions, of all or of none: whoever was it is fenced.

    The only way to do so, whoever asks: all that raise an epoch exclude each other in an entry (``ONE_EPOCH``), and the
    subscription's ``takeover`` is asked by every one of them. The name that counts there is the consumer's, but for a
    streaming query it is ``stream``, the query's identity (``txnAppId``, else the query's id): ``consumer`` is then a
    label of one run of it, and a restart of the same query is the same name. ``spark_ext.process`` is such a query as
    well. ``wanted`` gives for each subscription the epoch whose lease was seen to be over, where its consumer keeps its
    place for one. ``takeover`` says that a plain consumer, which has no ``stream``, is meant to end a query. Returns
    their epochs.

    Raises:
        ConsumerBusy: the takeover rule of one does not allow it (yet), somebody else was faster, or it belongs to a
            query, and neither another one nor ``takeover`` is there to end that.
        SubscriptionNotFound: one was dropped.
        UnsupportedFeature: a streaming query on a subscription that is not exclusive, or has leases.
        OutcomeUnknown: ask again. An epoch that this made is nobody's: it keeps no place.
    """

    def decide(draft: Draft, _at: Header) -> list[Consumer]:
        for subscription, seen in wanted.items():
            record = live_subscription(draft, subscription)
            if stream is not None:
                check_streamable(record)
            holder, name = record.stream or record.consumer, stream or consumer
            if stream is None and not takeover:
                check_not_owned(connection, record)
            if record.type != "shared" and holder is not None:
                _check_rule(record, holder, name, seen)
        return [Consumer(subscription, consumer, stream) for subscription in wanted]

    def epochs(draft: Draft, _at: Header) -> dict[int, int]:
        # That of a Shared one stays as it is.
        return {subscription: live_subscription(draft, subscription).epoch for subscription in wanted}

    made: dict[int, int] = {}

    async def take() -> dict[int, int]:
        made.update(await raising_epochs(connection, wanted, decide, epochs))
        try:
            await STILL_WANTED
        except Cancelled:
            abandon(connection, made, consumer)
            raise
        return made

    return connection.appender.run(take, undo=lambda: abandon(connection, made, consumer))


def abandon(connection: Connection, epochs: Mapping[int, int], consumer: str) -> None:
    """The call that raised these epochs was interrupted, and nobody has the consumer: nobody waits for its lease."""
    for subscription, epoch in epochs.items():
        record = connection.follower.state.subscriptions.get(subscription)
        if record is not None and keeps_its_place(record):
            connection.unsettled_epochs.settle(subscription, epoch, abandoned=True)
            end = partial(connection.heartbeats.end, subscription, epoch, consumer)
            connection.runtime.engine.post(partial(_requesting, connection, end))


async def _requesting(connection: Connection, call: Callable[[], None]) -> None:
    await connection.runtime.request(call)


async def raising_epochs(
    connection: Connection,
    subscriptions: Iterable[int],
    decide: Callable[[Draft, Header], Sequence[AnyAction]],
    result: Callable[[Draft, Header], T],
) -> T:
    """Append what raises the epochs of subscriptions; to be awaited.

    If the answer is lost, their epoch is nobody's: ``_settle``.
    """
    decided: list[int] = []

    def noted(draft: Draft, at: Header) -> Sequence[AnyAction]:
        decided[:] = [at.version]
        return decide(draft, at)

    try:
        return await connection.appender.carry_out(Simple(noted, result, ONE_EPOCH))
    except OutcomeUnknown:
        for subscription in subscriptions:
            connection.unsettled_epochs.note_unknown(subscription, decided[0])
        raise


def check_streamable(record: SubscriptionRecord) -> None:
    """Raise UnsupportedFeature unless a streaming query can be the subscription's consumer."""
    if record.type != "exclusive" or record.takeover == "after_lease":
        kind = record.type if record.type != "exclusive" else "one with leases (after_lease)"
        raise UnsupportedFeature(
            f"the subscription {record.name!r} is {kind}: a stream takes whole ranges, and shows no sign of life",
            advice='use an exclusive subscription with takeover="any" or takeover="same_name" for the stream',
        )


def _check_rule(record: SubscriptionRecord, holder: str, name: str, seen: int | None) -> None:
    if record.takeover == "same_name":
        if holder != name:
            owner = "consumer" if record.stream is None else "query"
            raise ConsumerBusy(
                f"the subscription {record.name!r} belongs to the {owner} {holder!r}, not to {name!r}",
                advice="its takeover rule is same_name, and waiting changes nothing: open a consumer with that name; "
                "start a query with that txnAppId, or else with the checkpoint that it began with, and "
                "spark_ext.process with that query_name",
            )
    elif keeps_its_place(record) and seen != record.epoch:
        raise ConsumerBusy(
            f"the subscription {record.name!r} belongs to the consumer {holder!r}, whose lease lasts",
            advice=f"close that consumer, or try again until it was silent for {record.lease_ms:,} ms",
        )


def check_not_owned(connection: Connection, record: SubscriptionRecord) -> None:
    """Raise ConsumerBusy where a subscription belongs to a query, which a plain consumer would end."""
    if record.stream is None:
        return
    since = owned_since(connection, record)
    raise ConsumerBusy(
        f"the subscription {record.name!r} belongs to the query {record.stream!r} (a stream of Spark, or "
        f"spark_ext.process){'' if since is None else f' since {since.isoformat()}'}, which a consumer would end",
        advice="to look at the messages read the topic, or use a subscription of your own; to end the query, and move "
        "or acknowledge in its place, pass takeover=True",
    )


def owned_since(connection: Connection, record: SubscriptionRecord) -> datetime.datetime | None:
    """When its query became a subscription's consumer: the time of the entry. None without a query.

    One request, or none: the log keeps its entries.
    """
    if record.stream is None:
        return None
    return time_of(connection.follower.log.entry(record.epoch).header.timestamp_ms)


def release_epochs(connection: Connection, epochs: Mapping[int, int]) -> None:
    """A query ended by itself: from here on its subscriptions are a plain consumer's, so that others may open them.

    Its name stays, which ``same_name`` asks for. Those that somebody else has by now, or dropped, are left alone.
    """

    def decide(draft: Draft, _at: Header) -> list[Consumer] | Answer[None]:
        found = [draft.subscriptions.get(subscription) for subscription in epochs]
        return [
            Consumer(record.id, record.stream)
            for record in found
            if record is not None and record.epoch == epochs[record.id] and record.stream is not None
        ] or Answer(None)

    connection.appender.call(Simple(decide, lambda _draft, _at: None, ONE_EPOCH))


def try_to_take(
    connection: Connection,
    subscriptions: Sequence[int],
    consumer: str,
    stream: str | None = None,
    *,
    takeover: bool = False,
) -> dict[int, int]:
    """Make ``consumer`` the consumer of all these subscriptions if their rules allow it by now: :func:`take_epochs`.

    Looks at the signs of life of the consumers before. One call can only find that one does not change; so whoever is
    refused calls again, and after a lease without a change it is over.
    """
    if not subscriptions:
        return {}
    for subscription in subscriptions:
        _settle(connection, subscription)

    def look(state: State) -> list[SubscriptionRecord]:
        draft = state.draft()
        return [live_subscription(draft, subscription) for subscription in subscriptions]

    records = connection.follower.look(look)
    seen = check_all_free(connection, records, consumer, may_end_query=takeover or stream is not None)
    epochs = take_epochs(connection, seen, consumer, stream, takeover=takeover)
    try:
        for record in filter(keeps_its_place, records):
            connection.heartbeats.beat(record.id, epochs[record.id], consumer)
            if record.consumer is not None:
                connection.heartbeats.forget(record.id, record.epoch)
    except BaseException:
        abandon(connection, epochs, consumer)
        raise
    return epochs


def check_free(connection: Connection, record: SubscriptionRecord, consumer: str, *, may_end_query: bool) -> int | None:
    """Raise ConsumerBusy where ``consumer`` may not take over, as far as this client knows. Writes nothing.

    Returns the epoch whose lease is over, if it was for a lease.
    """
    if record.type == "shared" or record.consumer is None:
        return None
    if not may_end_query:
        check_not_owned(connection, record)
    if not keeps_its_place(record) or record.takeover == "same_name":
        _check_rule(record, record.stream or record.consumer, consumer, None)
        return None
    if not _lease_is_over(connection, record):
        _check_rule(record, record.consumer, consumer, None)
    return record.epoch


def _lease_is_over(connection: Connection, record: SubscriptionRecord) -> bool:
    return connection.unsettled_epochs.is_abandoned(record.id, record.epoch) or connection.heartbeats.lease_is_over(
        record.id, record.epoch, record.lease_ms
    )


def check_all_free(
    connection: Connection, records: Iterable[SubscriptionRecord], consumer: str, *, may_end_query: bool
) -> dict[int, int | None]:
    """``check_free`` for several: all are checked before one is refused, so that their leases run out together."""
    seen: dict[int, int | None] = {}
    busy: ConsumerBusy | None = None
    for record in records:
        try:
            seen[record.id] = check_free(connection, record, consumer, may_end_query=may_end_query)
        except ConsumerBusy as error:
            busy = busy or error
    if busy is not None:
        raise busy
    return seen


def _settle(connection: Connection, subscription: int) -> None:
    """Find out whether a takeover or seek whose outcome was unknown is in the log: its epoch has no consumer."""
    epoch = connection.unsettled_epochs.unknown(subscription)
    if epoch is None:
        return
    connection.appender.call(effect(lambda _draft, _at: Answer(None, settled=True)))  # the appender settles it first
    own = connection.follower.log.entry(epoch).header.writer == connection.appender.writer
    connection.unsettled_epochs.settle(subscription, epoch, abandoned=own)


__all__ = [
    "abandon",
    "check_all_free",
    "check_not_owned",
    "check_streamable",
    "keeps_its_place",
    "owned_since",
    "raising_epochs",
    "release_epochs",
    "take_epoch",
    "take_epochs",
    "try_to_take",
]
