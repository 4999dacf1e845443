"""What a run is judged by, on a namespace by hand: a good end has no findings, and each thing that is wrong has one.

What is wrong with a history by itself the tests of the checker have (tests/sim).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import txnlog
from tests.crash.core import verify
from tests.crash.core.supervisor import CoreSupervisor
from tests.crash.core.workload import SCHEMA
from tests.crash.harness import judging
from tests.crash.harness.member import ProcessClient
from tests.crash.harness.plan import NAMESPACE, Plan
from txnlog.testing.client import reported_commit


class Ended:
    """A run of one worker that committed one transaction, and died amid another one."""

    def __init__(self, folder: Path) -> None:
        self.plan = Plan(root=str(folder / "lake"), folder=str(folder), seed=0, seconds=0)
        self.plan.journals.mkdir()
        self.lake = folder / "lake" / NAMESPACE
        supervisor = CoreSupervisor(self.plan)
        self.board = supervisor.board
        supervisor.set_up()
        self.client = ProcessClient(self.plan, "w0g0", self.plan.random("w0g0"), first_value=100)
        with txnlog.open(self.plan.root, NAMESPACE, clock=self.board) as ns:
            self.client.ns = ns
            for text in ("a", "b"):
                txn = ns.begin()
                self.client.call("begin", lambda: None, txn=str(txn.id))
                for topic in ("orders", "audit"):
                    self.produce(txn, topic)
                if text == "a":
                    self.client.call(
                        "commit", txn.commit, lambda done: reported_commit(self.client, done), txn=str(txn.id)
                    )
                else:
                    txn.flush()

    def produce(self, txn: txnlog.Transaction, topic: str) -> None:
        values = self.client.world.values(2)
        rows = [{"value": value} for value in values]
        said: dict[str, Any] = {"txn": str(txn.id), "topic": topic, "partition": 0, "values": values}
        self.client.call("produce", lambda: txn.produce(topic, rows, partition=0), **said)

    def end(self, *left_out: Callable[..., object]) -> None:
        """What comes before the judgement."""
        judging.ask(self.plan, self.board, "first")
        judging.ask(self.plan, self.board, "second")
        for step in (verify.clean, verify.drain):
            if step not in left_out:
                step(self.plan, self.board)

    def findings(self) -> str:
        """What is found, and what there was to find it in."""
        verify.main(self.plan)
        self.found = json.loads((Path(self.plan.folder) / "found.json").read_text())
        assert self.found["findings"] == len(self.found["explained"])
        return "\n".join(self.found["explained"])


@pytest.fixture
def run(tmp_path: Path) -> Ended:
    return Ended(tmp_path)


def test_a_good_end_has_no_findings_and_figures(run):
    run.end()
    assert run.findings() == ""
    figures = run.found["figures"]
    wanted = {"attempts": 2, "visible": 1, "acknowledged": 1, "unanswered": 1, "refused": 1, "drained": 8}
    assert {name: figures[name] for name in wanted} == wanted


def test_what_nobody_consumed_is_found(run):
    run.end(verify.drain)
    assert "orders:exclusive-0 stays at" in run.findings()


def test_what_stays_open_and_its_files_are_found(run):
    with txnlog.open(run.plan.root, NAMESPACE, clock=run.board) as ns:
        run.end(verify.clean)
        ns.begin(timeout_ms=None)
        txn = ns.begin()
        run.produce(txn, "audit")
        txn.flush()
        text = run.findings()
    assert "stays open" in text
    assert "is on the store, and nobody needs it" in text


def test_a_file_that_nobody_names_is_found(run):
    run.end()
    path = next((run.lake / "audit").rglob("*.parquet"))
    path.with_name(f"{'0' * 32}.parquet").write_bytes(path.read_bytes())
    assert run.findings().endswith("is on the store, and nobody needs it")


def test_a_commit_that_is_not_there_and_a_worker_that_broke_are_found_with_what_they_did(run):
    run.end()
    client = ProcessClient(run.plan, "w0g1", run.plan.random("w0g1"))
    txn = f"{99:032x}"
    client.call("begin", lambda: None, txn=txn)
    client.call("produce", lambda: None, txn=txn, topic="audit", partition=0, values=(7,))
    client.call("commit", lambda: None, lambda _: {"version": 5}, txn=txn)
    client.journal.note("broken", error="it broke")
    text = run.findings()
    assert "w0g1: it broke" in text
    assert "lost write" in text
    assert '"kind":"commit"' in text


def test_a_checkpoint_that_is_not_the_log_is_found(run):
    run.end()
    with txnlog.open(run.plan.root, NAMESPACE, clock=run.board) as ns:
        cursors = ns._connection.follower.state.cursors
        place, cursor = next(iter(cursors.items()))
        cursors[place] = msgspec.structs.replace(cursor, position=0)
        version = ns.checkpoint()
        ns.create_topic("more", SCHEMA)  # an entry that names the checkpoint
    assert f"checkpoint {version}: cursors" in run.findings()
