"""Who deletes messages: by offset, and by what the settings of topics say, which may let them expire, too."""

from __future__ import annotations

from typing import Any

from txnlog.maintenance import retention
from txnlog.results import DeletedRecords
from txnlog.testing.actors.optimizer import merge_one
from txnlog.testing.actors.reader import read
from txnlog.testing.client import Client, live
from txnlog.testing.operation_parts import (
    Before,
)
from txnlog.testing.world import TOPICS

_AGES_MS = (200, 1_000, 5_000)
_TTLS_MS = (-1, 200, 1_000, 5_000)
_KEPT = "audit"
"""The topic whose settings keep what subscriptions have not acknowledged."""


def retainer(client: Client) -> None:
    """Deletes messages, merges what is left, and reads what came of it, also as it was before."""
    live(client, Retainer(client).step, lambda: None)


def expirer(client: Client) -> None:
    """Does the same, and lets messages expire that nobody acknowledges."""
    live(client, Expirer(client).step, lambda: None)


class Retainer:
    """Deletes by hand, and by the settings of topics.

    Attributes:
        shares: how much of its work is deleting by hand, and how much that or by settings.
    """

    shares = (0.4, 0.7)

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ns = client.open()

    def step(self) -> None:
        """Delete or merge, and perhaps read."""
        client, ns = self.client, self.ns
        client.sleep(client.chance.random() * 2_500)
        seen = ns._connection.follower.version
        drawn = client.chance.random()
        if drawn < self.shares[0]:
            self.delete()
        elif drawn < self.shares[1]:
            self.retain()
        else:
            merge_one(client, ns)
        if client.hits(0.4):
            read(client, ns, None if client.hits(0.5) else seen)

    def delete(self) -> None:
        """Delete by hand what lies before some offsets."""
        client, ns = self.client, self.ns
        topic = client.chance.choice(list(TOPICS))
        snapshot = ns.snapshot()
        starts, ends = snapshot.start_offsets(topic), snapshot.end_offsets(topic)
        partitions = [p for p in ends if client.hits(0.7)]
        wanted = {p: client.chance.randint(starts[p], max(starts[p], ends[p])) for p in partitions}
        kept = client.hits(0.5)
        client.call(
            "delete_records",
            lambda: ns.delete_records(topic, wanted, allow_unacknowledged=not kept),
            lambda done: {"version": done.version},
            before=[(client.folder(topic), p, offset, kept) for p, offset in wanted.items()],
        )
        client.scheduler.label("messages were deleted by hand")

    def retain(self) -> None:
        """Give a topic other settings, and delete what all settings say."""
        client = self.client
        topic = client.chance.choice(list(TOPICS))
        self.ns.alter_topic(topic, retention_ms=client.chance.choice(_AGES_MS), retain_unacknowledged=topic == _KEPT)
        self.delete_by_settings()

    def delete_by_settings(self) -> tuple[DeletedRecords, ...]:
        """What is done by them."""
        client = self.client
        found: dict[str, Any] = {}

        def call() -> tuple[DeletedRecords, ...]:
            done = retention.retain(self.ns._connection)
            found.update(unbounded=False, before=self._before(done))
            return done

        done = client.call(
            "delete_records",
            call,
            lambda done: {"version": max((item.version or 0 for item in done), default=0) or None},
            lambda: found,
            unbounded=True,
        )
        if any(item.messages for item in done):
            client.scheduler.label("messages were deleted by retention")
        return done

    def _before(self, done: tuple[DeletedRecords, ...]) -> tuple[Before, ...]:
        return tuple(
            Before(self.client.folder(item.topic), p, offset, item.topic == _KEPT)
            for item in done
            for p, offset in item.start_offsets.items()
        )


class Expirer(Retainer):
    """Lets messages expire as well, and deletes less by hand."""

    shares = (0.2, 0.8)

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        client.world.retainers.add(self.ns._connection.appender.writer)

    def retain(self) -> None:
        """Let messages of a topic expire, or no longer; delete what all settings say, perhaps."""
        client = self.client
        topic = client.chance.choice(list(TOPICS))
        self.ns.alter_topic(topic, message_ttl_ms=client.chance.choice(_TTLS_MS))
        if client.hits(0.3):
            super().retain()
        elif any(item.expired_messages for item in self.delete_by_settings()):
            client.scheduler.label("messages expired")


__all__ = ["Expirer", "Retainer", "expirer", "retainer"]
