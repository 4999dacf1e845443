"""Who becomes a subscription's consumer: the entry that makes it so, and what its takeover rule asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.acknowledgements import live_subscription
from txnlog.actions import Consumer, Header
from txnlog.commands import ONE_EPOCH, Simple
from txnlog.errors import ConsumerBusy, UnsupportedFeature
from txnlog.state import Draft, SubscriptionRecord

if TYPE_CHECKING:
    from txnlog.connection import Connection


def keeps_its_place(record: SubscriptionRecord) -> bool:
    """Whether a consumer keeps its place for a lease, so that it must show signs of life."""
    return record.type == "failover" or (record.type == "exclusive" and record.takeover == "after_lease")


def take_epoch(
    connection: Connection, subscription: int, consumer: str, stream: str | None = None, *, seen: int | None = None
) -> int:
    """Make ``consumer`` the subscription's consumer: whoever was it is fenced. Returns its epoch.

    The only way to do so, whoever asks: all that raise an epoch exclude each other in an entry (``ONE_EPOCH``), and the
    subscription's ``takeover`` is asked by every one of them. The name that counts there is the consumer's, but for a
    streaming query it is ``stream``, the query's identity (``txnAppId``, else the query's id): ``consumer`` is then a
    label of one run of it, and a restart of the same query is the same name. ``seen`` is the epoch whose lease was seen
    to be over, where the subscription's consumer keeps its place for one.

    Raises:
        ConsumerBusy: the takeover rule does not allow it (yet), or somebody else was faster.
        SubscriptionNotFound: it was dropped.
        UnsupportedFeature: a streaming query on a subscription that is not exclusive, or has leases.
    """

    def decide(draft: Draft, _at: Header) -> list[Consumer]:
        record = live_subscription(draft, subscription)
        if stream is not None:
            check_streamable(record)
        holder, name = record.stream or record.consumer, stream or consumer
        if record.type != "shared" and holder is not None:
            _check_rule(record, holder, name, seen)
        return [Consumer(subscription, consumer, stream)]

    def epoch(draft: Draft, _at: Header) -> int:
        return live_subscription(draft, subscription).epoch  # that of a Shared one stays as it is

    return connection.appender.call(Simple(decide, epoch, ONE_EPOCH))


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
            raise ConsumerBusy(
                f"the subscription {record.name!r} belongs to the consumer {holder!r}, not to {name!r}",
                advice="its takeover rule is same_name: open it under that name; that of a query is its txnAppId",
            )
    elif keeps_its_place(record) and seen != record.epoch:
        raise ConsumerBusy(
            f"the subscription {record.name!r} belongs to the consumer {holder!r}, whose lease lasts",
            advice=f"close that consumer, or try again until it was silent for {record.lease_ms:,} ms",
        )


def try_to_take(connection: Connection, subscription: int, consumer: str) -> int:
    """Make ``consumer`` the subscription's consumer if its rule allows it by now; see :func:`take_epoch`.

    Looks at the sign of life of the consumer before. One call can only find that it does not change; so whoever is
    refused calls again, and after a lease without a change it is over.
    """
    with connection.follower.lock:
        record = live_subscription(connection.follower.state.draft(), subscription)
    if not keeps_its_place(record) or record.consumer is None or record.takeover == "same_name":
        epoch = take_epoch(connection, subscription, consumer)
    else:
        if not connection.heartbeats.lease_is_over(subscription, record.epoch, record.lease_ms):
            _check_rule(record, record.consumer, consumer, None)
        epoch = take_epoch(connection, subscription, consumer, seen=record.epoch)
    if keeps_its_place(record):
        connection.heartbeats.beat(subscription, epoch, consumer, record.lease_ms)
        if record.consumer is not None:
            connection.heartbeats.forget(subscription, record.epoch)
    return epoch


__all__ = ["check_streamable", "keeps_its_place", "take_epoch", "try_to_take"]
