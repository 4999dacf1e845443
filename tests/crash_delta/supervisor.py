"""Starts, kills and stops the processes of a run with published topics, and lets others look at what is left.

Run as ``python -m tests.crash_delta.supervisor PLAN``; how, ``tests.crash.supervisor`` says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once here instead of in every process

import txnlog
from tests.crash import supervisor
from tests.crash import verify as outcomes
from tests.crash.plan import NAMESPACE
from tests.crash_delta import verify
from tests.crash_delta.comparing import compare
from tests.crash_delta.plan import KEYED, MODES, PHASES, SCHEMA, TOPICS, DeltaPlan, Progress
from tests.crash_delta.processes import CAST, Publishing, make_passing


class DeltaSupervisor(supervisor.Supervisor):
    """Kills keepers as often as writers, and knows where they stood."""

    keepers_share = 0.6

    def __init__(self, plan: DeltaPlan) -> None:
        super().__init__(plan, CAST)
        self._delta_plan = plan
        self.progress = Publishing.progress = Progress(len(CAST))

    def helpers(self) -> Mapping[str, Callable[[], int]]:
        """The courier, and who compares."""
        return {**super().helpers(), "comparing": partial(compare, self._delta_plan, self.board, self.progress)}

    def figures(self) -> Mapping[str, int]:
        """How many versions were compared so far."""
        compared = self._delta_plan.compared
        return {"compared": len(compared.read_bytes().splitlines()) if compared.exists() else 0}

    def count_end(self, process: supervisor.Process, status: int) -> None:
        """Also by what it was and where it stood."""
        super().count_end(process, status)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.counts[f"killed {CAST[process.worker].role}"] += 1
            phase = self.progress.phase(process.worker, process.pid)
            if phase in PHASES:
                self.counts[f"killed {PHASES[phase]}"] += 1


def set_up(plan: DeltaPlan) -> int:
    """The namespace and its topics."""
    with txnlog.open(plan.root, NAMESPACE, create=True) as ns:
        for topic, partitions in TOPICS.items():
            key = "key" if topic == KEYED else None
            ns.create_topic(topic, SCHEMA, partitions=partitions, key=key, delta=MODES[topic])
        make_passing(ns)
    return 0


def run(plan: DeltaPlan) -> dict[str, object]:
    """The whole run; returns the report."""
    for folder in (plan.journals, plan.spool, Path(plan.folder) / "logs"):
        folder.mkdir(parents=True)
    work = DeltaSupervisor(plan)
    work.run_child("set_up", lambda: set_up(plan))
    work.load()
    began = time.monotonic()
    board = work.board
    found: dict[str, object] = {"findings": 0, "explained": [], "figures": {}}
    for log, call in (
        ("asking-first", lambda: outcomes.ask(plan, board, "first")),
        ("the latest requests", lambda: supervisor.deliver_rest(plan)),
        ("asking-second", lambda: outcomes.ask(plan, board, "second")),
        ("publishing the rest", lambda: verify.publish_rest(plan, board)),
        ("verifying", lambda: verify.main(plan)),
    ):
        try:
            work.run_child(log, call)
        except RuntimeError as error:
            work.broken.append(str(error))
    path = Path(plan.folder) / "found.json"
    if path.exists():
        found = json.loads(path.read_text())
    work.counts["milliseconds of checks"] = int(1e3 * (time.monotonic() - began))
    counts = {**work.counts, **work.progress.counts()}
    return {"broken": work.broken, "counts": counts, "found": found}


if __name__ == "__main__":
    sys.exit(supervisor.main(DeltaPlan.read(sys.argv[1]), run))
