"""The command line says what a vacuum keeps only because the grace had not passed, and when it can go."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.client.conftest import local
from tests.client.support import SCHEMA, Place, raises, rows
from txnlog.errors import StoreError
from txnlog.fold.number_blocks import TOUCH_MS

__all__ = ["local"]  # a fixture


@pytest.fixture
def namespace(local: Place) -> str:
    """One with a file of a writer that ended before the file was in the log."""
    ns, store = local.faulty()
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    store.script.append("refused")
    with raises(StoreError):
        txn.flush()
    ns.close()
    return f"{local.root}/sales"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "txnlog", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("command", ["vacuum", "maintain"])
def test_people_and_programs_read_what_waits_for_the_grace(namespace: str, command: str) -> None:
    record = json.loads(run(namespace, command, "--json"))
    found: dict[str, Any] = record["vacuumed"] if command == "maintain" else record
    assert (found["waiting_files"], found["unnamed_files"]) == (1, 0)
    until = datetime.datetime.fromtimestamp(found["waiting_until_ms"] / 1000, datetime.UTC)
    left = until - datetime.datetime.now(datetime.UTC)
    assert 0 <= datetime.timedelta(days=1, milliseconds=TOUCH_MS).total_seconds() - left.total_seconds() < 3_600
    said = run(namespace, command)
    says = (
        f"1 file with {found['waiting_bytes']:,} bytes is kept only because the grace (--grace-ms) has not passed: a "
        f"vacuum can delete it from {until.isoformat(timespec='seconds')} on, if its writer stays silent"
    )
    assert said.splitlines()[-1] == says
    assert "waiting" not in said, "once is enough"


def test_nothing_is_said_where_nothing_waits(namespace: str) -> None:
    other = namespace.replace("sales", "audit")
    subprocess.run(
        [sys.executable, "-c", "import sys, txnlog; txnlog.open(sys.argv[1], create=True).close()", other], check=True
    )
    assert "grace" not in run(other, "vacuum")
