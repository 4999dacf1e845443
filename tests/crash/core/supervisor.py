"""The supervisor of a run over all of the client: ``python -m tests.crash.core.supervisor PLAN``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import txnlog
from tests.crash.core import verify
from tests.crash.core.keepers import Decider, Vacuum
from tests.crash.core.worker import Worker
from tests.crash.core.workload import (
    DEAD_LETTERS,
    LEASE_MS,
    MAX_REDELIVERIES,
    SCHEMA,
    SUBSCRIPTIONS,
    TOPICS,
    WORKERS,
)
from tests.crash.harness.member import Member, ProcessClient
from tests.crash.harness.plan import NAMESPACE, Plan
from tests.crash.harness.supervisor import Supervisor, main


class CoreSupervisor(Supervisor):
    """Workers, and beside them keepers, killed like them."""

    @staticmethod
    def members(plan: Plan) -> Sequence[type[Member]]:
        """So many workers as the plan wants, a vacuum, and who decides about what was prepared."""
        return (*(Worker,) * (plan.workers or WORKERS), Vacuum, Decider)

    def set_up(self) -> int:
        """The namespace, its topics, and the subscriptions of the consumers."""
        plan = self._plan
        client = ProcessClient(plan, "founder", plan.random("founder"))
        with txnlog.open(plan.root, NAMESPACE, create=True, storage_options=plan.options) as ns:
            for topic, partitions in TOPICS.items():
                ns.create_topic(topic, SCHEMA, partitions=partitions)
            for name, kind in SUBSCRIPTIONS.items():
                shared = kind == "shared"
                most, letters = (MAX_REDELIVERIES, DEAD_LETTERS) if shared else (None, None)
                given: dict[str, Any] = {"type": kind, "lease_ms": LEASE_MS, "max_redeliveries": most}
                create = partial(ns.create_subscription, "orders", name, dead_letter_topic=letters, **given)
                asked: dict[str, Any] = {"topic": "orders", "shared": shared, "max_redeliveries": most}
                client.call("create_subscription", create, subscription=name, **asked)
        return 0

    def checks(self) -> Mapping[str, Callable[[], int]]:
        """After the last answers."""
        plan, board = self._plan, self.board
        return {
            "the last vacuum": lambda: verify.clean(plan, board),
            "consuming the rest": lambda: verify.drain(plan, board),
            "verifying": lambda: verify.main(plan),
        }


if __name__ == "__main__":
    sys.exit(main(Plan.read(sys.argv[1]), CoreSupervisor))
