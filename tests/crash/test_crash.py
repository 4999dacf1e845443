"""Processes that are killed while they commit, over a store that loses answers: what was acknowledged is there, once.

``TXNLOG_CRASH_SEED`` repeats the choices of a run (not what the machine makes of them), ``TXNLOG_CRASH_SECONDS`` and
``TXNLOG_CRASH_KILLS`` make it longer.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.plan import Plan
from tests.servers import S3Server, s3_server

ROOT = Path(__file__).parent.parent.parent
LOCAL_SECONDS = float(os.environ.get("TXNLOG_CRASH_SECONDS", "60"))
S3_SECONDS = LOCAL_SECONDS / 2
LOCAL_KILLS = int(os.environ.get("TXNLOG_CRASH_KILLS", "100"))
S3_KILLS = LOCAL_KILLS // 5
LONGEST = 3.0
"""So many times the planned seconds a slow machine may take to meet the least numbers."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def new_seed() -> int:
    """The seed of a run: a new one, unless it is to be repeated."""
    return int(os.environ.get("TXNLOG_CRASH_SEED") or secrets.randbits(32))


def run(plan: Plan) -> dict[str, Any]:
    """Carry out a plan in processes of its own; what it found."""
    path = plan.write()
    print(f"seed {plan.seed}, in {plan.folder}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.supervisor", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"the supervisor ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads((path.parent / "report.json").read_text())


def judge(plan: Plan, report: dict[str, Any]) -> None:
    """Print what was tried, and fail for any finding and for too little of anything."""
    counts, found = report["counts"], report["found"]
    figures = found["figures"]
    print(json.dumps({"counts": counts, "figures": figures, "ms of checks": report["milliseconds of checks"]}))
    assert report["broken"] == [], "\n".join((*report["broken"], *found["explained"]))
    assert found["findings"] == 0, f"seed {plan.seed}:\n" + "\n\n".join(found["explained"])
    assert counts["kills"] >= plan.least_kills > 0
    assert counts["fenced"] >= plan.least_fenced > 0
    assert figures["ambiguous"] >= plan.least_ambiguous > 0
    assert figures["unknown"] >= plan.least_unknown > 0
    assert figures["without answer"] > 0
    assert figures["in doubt, then committed"] > 0
    assert figures["acknowledged"] > 0
    assert figures["sequenced rows"] > 0
    assert figures["consumed"] > 0


@pytest.mark.timeout(60 + LONGEST * LOCAL_SECONDS + 2 * LOCAL_KILLS)
def test_kills_and_lost_answers_on_local_files_lose_tear_and_double_nothing(tmp_path):
    plan = Plan(
        root=str(tmp_path / "lake"),
        folder=str(tmp_path),
        seed=new_seed(),
        seconds=LOCAL_SECONDS,
        least_kills=LOCAL_KILLS,
        longest_seconds=LONGEST * LOCAL_SECONDS + LOCAL_KILLS,
    )
    judge(plan, run(plan))


@pytest.mark.timeout(60 + LONGEST * S3_SECONDS + 4 * S3_KILLS)
def test_kills_and_lost_answers_on_s3_lose_tear_and_double_nothing(tmp_path, server):
    plan = Plan(
        root=server.url("crash"),
        folder=str(tmp_path),
        seed=new_seed(),
        seconds=S3_SECONDS,
        options=server.storage_options,
        faults={"storm": 0.06},
        kills_per_second=2.0,
        least_kills=S3_KILLS,
        least_ambiguous=10,
        least_unknown=5,
        least_fenced=1,
        longest_seconds=LONGEST * S3_SECONDS + 2 * S3_KILLS,
    )
    judge(plan, run(plan))
