"""The supervisor of a run with published topics: ``python -m tests.crash.delta.supervisor PLAN``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import txnlog
from tests.crash.delta import verify
from tests.crash.delta.comparing import compare
from tests.crash.delta.plan import KEYED, MODES, PHASES, SCHEMA, TOPICS, DeltaPlan, Progress
from tests.crash.delta.processes import CAST, Publishing, make_passing
from tests.crash.harness.member import Member
from tests.crash.harness.plan import NAMESPACE, Plan
from tests.crash.harness.supervisor import Process, Supervisor, main


class DeltaSupervisor(Supervisor):
    """Kills keepers as often as writers, and knows where they stood."""

    keepers_share = 0.6

    def __init__(self, plan: DeltaPlan) -> None:
        super().__init__(plan)
        self._delta_plan = plan
        self.progress = Publishing.progress = Progress(len(CAST))

    @staticmethod
    def members(plan: Plan) -> Sequence[type[Member]]:
        """Writers, and who publishes, merges and removes."""
        return CAST

    def set_up(self) -> int:
        """The namespace and its topics."""
        with txnlog.open(self._plan.root, NAMESPACE, create=True) as ns:
            for topic, partitions in TOPICS.items():
                key = "key" if topic == KEYED else None
                ns.create_topic(topic, SCHEMA, partitions=partitions, key=key, delta=MODES[topic])
            make_passing(ns)
        return 0

    def checks(self) -> Mapping[str, Callable[[], int]]:
        """After the last answers."""
        return {
            "publishing the rest": lambda: verify.publish_rest(self._delta_plan, self.board),
            "verifying": lambda: verify.main(self._delta_plan),
        }

    def run(self) -> dict[str, object]:
        """With what all processes counted together."""
        report = super().run()
        return {**report, "counts": {**self.counts, **self.progress.counts()}}

    def helpers(self) -> Mapping[str, Callable[[], int]]:
        """The courier, and who compares."""
        return {**super().helpers(), "comparing": partial(compare, self._delta_plan, self.board, self.progress)}

    def figures(self) -> Mapping[str, int]:
        """How many versions were compared so far."""
        compared = self._delta_plan.compared
        return {"compared": len(compared.read_bytes().splitlines()) if compared.exists() else 0}

    def count_end(self, process: Process, status: int) -> None:
        """Also by what it was and where it stood."""
        super().count_end(process, status)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.counts[f"killed {CAST[process.worker].role}"] += 1
            phase = self.progress.phase(process.worker, process.pid)
            if phase in PHASES:
                self.counts[f"killed {PHASES[phase]}"] += 1


if __name__ == "__main__":
    sys.exit(main(DeltaPlan.read(sys.argv[1]), DeltaSupervisor))
