"""One topic of a consumer that keeps its place for a lease: Exclusive with ``after_lease``, and Failover."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from txnlog.client import subscription_ownership
from txnlog.client.delivery import Received, Receiving, TopicDelivery
from txnlog.common.limits import BEATS_PER_LEASE
from txnlog.engine.effects import WRITTEN
from txnlog.errors import ConsumerBusy, InvalidTransactionState
from txnlog.fold.state import Draft, SubscriptionRecord, TopicRecord
from txnlog.format.actions import AnyAction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from txnlog.client.connection import Connection

WAITING: Final = -1
"""The epoch of a consumer that is not active: no entry has it."""


class HeartbeatTopicDelivery(TopicDelivery):
    """One topic of a consumer of an Exclusive subscription with ``takeover="after_lease"``; base of Failover.

    It shows signs of life at its calls, and nobody takes over as long as these go on.
    """

    async def look(self, *, is_new: bool = False) -> None:  # noqa: ARG002 - as of TopicDelivery
        """Raise where another took over; else show a sign of life."""
        record = self.check()
        heartbeats = self._connection.heartbeats
        if heartbeats.is_due(self.subscription, self.epoch, record.lease_ms):
            beat = partial(heartbeats.beat, self.subscription, self.epoch, self._consumer)
            await self._connection.runtime.request(beat)

    async def sought(self, epoch: int) -> None:
        """A seek of this consumer raised the epoch: all begins anew, also the signs of life."""
        before = self.epoch
        await super().sought(epoch)
        forget = partial(self._connection.heartbeats.forget, self.subscription, before)
        await self._connection.runtime.request(forget)

    async def close(self) -> None:
        """Nobody need wait for the lease. Once the namespace is closed it ends by itself."""
        with contextlib.suppress(InvalidTransactionState):
            record = self._connection.follower.state.subscriptions.get(self.subscription)
            if record is not None and record.epoch == self.epoch:
                end = partial(self._connection.heartbeats.end, self.subscription, self.epoch, self._consumer)
                await self._connection.runtime.request(end)


class FailoverTopicDelivery(HeartbeatTopicDelivery):
    """One topic of a Failover consumer: as long as it waits for the active one, it receives nothing."""

    def __init__(
        self, connection: Connection, consumer: str, topic: TopicRecord, subscription: int, epoch: int
    ) -> None:
        super().__init__(connection, consumer, topic, subscription, epoch)
        self._looked_ms = 0.0

    @property
    def active(self) -> bool:
        """Whether this is, or was, the active consumer."""
        return self.epoch != WAITING

    def check(self) -> SubscriptionRecord:
        """The subscription. Raises ConsumerFenced for who was active, SubscriptionNotFound where it was dropped."""
        return super().check() if self.active else self.record()

    async def look(self, *, is_new: bool = False) -> None:
        """Active: raise where another took over, else show a sign of life. Waiting: take over where that may be.

        Who waits looks at every call, and while that lasts when its heartbeat would be due.
        """
        if self.active:
            await super().look()
            return
        record = self.check()
        now_ms = self._connection.runtime.elapsed_ms()
        if is_new or now_ms - self._looked_ms >= record.lease_ms / BEATS_PER_LEASE:
            self._looked_ms = now_ms
            with contextlib.suppress(ConsumerBusy):
                take = partial(
                    subscription_ownership.try_to_take, self._connection, [self.subscription], self._consumer
                )
                taken = await self._connection.runtime.job(take)
                await WRITTEN
                self._ledger = self._connection.ledger(self.subscription, taken[self.subscription])

    async def receive(self, call: Receiving) -> Received | None:
        """The next messages, None where there are none or another consumer is active."""
        return await super().receive(call) if self.active else None

    def seek_actions(self, draft: Draft, positions: Mapping[int, int]) -> list[AnyAction]:
        """What moves the cursors. Raises ConsumerBusy for who waits."""
        if not self.active:
            raise ConsumerBusy(
                f"another consumer of {self.topic.name!r} is active",
                advice="seek there, or wait until this one is active",
            )
        return super().seek_actions(draft, positions)


__all__ = ["WAITING", "FailoverTopicDelivery", "HeartbeatTopicDelivery"]
