"""A producer among many: it commits without a pause, so that writers race, and propose."""

from __future__ import annotations

from txnlog.testing.actors.writer import Writer
from txnlog.testing.client import Client, live
from txnlog.testing.world import PRODUCERS


def crowd(client: Client) -> None:
    """A producer without a name or with one of its own, mostly: zombies would be fenced before they race."""
    own = f"of {client.actor.name}"
    role = Writer(client, client.chance.choice((None, None, own, own, PRODUCERS[0])), pauses=0.05)
    live(client, role.step, role.reopen)


__all__ = ["crowd"]
