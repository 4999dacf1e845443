"""Numbers for jobs: every write of a process gets its own, however many writes there are."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import txnlog
from spark_ext.write import write_jobs
from spark_ext.write.task_writer import JOB_NUMBERS
from txnlog.errors import TxnLogError
from txnlog.testing import ManualClock

MINUTE_MS = 60_000


def test_a_process_may_write_for_ever_and_no_two_jobs_share_a_number() -> None:
    with txnlog.open("memory://jobs", namespace="sales", create=True) as ns:
        before = ns._connection.follower.version
        firsts = [write_jobs.reserve_job(ns).txn for _ in range(500)]
        assert len(set(firsts)) == 500
        ordered = sorted(firsts)
        assert all(later - earlier > JOB_NUMBERS for earlier, later in itertools.pairwise(ordered))
        assert ns._connection.follower.version - before < 20, "blocks grow: an entry for each job would be a waste"


def test_a_job_that_is_refused_takes_no_numbers() -> None:
    with txnlog.open("memory://refused-jobs", namespace="sales", create=True) as ns:
        ns.create_topic("orders", pa.schema([("id", pa.int64())]))
        number = [write_jobs.reserve_job(ns).txn for _ in range(2)][-1]  # of a block of two
        routed = write_jobs.Planned(pa.schema([("other", pa.int64()), ("topic", pa.string())]), None)
        for job, problem in (
            (write_jobs.Planned(pa.schema([]), None), "no column 'topic'"),
            (routed, "column 'other'"),
        ):
            with pytest.raises(TxnLogError, match=problem):
                job.spec(ns, "{}")
        assert write_jobs.reserve_job(ns).txn == number + write_jobs._STRIDE


@pytest.mark.clause("P-45")
def test_a_job_has_time_after_others_that_showed_no_life_of_its_block() -> None:
    """Jobs that fail, or write nothing, take numbers of a block and leave no trace of it in the log."""
    clock = ManualClock(1_767_225_600_000)
    with txnlog.open("memory://silent-jobs", namespace="sales", create=True, clock=clock) as ns:
        for _ in range(7):  # blocks of one, two and four jobs
            write_jobs.reserve_job(ns)
        numbers = write_jobs.reserve_job(ns)  # the first of eight
        for _ in range(3):
            clock.advance(19 * MINUTE_MS)
            numbers = write_jobs.reserve_job(ns)
        clock.advance(5 * MINUTE_MS)
        with txnlog.open("memory://silent-jobs", namespace="sales", clock=clock) as other:
            other.vacuum(grace_ms=60 * MINUTE_MS)
        txn = write_jobs.begin(ns, numbers)
        ns.create_topic("orders")
        txn.produce("orders", [{"key": b"1", "value": b"one", "headers": None}])
        txn.commit()
        assert ns.snapshot().read("orders").num_rows == 1
