"""Who deletes messages: by offset, and by what the settings of topics say."""

from __future__ import annotations

from typing import Any

from txnlog.maintenance import retention
from txnlog.results import DeletedRecords
from txnlog.testing.actors.reader import read
from txnlog.testing.client import Client, live
from txnlog.testing.operations import Before
from txnlog.testing.world import TOPICS

_AGES_MS = (200, 1_000, 5_000)
_TARGET_BYTES = 1 << 20
_KEPT = "audit"
"""The topic whose settings keep what subscriptions have not acknowledged."""


def retainer(client: Client) -> None:
    """Deletes messages, merges what is left, and reads what came of it, also as it was before."""
    ns = client.open()

    def before(done: tuple[DeletedRecords, ...]) -> tuple[Before, ...]:
        return tuple(
            Before(client.folder(item.topic), p, offset, item.topic == _KEPT)
            for item in done
            for p, offset in item.start_offsets.items()
        )

    def delete() -> None:
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

    def retain() -> None:
        topic = client.chance.choice(list(TOPICS))
        ns.alter_topic(topic, retention_ms=client.chance.choice(_AGES_MS), retain_unacknowledged=topic == _KEPT)
        found: dict[str, Any] = {}

        def call() -> tuple[DeletedRecords, ...]:
            done = retention.retain(ns._connection)
            found.update(unbounded=False, before=before(done))
            return done

        done = client.call(
            "delete_records",
            call,
            lambda done: {"version": max((item.version or 0 for item in done), default=0) or None},
            lambda: found,
            unbounded=True,
        )
        if done:
            client.scheduler.label("messages were deleted by retention")

    def step() -> None:
        client.sleep(client.chance.random() * 2_500)
        seen = ns._connection.follower.version
        drawn = client.chance.random()
        if drawn < 0.4:
            delete()
        elif drawn < 0.7:
            retain()
        else:
            topic = client.chance.choice(list(TOPICS))
            client.call("optimize", lambda: ns.optimize(topic, _TARGET_BYTES), topic=topic)
        if client.hits(0.4):
            read(client, ns, None if client.hits(0.5) else seen)

    live(client, step, lambda: None)


__all__ = ["retainer"]
