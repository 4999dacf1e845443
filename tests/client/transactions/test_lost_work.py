"""Work that nobody can commit any more says so: of transactions that were garbage-collected, or open at the end."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, rows, unique_name
from tests.forks import in_child

_SCRIPT = """
import pyarrow as pa, txnlog

ns = txnlog.open({root!r}, create=True)
for name in ("orders", "bills", "seen"):
    ns.create_topic(name, pa.schema([("id", pa.int64())]))
ns.produce("seen", [{{"id": 0}}])
"""


def _run(root: Path, body: str, *options: str) -> str:
    """What a program of its own prints to stderr, which succeeds."""
    script = _SCRIPT.format(root=str(root / "lake" / "shop")) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def _own_topic(ns: Any) -> str:
    """One that no other test names: what those have lost may be logged in this one, by a thread of theirs."""
    return str(ns.create_topic(unique_name(), SCHEMA).name)


_WITH_WORK = """
    txn = ns.begin()
    txn.produce("orders", [{"id": 1}])
    txn.produce("bills", [{"id": 1}])
    print(txn.id, file=__import__("sys").stderr)
"""


@pytest.mark.parametrize("option", ["always", "error"])
def test_an_open_transaction_is_reported_when_the_interpreter_ends(tmp_path: Path, option: str) -> None:
    said = _run(tmp_path, _WITH_WORK, f"-W{option}::ResourceWarning")
    txn = said.split()[0]
    assert said.count("ResourceWarning: The interpreter ended") == 1
    assert f"{txn} (topics 'bills', 'orders')" in said
    assert said.count("The interpreter ended, with the namespace 'shop'") == 2, "a line of the log as well"
    assert "What was flushed may stay pending in the log until the deadline" in said
    assert "ns.abort(txn_id) releases" in said


def test_without_a_filter_the_log_alone_says_so(tmp_path: Path) -> None:
    said = _run(tmp_path, _WITH_WORK)
    assert "ResourceWarning" not in said
    assert said.count("The interpreter ended") == 1


def test_what_has_no_work_or_ended_says_nothing(tmp_path: Path) -> None:
    body = """
    def begun():
        txn = ns.begin()
        txn.produce("orders", [{"id": 1}])
        return txn

    ends = [begun() for _ in range(4)] + [ns.begin()]
    ends[0].commit()
    ends[1].abort()
    ends[2].prepare()
    ns.abort(ends[3].id)
    """
    assert "transactions" not in _run(tmp_path, body, "-Walways")


def test_a_forked_child_reports_its_own_and_not_its_parents(tmp_path: Path) -> None:
    body = """
    import os, sys
    theirs = ns.begin()
    theirs.produce("bills", [{"id": 1}])
    if os.fork() == 0:
        del theirs
        own = ns.begin()
        own.acknowledge(ns.consumer("seen", "all").receive(timeout_ms=0))
        sys.exit()
    os.wait()
    theirs.abort()
    """
    said = _run(tmp_path, body, "-Walways")
    assert said.count("ResourceWarning: The interpreter ended") == 1
    assert "(topic 'seen')" in said
    assert "bills" not in said


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("cycle", [False, True])
def test_a_transaction_that_is_garbage_collected_is_reported_once(
    ns: Any, caplog: pytest.LogCaptureFixture, flush: bool, cycle: bool
) -> None:
    gc.collect()  # of other tests, whose transactions may lie in cycles
    own = _own_topic(ns)
    txn = begun(ns, 1, topic=own, flush=flush)
    text = f"{txn.id} (topic '{own}')"
    around: list[Any] | None = [txn]
    if cycle and around is not None:
        around.append(around)
    del txn
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        around = None
        gc.collect()
        ns.close()
    for said in (
        [str(item.message) for item in caught],
        [item.getMessage() for item in caplog.records if item.name == "txnlog.transaction"],
    ):
        assert [text in line for line in said if own in line] == [True]


@pytest.mark.parametrize(
    "end",
    [
        lambda txn, topic: None,
        lambda txn, topic: (txn.produce(topic, rows(1)), txn.commit()),
        lambda txn, topic: (txn.produce(topic, rows(1)), txn.flush(), txn.abort()),
        lambda txn, topic: (txn.produce(topic, rows(1)), txn.prepare()),
        lambda txn, topic: txn.produce(topic, []),
    ],
)
def test_one_without_work_or_that_ended_is_collected_in_silence(
    ns: Any, caplog: pytest.LogCaptureFixture, end: Callable[[Any, str], Any]
) -> None:
    own = _own_topic(ns)
    txn = ns.begin()
    end(txn, own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del txn
        gc.collect()
    assert own not in caplog.text


def test_one_that_others_aborted_is_collected_in_silence(ns: Any, place: Place, caplog: Any) -> None:
    own = _own_topic(ns)
    txn = begun(ns, 1, topic=own, flush=True)
    place.open().abort(txn.id)
    ns.topics()
    del txn
    gc.collect()
    assert own not in caplog.text


def test_the_garbage_collector_needs_no_lock(memory: Place, caplog: pytest.LogCaptureFixture) -> None:
    """It runs anywhere, also in a thread that waits for what another one has."""
    ns = memory.orders()
    lost = [ns.begin()]
    lost[0].produce("orders", rows(1))
    session = ns._connection.session
    held = session.requests._lock

    def collect() -> None:
        lost.clear()
        gc.collect()

    with held:
        thread = threading.Thread(target=collect)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert "with work" in caplog.text


def test_a_close_that_was_interrupted_and_is_called_again_reports_what_was_open(
    memory: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = memory.orders()
    txn = begun(ns, 1)
    session = ns._connection.session

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ns.close()
    assert "with work" not in caplog.text
    with pytest.warns(ResourceWarning, match=f"or aborted: {txn.id} .topic 'orders'.. Nothing of them is visible"):
        ns.close()
    caplog.clear()
    ns.close()
    assert "with work" not in caplog.text, "once"


@pytest.mark.parametrize("used", [False, True])
def test_a_child_drops_its_parents_transaction_in_silence(memory: Place, used: bool) -> None:
    ns = memory.orders()
    kept = [ns.begin()]
    kept[0].produce("orders", rows(1))

    def drop() -> list[str]:
        said: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("txnlog").addHandler(handler)
        if used:
            ns.topics()  # with a session of its own, by which it could describe what its parent has
        kept.clear()
        gc.collect()
        return said

    assert in_child(drop) == []
    kept[0].abort()
