"""A reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txnlog.testing.client import Client, live, rows_of, told_outcome

if TYPE_CHECKING:
    from txnlog.snapshot import Snapshot


def reader(client: Client) -> None:
    """Reads everything, at the newest version or at an older one."""
    ns = client.open(mode="r") if client.hits(0.5) else client.open()

    def read_all(version: int | None) -> tuple[Snapshot, Any]:
        snapshot = ns.snapshot(version)
        return snapshot, rows_of(ns, snapshot)

    def step() -> None:
        version = client.chance.randint(0, ns.follower.version) if client.hits(0.3) else None
        client.call(
            "read",
            lambda: read_all(version),
            lambda found: {"version": found[0].version, "rows": found[1]},
            version=version,
        )
        if client.hits(0.2) and client.world.transactions:
            txn = client.chance.choice(client.world.transactions)
            client.call("outcome", lambda: ns.transaction(txn), told_outcome, txn=txn)
        client.sleep(client.chance.random() * 2_000)

    live(client, step, lambda: None)


__all__ = ["reader"]
