"""Processes that are killed while they commit, over a store that loses answers: what was acknowledged is there, once.

``TXNLOG_CRASH_SEED`` repeats the choices of a run (not what the machine makes of them), ``TXNLOG_CRASH_SECONDS`` and
``TXNLOG_CRASH_KILLS`` make it longer.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator

import pytest

from tests.crash.core.run import SUPERVISOR, local_plan, problems, s3_plan
from tests.crash.harness.plan import Plan
from tests.crash.harness.run import carry_out, numbers
from tests.effort import tries
from tools.servers import S3Server, s3_server

LOCAL_SECONDS = float(os.environ.get("TXNLOG_CRASH_SECONDS", tries(9, 6)))
S3_SECONDS = LOCAL_SECONDS / 2
LOCAL_KILLS = int(os.environ.get("TXNLOG_CRASH_KILLS", tries(40, 26)))
S3_KILLS = LOCAL_KILLS // 5
PATIENCE_S = 120.0
LONGEST = 3.0
"""So much longer, and so many times the planned seconds, a slow machine may take to meet the least numbers."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


def new_seed() -> int:
    """The seed of a run: a new one, unless it is to be repeated."""
    return int(os.environ.get("TXNLOG_CRASH_SEED") or secrets.randbits(32))


def run(plan: Plan) -> None:
    """Carry out a plan, print what was tried, and fail for any finding and for too little of anything."""
    print(f"seed {plan.seed}, in {plan.folder}", flush=True)
    report = carry_out(plan, SUPERVISOR)
    print(json.dumps(numbers(report)))
    found = problems(plan, report)
    assert not found, "\n\n".join(found)


@pytest.mark.timeout(2 * PATIENCE_S + LONGEST * LOCAL_SECONDS + LOCAL_KILLS)
def test_kills_and_lost_answers_on_local_files_lose_tear_and_double_nothing(tmp_path):
    longest_seconds = PATIENCE_S + LONGEST * LOCAL_SECONDS
    run(local_plan(tmp_path, new_seed(), LOCAL_KILLS, LOCAL_SECONDS, longest_seconds))


@pytest.mark.long  # the same over another store; each of its processes takes seconds to start
@pytest.mark.timeout(2 * PATIENCE_S + LONGEST * S3_SECONDS + 2 * S3_KILLS)
def test_kills_and_lost_answers_on_s3_lose_tear_and_double_nothing(tmp_path, server):
    longest_seconds = PATIENCE_S + LONGEST * S3_SECONDS
    run(s3_plan(server, tmp_path, new_seed(), S3_KILLS, S3_SECONDS, longest_seconds))
