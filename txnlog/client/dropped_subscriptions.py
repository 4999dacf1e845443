"""Dropped subscriptions, which the materialized state no longer has: their names, and the error about one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from txnlog.common.lru import Recent
from txnlog.errors import Durable, SubscriptionNotFound, TxnLogError
from txnlog.fold.subscription_records import unknown_subscription
from txnlog.fold.topics import topic_named
from txnlog.format.actions import Subscription
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.log.follower import Follower

_CONSUMER: Final = Words("consumer with ", Call("consumer", "..."))

_TEXTS: Final = 1_024
"""Texts of dropped subscriptions that are kept: the same answer twice costs one read."""


class DroppedSubscriptions:
    """The dropped subscriptions of a namespace, as far as somebody asked for them: each is read from the log once."""

    def __init__(self) -> None:
        self._texts: Recent[int, str] = Recent(_TEXTS)

    def text(self, follower: Follower, number: int) -> str:
        """The text of a subscription that was dropped: the entry that created it has its name.

        Its number where that entry cannot be read: the commit that is reported stands. What was reported once stays.
        """
        text = self._texts.get(number)
        if text is None:
            text = str(number)
            with contextlib.suppress(TxnLogError):
                for action in follower.log.entry(number).actions:
                    if isinstance(action, Subscription):
                        text = f"{follower.state.topics[action.topic].name}/{action.name}"
            self._texts.put(number, text)
        return text

    def error(self, follower: Follower, number: int) -> SubscriptionNotFound:
        """The error for a subscription that was dropped, by itself or with its topic: its name and the way out."""
        topic, _, name = self.text(follower, number).partition("/")
        if not name:
            return unknown_subscription(number)
        if follower.look(lambda state: topic_named(state, topic)) is not None:
            return SubscriptionNotFound(
                f"the subscription {name!r} of {topic!r} was dropped",
                advice=Words("open another ", _CONSUMER, ": it creates the subscription again"),
                durable=Durable.NOTHING,
            )
        return SubscriptionNotFound(
            f"the topic {topic!r} was dropped, and its subscription {name!r} with it",
            advice=Words("make the topic again with ", Call("create_topic", "..."), ", then open another ", _CONSUMER),
            durable=Durable.NOTHING,
        )


__all__ = ["DroppedSubscriptions"]
