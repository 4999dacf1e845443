"""Consumers of a run: those of the simulation, which acknowledge as their role says."""

from __future__ import annotations

import txnlog
from tests.crash.core.workload import Role
from txnlog.testing.actors.failover import Standby
from txnlog.testing.actors.pipeline import Pipeline
from txnlog.testing.client import Client


class ByRole(Pipeline):
    """A consumer of the orders."""

    role: Role

    @property
    def shared(self) -> bool:
        """Whether others take messages of the subscription at the same time."""
        return self.role.type == "shared"

    def is_cumulative(self) -> bool:
        """Whether its acknowledgements are."""
        return self.role.cumulative


class StandbyByRole(ByRole, Standby):
    """The same on Failover."""


def consumer_of(client: Client, ns: txnlog.Namespace, role: Role) -> ByRole:
    """A consumer that is not open yet."""
    found = (StandbyByRole if role.type == "failover" else ByRole)(client, ns, "orders", role.subscription)
    found.role = role
    return found
