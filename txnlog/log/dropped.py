"""What was dropped while a transaction had work for it, and what was made again under its name since. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from txnlog.errors import Durable, TopicNotFound, TransactionConflict
from txnlog.fold.state import Draft
from txnlog.fold.topics import topic_named
from txnlog.format.actions import Acknowledgement


class SubscriptionPlace(NamedTuple):
    """Where a subscription is found: the id of its topic, and its name."""

    topic: int
    name: str


def is_dropped(draft: Draft, number: int) -> bool:
    """Whether a topic takes no rows any more, or never did."""
    topic = draft.topics.get(number)
    return topic is None or topic.dropped


def was_dropped(draft: Draft, number: int, advice: str) -> TopicNotFound:
    """The error for rows of a dropped topic."""
    topic = draft.topics.get(number)
    name = topic.name if topic is not None else str(number)
    return TopicNotFound(f"the topic {name!r} was dropped", advice=advice, durable=Durable.NOTHING)


def refuse_made_again(draft: Draft, topics: Iterable[int]) -> None:
    """Rows that the log never took, of a dropped topic whose name another one has, may have been meant for that one.

    Nobody knows: the client may hear only now of what was done long before the transaction began.
    """
    for number in topics:
        topic = draft.topics.get(number)
        if topic is not None and topic.dropped and topic_named(draft, topic.name) is not None:
            raise TransactionConflict(
                f"the topic {topic.name!r} was dropped and created again before the log took the transaction's rows",
                advice="begin a new transaction: what it produces goes to the topic that has the name now",
            )


def refuse_subscribed_again(
    draft: Draft, txn: int, names: Mapping[int, SubscriptionPlace], acknowledgements: Iterable[Acknowledgement]
) -> None:
    """Without its acknowledgement, a transaction's messages are delivered again by the subscription that has the name.

    Whether the log has the acknowledgement already makes no difference: it went with the subscription of before.
    """
    if not names:
        return
    known = draft.transactions.get(txn)
    held = () if known is None else known.held
    for number in dict.fromkeys([*[number for number, _ in held], *[item.subscription for item in acknowledgements]]):
        place = names.get(number)
        if place is None or draft.subscriptions.get(number) is not None:
            continue
        if draft.subscription_names.get((place.topic, place.name)) is not None:
            topic = draft.topics.get(place.topic)
            assert topic is not None, "topics are never forgotten"
            raise TransactionConflict(
                f"the subscription {place.name!r} of {topic.name!r} was dropped and created again while the "
                "transaction had acknowledgements of it: the new one delivers these messages",
                advice="abort the transaction, open another consumer, and process what it receives",
            )


__all__ = ["SubscriptionPlace", "is_dropped", "refuse_made_again", "refuse_subscribed_again", "was_dropped"]
