"""The topics of a run over all of the client, and who consumes what."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA = pa.schema([pa.field("value", pa.int64(), False), pa.field("padding", pa.binary())])
"""Of every topic but the dead letters'."""

TOPICS = {"orders": 2, "audit": 1, "derived": 2}
"""Topics by number of partitions: orders are consumed, and what comes of them is derived."""

WORKERS = 8
DEAD_LETTERS = "orders-dead"
MAX_REDELIVERIES = 3
LEASE_MS = 1_000


@dataclass(frozen=True)
class Role:
    """What a worker consumes, and how."""

    subscription: str
    type: str
    cumulative: bool = False


ROLES = (
    Role("exclusive-0", "exclusive", cumulative=True),
    Role("exclusive-1", "exclusive"),
    Role("failover", "failover"),
    Role("failover", "failover"),
    Role("shared", "shared"),
    Role("shared", "shared"),
    Role("shared", "shared"),
)
"""By worker; those that have none only produce. The two on Failover take their place from each other."""

SUBSCRIPTIONS = {role.subscription: role.type for role in ROLES}
