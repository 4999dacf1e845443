"""The one who completes what others prepared."""

from __future__ import annotations

from txnlog.testing.actors.ending import complete
from txnlog.testing.client import Client, live


def resolver(client: Client) -> None:
    """Completes what others prepared, as the outside system decided."""
    ns = client.open()

    def step() -> None:
        for item in ns.transactions(state="PREPARED"):
            client.scheduler.label("completed by another client")
            complete(client, ns, str(item.txn_id))
        client.sleep(client.chance.random() * 1_500)

    live(client, step, lambda: None)


__all__ = ["resolver"]
