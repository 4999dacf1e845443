"""An optimizer, who also gives topics more columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from txnlog.testing.actors.reader import read
from txnlog.testing.client import Client, live
from txnlog.testing.world import TOPICS

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

TARGETS = (2_500, 10_000, 1 << 20)
"""Bytes of a file: two small segments, some, or all of them become one."""


def merge_one(client: Client, ns: Namespace) -> None:
    """Merge all small segments of some topic: what those do besides who have another task."""
    topic = client.chance.choice(list(TOPICS))
    client.call("optimize", lambda: ns.optimize(topic, TARGETS[-1]), topic=topic)


def optimizer(client: Client) -> None:
    """Merges segments, a part of them or all, and reads what came of it, also as it was before."""
    ns = client.open()

    def alter(topic: str) -> None:
        column = f"more{client.chance.randint(0, 2)}"
        client.call(
            "alter_topic",
            lambda: ns.alter_topic(topic, [(column, pa.int64())]),
            topic=topic,
            column=column,
        )
        client.scheduler.label("a topic was altered")

    def step() -> None:
        client.sleep(client.chance.random() * 2_500)
        topic = client.chance.choice([*TOPICS, *client.world.temporary[-1:]])
        if client.hits(0.25):
            alter(topic)
            return
        target = client.chance.choice(TARGETS)
        most = 0 if client.hits(0.3) else None
        before = ns._connection.follower.version
        done = client.call("optimize", lambda: ns.optimize(topic, target, max_bytes=most), topic=topic)
        client.scheduler.trace(client.actor, "optimized", done)
        if done.entries:
            client.scheduler.label("segments were merged")
        if done.lost_races:
            client.scheduler.label("an optimize planned again")
        if done.entries and client.hits(0.5):
            read(client, ns, None if client.hits(0.5) else before)

    live(client, step, lambda: None)


__all__ = ["TARGETS", "merge_one", "optimizer"]
