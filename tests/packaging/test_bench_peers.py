"""The parts of `make bench-peers` that need no peer: how loads are counted, how figures are kept, what is installed."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from benchmarks.peers.load import Load, Outcome, in_threads, is_aborted
from benchmarks.peers.machine import Others, fsync_ms, loop_rate, written_bytes
from benchmarks.peers.results import QUANTILES, Run, System, Unit, load, quantiles_of, save
from benchmarks.peers.values import random_values
from benchmarks.peers.watching import Watch, paced

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.1, 10), (0.5, 50), (0.9, 90), (1.0, 100)])
def test_the_share_of_transactions_that_is_asked_for_is_aborted(share, expected):
    asked = Load(kind="fill", topic="t", aborted=share)
    assert sum(is_aborted(asked, number) for number in range(100)) == expected


def test_a_load_with_a_count_runs_each_transaction_once():
    seen: list[int] = []
    asked = Load(kind="fill", topic="t", transactions=50, producers=4, seconds=30)
    found = in_threads(asked, lambda _, number: seen.append(number), rows_each=3)
    assert sorted(seen) == list(range(50))
    assert (found.transactions, found.rows, len(found.latencies_ms)) == (50, 150, 50)


def test_a_failure_in_a_thread_is_raised_to_the_caller():
    def fail(_thread: int, number: int) -> None:
        if number == 3:
            raise ValueError("the fourth")

    with pytest.raises(ValueError, match="the fourth"):
        in_threads(Load(kind="commit", topic="t", producers=2, seconds=30), fail, rows_each=1)


def test_messages_of_a_load_are_different_and_the_same_for_everybody():
    asked = Load(kind="fill", topic="t", partitions=3, messages=10, size=40)
    values = random_values(asked)
    assert values == random_values(asked)
    assert len(set(values)) == 30
    assert {len(value) for value in values} == {40}


def test_quantiles_are_values_that_were_measured():
    values = [float(number) for number in range(1, 1001)]
    found = dict(zip(QUANTILES, quantiles_of(values), strict=True))
    assert (found[0], found[0.5], found[0.99], found[1]) == (1.0, 501.0, 991.0, 1000.0)
    assert quantiles_of([]) == []
    assert Outcome(seconds=1, latencies_ms=values).p99_ms() == 991.0


def test_a_transaction_that_stays_open_is_begun_first_and_ended_before_the_end():
    calls: list[str] = []
    watch = Watch(Load(kind="open", topic="t", size=100, seconds=0.3, cycle_ms=10))

    def commit(value: bytes) -> None:
        calls.append("commit")
        watch.received(watch.stamped(value))

    paced(watch, commit, lambda: calls.append("begin"), lambda: calls.append("end"))
    assert calls.index("begin") == 20  # after the transactions that warm up
    assert calls.index("begin") < calls.index("end") < len(calls) - 1
    found = watch.outcome()
    assert found.rows == found.transactions == calls.count("commit") - 20
    assert found.progress[-1][1:] == (found.transactions, found.rows)


def test_a_run_is_kept_whole(tmp_path):
    unit = Unit(
        question="q",
        case="c",
        system="s",
        turn=0,
        durable=True,
        figures={"p50": 1.5},
        seconds=1.0,
        quantiles_ms=[],
        progress=[(0.1, 2, 1)],
        fsync_ms=0.1,
        loop_rate=50.0,
        others=0.01,
        attempts=1,
    )
    run = Run(
        command="x",
        date="2026-11-28",
        machine="m",
        systems=[System(name="s", version="1", durability="d", settings="")],
    )
    run.units.append(unit)
    save(run, tmp_path / "results.json")
    kept = load(tmp_path / "results.json")
    assert kept == run
    assert kept.figure("q", "c", "s", "p50") == 1.5
    assert kept.figure("q", "c", "s", "p99") is None


def test_the_machine_says_how_fast_it_is_and_what_this_process_wrote(tmp_path):
    assert fsync_ms(tmp_path) > 0
    assert loop_rate() > 0
    before = written_bytes([])
    (tmp_path / "data").write_bytes(bytes(1_000_000))
    assert written_bytes([]) >= before


def test_what_this_process_does_is_not_counted_as_others():
    others = Others([])
    ended = time.monotonic() + 0.3
    thread = threading.Thread(target=lambda: [None for _ in iter(lambda: time.monotonic() < ended, False)])
    thread.start()
    thread.join()
    assert 0 <= others.share() <= 1


def test_the_lock_of_the_peers_has_exactly_what_is_asked_for():
    asked = re.findall(r"^([a-z-]+)[=>]", (ROOT / "requirements/peers.in").read_text(encoding="utf-8"), re.MULTILINE)
    locked = re.findall(r"^([a-z-]+)==", (ROOT / "requirements/peers.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(asked) == sorted(locked)
    assert len(asked) == 4
