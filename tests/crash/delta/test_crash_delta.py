"""Publishers, writers, optimize and vacuum that are killed: every version that is published is the log's.

``TXNLOG_CRASH_DELTA_SEED`` repeats the choices of a run, ``TXNLOG_CRASH_DELTA_SECONDS`` makes it longer.
"""

from __future__ import annotations

import json
import os
import secrets

import pytest

from tests.crash.delta.run import LONGEST, SUPERVISOR, plan_for, problems
from tests.crash.harness.run import carry_out, numbers
from tests.effort import tries

SECONDS = float(os.environ.get("TXNLOG_CRASH_DELTA_SECONDS", tries(8, 6)))


@pytest.mark.clause("P-99")
@pytest.mark.timeout(180 + 2 * LONGEST * SECONDS)
def test_kills_amid_publications_lose_tear_and_double_nothing_in_any_version(tmp_path):
    seed = int(os.environ.get("TXNLOG_CRASH_DELTA_SEED") or secrets.randbits(32))
    plan = plan_for(tmp_path, seed, SECONDS)
    print(f"seed {seed}, in {tmp_path}", flush=True)
    report = carry_out(plan, SUPERVISOR)
    print(json.dumps(numbers(report)))
    found = problems(plan, report)
    assert not found, "\n\n".join(found)
