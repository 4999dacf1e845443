"""A maker of checkpoints."""

from __future__ import annotations

from txnlog.testing.client import Client, live


def checkpointer(client: Client) -> None:
    """Makes checkpoints, more often than anybody would."""
    ns = client.open()

    def step() -> None:
        version = ns.checkpoint()
        client.scheduler.label("a checkpoint was made")
        client.scheduler.trace(client.actor, "checkpoint", version)
        client.sleep(client.chance.random() * 5_000)

    live(client, step, lambda: None)


__all__ = ["checkpointer"]
