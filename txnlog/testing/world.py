"""What all simulated clients share: the store, the topics and subscriptions, and what people say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from txnlog.common.limits import AUTO_MERGE_SEGMENTS
from txnlog.testing.history import Recorder
from txnlog.testing.simulated_store import SimulatedStore

ROOT: Final = "simulated://root"
NAMESPACE: Final = "sim"
BACKUPS: Final = "backups"
"""The folder of the namespace's backups, on the same store: its requests meet the same faults."""

SCHEMA: Final = pa.schema([pa.field("value", pa.int64(), nullable=False)])
TOPICS: Final = {"orders": 2, "audit": 1}
"""The lasting topics and their partitions."""

PRODUCERS: Final = ("loader", "twin")
SUBSCRIPTIONS: Final = (("orders", "billing"), ("audit", "billing"))
SHARED: Final = ("orders", "workers")
"""The topic and name of the Shared subscription."""

FAILOVER: Final = ("audit", "standby")
"""The topic and name of the Failover subscription."""

FAILOVER_LEASE_MS: Final = 250
LEASE_MS: Final = 400
MOST_REDELIVERIES: Final = 1
DEAD_LETTERS: Final = "orders-dead"
"""The topic that takes what was redelivered more often; its rows are messages of another topic."""


@dataclass
class World:
    """What all clients of a run know of each other: it stands for the people who run them.

    Attributes:
        shared_store: the store.
        recorder: of the history.
        budget: requests after which clients come to an end.
        trusts_clock: whether clients do without checking their clocks against the store's.
        checkpoint_interval: entries after which a client makes a checkpoint by itself.
        merge_interval: small segments that come together before a client merges them by itself.
        create_attempts: puts of one entry before its outcome is reported as unknown.
        transactions: TxnIDs that were begun, in order.
        temporary: topics that an administrator made and may have dropped.
        subscribed: the subscriptions that consumers were opened on, topic and name, in order.
        closed: epochs of Failover consumers that were closed.
        forced: TxnIDs that an administrator tried to abort though they were prepared.
        dropping: topics whose drop is under way, or of unknown outcome: it drops whatever topic has the name when it is
            decided.
        decisions: what the outside system decided about prepared transactions, by token: what it never heard of is
            aborted by whoever asks first.
        backups: versions whose backup was reported as made.
        restoring: of each restore that was begun and not reported as done its namespace, and the version.
        restored: the same of those that were.
        keyed: the topics that have a key.
        compactors: the ids of writers that compact topics by their keys.
        retainers: the ids of writers that delete messages and let them expire, and acknowledge nothing themselves.
        faultless: True once all faults are off.
        clients: those that did not crash, by name.
    """

    shared_store: SimulatedStore
    recorder: Recorder
    budget: int
    trusts_clock: bool = True
    checkpoint_interval: int = 20
    merge_interval: int = AUTO_MERGE_SEGMENTS
    create_attempts: int = 12
    transactions: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    subscribed: dict[tuple[str, str], None] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    forced: set[str] = field(default_factory=set)
    dropping: set[str] = field(default_factory=set)
    decisions: dict[str, bool] = field(default_factory=dict)
    backups: set[int] = field(default_factory=set)
    restoring: dict[str, int] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)
    keyed: frozenset[str] = frozenset()
    compactors: set[str] = field(default_factory=set)
    retainers: set[str] = field(default_factory=set)
    faultless: bool = False
    clients: dict[str, Any] = field(default_factory=dict)
    next_value: int = 0
    next_topic: int = 0
    next_restored: int = 0

    def values(self, count: int) -> tuple[int, ...]:
        """Numbers that nobody produced before."""
        first = self.next_value
        self.next_value += count
        return tuple(range(first, first + count))

    @property
    def over(self) -> bool:
        """Whether the scheduled part has ended."""
        return self.faultless or self.shared_store.requests >= self.budget


__all__ = [
    "BACKUPS",
    "DEAD_LETTERS",
    "FAILOVER",
    "FAILOVER_LEASE_MS",
    "LEASE_MS",
    "MOST_REDELIVERIES",
    "NAMESPACE",
    "PRODUCERS",
    "ROOT",
    "SCHEMA",
    "SHARED",
    "SUBSCRIPTIONS",
    "TOPICS",
    "World",
]
