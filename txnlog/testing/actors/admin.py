"""An administrator."""

from __future__ import annotations

from txnlog.testing.actors.ending import ask
from txnlog.testing.client import Client, live
from txnlog.testing.world import (
    PRODUCERS,
    SCHEMA,
)


def admin(client: Client) -> None:
    """Aborts what others do, fences their names, makes and drops topics."""
    ns = client.open()
    world = client.world

    def fence() -> None:
        name = client.chance.choice(PRODUCERS)
        if name in ns.follower.state.producers:
            client.call("open_producer", lambda: ns.fence(name), lambda epoch: {"epoch": epoch}, name=name)

    def make_topic() -> None:
        known = [name for name in world.temporary if name not in world.dropping]
        if known and client.hits(0.5):
            name = client.chance.choice(known)  # perhaps one that was dropped: another incarnation
        else:
            world.next_topic += 1
            name = f"extra{world.next_topic}"
        ns.create_topic(name, schema=SCHEMA, partitions=1, if_not_exists=True)
        world.temporary.append(name)

    def drop_topic() -> None:
        name = world.temporary[-1]
        folder = ns.topic_handle(name).record.folder
        if name not in world.dropping:
            world.dropping.add(name)
            client.call("drop_topic", lambda: ns.drop_topic(name), topic=folder)
            world.dropping.discard(name)

    def step() -> None:
        drawn = client.chance.random()
        if drawn < 0.5 and world.transactions:
            ask(client, ns, client.chance.choice(world.transactions[-6:]))
        elif drawn < 0.65:
            fence()
        elif drawn < 0.8:
            make_topic()
        elif world.temporary:
            drop_topic()
        client.sleep(client.chance.random() * 1_000)

    live(client, step, lambda: None)


__all__ = ["admin"]
