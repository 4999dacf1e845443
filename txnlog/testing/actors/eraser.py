"""Who takes single messages out of topics, for ever: their offsets are holes from then on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.format.features import HOLES
from txnlog.testing.actors.optimizer import merge_one
from txnlog.testing.actors.reader import read
from txnlog.testing.client import Client, live
from txnlog.testing.world import TOPICS

_MOST = 4


def eraser(client: Client) -> None:
    """Erases some messages by their values, merges what is left, and reads what came of it, also as it was before."""
    ns = client.open()

    def erase() -> None:
        topic = client.chance.choice(list(TOPICS))
        snapshot = ns.snapshot()
        there = snapshot.read(topic).column("value").to_pylist()
        if not there:
            return
        first = client.chance.randint(0, len(there) - 1)
        neighbours = there[first : first + client.chance.randint(1, _MOST)]
        values = sorted({*neighbours, client.chance.choice(there)})
        done = client.call(
            "erase",
            lambda: ns.erase(topic, pc.field("value").isin(pa.array(values, pa.int64()))),
            lambda done: {"version": done.version or ns._connection.follower.version},
            topic=client.folder(topic),
            values=values,
            upto=snapshot.version,
        )
        if done.erased_messages:
            client.scheduler.label("messages were erased")

    def step() -> None:
        client.sleep(client.chance.random() * 2_500)
        ns.enable(HOLES)
        seen = ns._connection.follower.version
        if client.hits(0.7):
            erase()
        else:
            merge_one(client, ns)
        if client.hits(0.4):
            read(client, ns, None if client.hits(0.5) else seen)

    live(client, step, lambda: None)


__all__ = ["eraser"]
