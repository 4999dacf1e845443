"""The end of a process whose store does not answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import sys, threading, time
import pyarrow as pa
import txnlog
from txnlog.engine import promises
from txnlog.store import HookStore, open_store

hangs, reached = False, threading.Event()

def before(call, key):
    if hangs and key.endswith(".parquet"):
        reached.set()
        time.sleep(10**6)

store = HookStore(open_store(sys.argv[1], {}), before=before)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True, store=store)
topics = sys.argv[2].split(",")
for topic in topics:
    ns.create_topic(topic, pa.schema([("id", pa.int64())]))
promises._end._left_s = 3.0  # in place of a minute
hangs = True
txn = ns.begin()
for topic in topics:
    txn.produce(topic, [{"id": 1}])
future = txn.commit_async()
reached.wait(20)
print("through")
"""


@pytest.mark.parametrize("topics", ["orders", "orders,audit"])
def test_a_process_whose_store_hangs_ends_within_a_minute(tmp_path: Path, topics: str) -> None:
    """HANG: a job whose commit in the background writes two files, to a store that does not answer (NFS, no timeout).

    "Its end waits, a minute at most": of one file that was so. Two were put by a ``ThreadPoolExecutor``, whose threads
    the interpreter joins for ever.
    """
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, tmp_path, topics], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, _ = program.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        program.kill()
        out, _ = program.communicate()
        assert "through" in out
        pytest.fail("the process does not end")
    assert "through" in out
