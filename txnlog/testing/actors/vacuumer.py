"""A vacuum, and the night before it."""

from __future__ import annotations

from typing import Final

from txnlog.common.format_limits import MIN_GRACE_MS
from txnlog.testing.actors.reader import read
from txnlog.testing.client import Client, live

NIGHT_MS: Final = (MIN_GRACE_MS, 2 * MIN_GRACE_MS)
"""How long everybody stands still before a vacuum: some blocks of numbers are silent for its grace then."""


def stand_still(client: Client) -> None:
    """Let a night pass for everybody."""
    client.scheduler.trace(client.actor, "night")
    client.scheduler.pass_over(client.chance.uniform(*NIGHT_MS))
    for other in client.world.clients.values():
        if other is not client and client.hits(0.5):
            other.actor.pause(client.chance.uniform(0, 3_000))  # it sleeps until the vacuum is over


def vacuumer(client: Client) -> None:
    """Lets time stand still for everybody else, then deletes what nobody needs any more."""
    ns = client.open()

    def step() -> None:
        client.sleep(client.chance.random() * 1_500)
        if client.hits(0.7):
            stand_still(client)
        result = client.call(
            "vacuum",
            lambda: ns.vacuum(retain_ms=0, allow_short_retention=True, grace_ms=MIN_GRACE_MS),
            lambda done: {"oldest_readable": done.oldest_readable},
        )
        if result.closed_blocks:
            client.scheduler.label("a vacuum closed blocks")
        if result.unnamed_files:
            client.scheduler.label("a vacuum deleted files that nobody named")
        if result.aborted_files:
            client.scheduler.label("a vacuum deleted files of aborted transactions")
        if result.replaced_files:
            client.scheduler.label("a vacuum deleted files of merged segments")
        oldest = result.oldest_readable
        if oldest:
            read(client, ns, oldest)  # the oldest of those that it says can be read
            client.scheduler.label("read at the oldest readable version")
            if client.hits(0.8):
                read(client, ns, oldest - 1)

    live(client, step, lambda: None)


__all__ = ["NIGHT_MS", "stand_still", "vacuumer"]
