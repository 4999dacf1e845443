"""Numbers for jobs: every write of a process gets its own, however many writes there are."""

from __future__ import annotations

import itertools

import txnlog
from spark_ext import jobs
from spark_ext.executor_writer import JOB_NUMBERS


def test_a_process_may_write_for_ever_and_no_two_jobs_share_a_number() -> None:
    with txnlog.open("memory://jobs", namespace="sales", create=True) as ns:
        before = ns.connection.follower.version
        firsts = [jobs.reserve_job(ns) for _ in range(500)]
        assert len(set(firsts)) == 500
        ordered = sorted(firsts)
        assert all(later - earlier > JOB_NUMBERS for earlier, later in itertools.pairwise(ordered))
        assert ns.connection.follower.version - before < 20, "blocks grow: an entry for each job would be a waste"
