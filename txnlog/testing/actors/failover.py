"""A consumer of a Failover subscription: one is active, the others wait until it is silent for its lease, or closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txnlog.client.heartbeat_delivery import WAITING
from txnlog.errors import ConsumerFenced
from txnlog.testing.actors.pipeline import Pipeline
from txnlog.testing.client import Client, live
from txnlog.testing.world import FAILOVER, FAILOVER_LEASE_MS

if TYPE_CHECKING:
    from txnlog.api.messages import Messages
    from txnlog.api.namespace import Namespace


class Standby(Pipeline):
    """Waits, and processes while it is active. Its ``open_consumer`` returns when it gets an epoch."""

    patience_ms: Sequence[int] = (0, 100, 700)

    def __init__(
        self, client: Client, ns: Namespace, topic: str = FAILOVER[0], subscription: str = FAILOVER[1]
    ) -> None:
        super().__init__(client, ns, topic, subscription)
        self._opening: int | None = None
        self._waited = self._closed = False
        self._last_ms = 0.0

    def reopen(self) -> None:
        """Become the active consumer, or wait."""
        place = {"topic": self.topic, "subscription": self.subscription}
        token = self.client.world.recorder.invoke(self.client.name, "open_consumer", **place)
        self.epoch, self._waited = None, False
        try:
            self.consumer = self.ns.consumer(self.topic, self.subscription, name=self.client.name)
        except Exception as error:
            self.client.failed(token, "open_consumer", error)
            raise
        self._opening, self._closed = token, False

    def receive(self, most: int, timeout_ms: int = 0) -> Messages:
        """Some messages, or none; it may become active meanwhile."""
        label = self.client.scheduler.label
        before = self.shown_epoch()
        try:
            messages = super().receive(most, timeout_ms)
        except ConsumerFenced:
            paused = self.client.actor.frozen_until_ms > self._last_ms
            label(f"failover: {'fenced during a pause' if paused else 'fenced'}")
            raise
        self._last_ms = self.client.scheduler.now_ms
        if messages._epoch == WAITING:
            self._waited = True
            label("failover: waits")
        elif self._opening is not None:
            self.client.world.recorder.ok(self._opening, epoch=messages._epoch)
            self._opening = None
            self.epoch = messages._epoch
            if self._waited:
                closed = before in self.client.world.closed
                label(f"failover: took over, the other {'was closed' if closed else 'was silent for its lease'}")
        return messages

    def reported_received(self, messages: Messages) -> dict[str, Any]:
        """What a call of receive() returned, with the epoch where it became active in this call."""
        active = self._opening is not None and messages._epoch != WAITING
        return {**super().reported_received(messages), "epoch": messages._epoch if active else None}

    def step(self) -> None:
        """Do what every consumer does; now and then stand still while active, or close for another to take over."""
        if self.epoch is not None and self.client.hits(0.15):
            self.client.actor.pause(self.client.chance.uniform(0, 8 * FAILOVER_LEASE_MS))
        if self.epoch is not None and self.client.hits(0.3):
            self.close()
            self.client.sleep(self.client.chance.uniform(200, 2_000))
        if self._closed:
            self.reopen()
        super().step()

    def close(self) -> None:
        """Nobody need wait for the lease."""
        assert self.consumer is not None, "opened first"
        if self.epoch is not None:
            self.client.world.closed.add(self.epoch)
        self._closed = True
        self.consumer.close()


def failover(client: Client) -> None:
    """One of the consumers of the Failover subscription."""
    role = Standby(client, client.open())
    live(client, role.step, role.reopen)


__all__ = ["Standby", "failover"]
