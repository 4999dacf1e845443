"""A producer among many: it commits without a pause, so that writers race, and propose."""

from __future__ import annotations

from txnlog.testing.actors.writer import Writer
from txnlog.testing.client import Client, live
from txnlog.testing.world import PRODUCERS


def crowd(client: Client) -> None:
    """A producer without a name or with one of its own, mostly: zombies would be fenced before they race."""
    own = f"of {client.actor.name}"
    role = Writer(client, client.chance.choice((None, own, own, own, PRODUCERS[0])), pauses=0.05)

    def step() -> None:
        if role.name is not None and client.hits(0.3):
            role.produce_sequenced()  # what is sent twice shows whether sequences are proposed, too
        else:
            role.step()

    live(client, step, role.reopen)


__all__ = ["crowd"]
