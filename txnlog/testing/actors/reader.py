"""A reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.testing.client import Client, Rows, live, reported_outcome, rows_of

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.snapshot import Snapshot


def read(client: Client, ns: Namespace, version: int | None, pause_ms: float = 0) -> None:
    """Read everything at a version, or at the newest one; perhaps long after its snapshot was made."""

    def read_all() -> tuple[Snapshot, Rows]:
        snapshot = ns.snapshot(version)
        if pause_ms:
            client.sleep(pause_ms)
        return snapshot, rows_of(ns, snapshot)

    client.call("read", read_all, lambda found: {"version": found[0].version, "rows": found[1]}, version=version)


def reader(client: Client) -> None:
    """Reads everything, at the newest version or at an older one."""
    ns = client.open(mode="r") if client.hits(0.5) else client.open()

    def step() -> None:
        version = client.chance.randint(0, ns._connection.follower.version) if client.hits(0.3) else None
        read(client, ns, version, client.chance.random() * 3_000 if client.hits(0.1) else 0)
        if client.hits(0.2) and client.world.transactions:
            txn = client.chance.choice(client.world.transactions)
            client.call("outcome", lambda: ns.transaction(txn), reported_outcome, txn=txn)
        client.sleep(client.chance.random() * 2_000)

    live(client, step, lambda: None)


__all__ = ["read", "reader"]
