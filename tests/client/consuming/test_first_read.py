"""Ctrl-C in the first read of a process, in which Arrow imports pandas."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import txnlog
from tests.client.support import Place

_READ = """
import os, signal, sys, threading, time
import txnlog
signal.signal(signal.SIGINT, signal.default_int_handler)
assert "pandas" not in sys.modules
ns = txnlog.open(sys.argv[1], namespace="sales")
consumer = ns.consumer("orders", "billing")

def interrupt():
    began = time.monotonic()
    while "pandas" not in sys.modules and time.monotonic() - began < 3:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
if sys.argv[2] == "receive":
    consumer.receive(timeout_ms=0)
else:
    ns.snapshot().read("orders")
time.sleep(5)
print("not interrupted")
"""


@pytest.mark.parametrize("call", ["receive", "read"])
def test_an_interrupt_in_the_first_read_of_a_process_ends_it_as_any_other(local: Place, call: str) -> None:
    """LOSE: it is swallowed in ``read``; behind ``receive`` the end of the process becomes an abort (a core dump).

    Nothing is forced: from its first read on, for as long as pandas takes to be imported, each Ctrl-C of a process
    that only consumes comes to this.
    """
    local.orders(1)
    done = subprocess.run(
        [sys.executable, "-c", _READ, local.root, call],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(txnlog.__file__).parent.parent,
    )
    assert "not interrupted" not in done.stdout
    assert done.returncode == -signal.SIGINT, done.stderr[-2000:]
