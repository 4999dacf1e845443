"""A signal in the first call of a process that converts anything, in which Arrow imports pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import faulthandler, signal, sys, time
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(60, exit=True)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
for topic in ("orders", "audit"):
    ns.create_topic(topic, pa.schema([("id", pa.int64())]))

def stop(*_):
    ns.produce("audit", [{"id": 1}])

signal.signal(signal.SIGTERM, stop)
import os, threading
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
CALL
print("through")
"""


@pytest.mark.parametrize(
    "call", ['ns.produce("orders", [{"id": 1}])', 'ns.consumer("orders", "billing").receive(timeout_ms=0)']
)
def test_a_handler_that_produces_in_the_first_call_of_a_process_comes_through(tmp_path: Path, call: str) -> None:
    """HANG: 50 ms after the call began, of half a second: Arrow begins once, and waits for itself."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.replace("CALL", call), tmp_path],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:1500]
    assert "through" in done.stdout
