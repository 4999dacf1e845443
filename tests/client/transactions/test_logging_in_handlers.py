"""A handler of a signal that calls txnlog, where the signal comes while its thread writes to the program's own log.

The thread has the lock of a handler of ``logging``, which the threads of the client must not wait for.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import faulthandler, logging, os, signal, sys, threading, time
import pyarrow as pa
import txnlog
faulthandler.dump_traceback_later(60, exit=True)

class Slow:
    def __init__(self): self.is_slow = False
    def write(self, text):
        if self.is_slow:
            time.sleep(0.3)  # as a pipe that is full
    def flush(self): pass

stream = Slow()
logging.basicConfig(stream=stream, level=logging.INFO)
ns = txnlog.open(sys.argv[1], namespace="sales", create=True)
for topic in ("orders", "audit"):
    ns.create_topic(topic, pa.schema([("id", pa.int64())]))
ns.produce("orders", [{"id": 0}])
txn = ns.begin()
txn.produce("orders", [{"id": 1}])
txn.produce("audit", [{"id": 1}])
txn.flush()
ns.drop_topic("audit")

def stop(*_):
    txn.commit()  # commits what is left, and warns of what was dropped

signal.signal(signal.SIGTERM, stop)
stream.is_slow = True
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
for n in range(3):
    logging.info("step %d", n)
print("through", txn.state)
"""


def test_a_handler_that_commits_while_the_program_logs_comes_through(tmp_path: Path) -> None:
    """HANG: the engine warns of what was dropped, for the very commit that the handler waits for."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, tmp_path], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr[:5000]
    assert "through COMMITTED" in done.stdout
