"""A consumer of a Shared subscription."""

from __future__ import annotations

from txnlog.testing.actors.pipeline import Pipeline
from txnlog.testing.client import Client, live
from txnlog.testing.world import (
    SHARED,
)


def shared(client: Client) -> None:
    """One of the consumers of the Shared subscription."""
    role = Pipeline(client, client.open(), *SHARED)
    live(client, role.step, role.reopen)


__all__ = ["shared"]
