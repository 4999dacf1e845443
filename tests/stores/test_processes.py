"""Real processes: several that race for the same keys, some that are killed while they create, some that fork."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.servers import S3Server
from txnlog.store import open_store

REPOSITORY = Path(__file__).parents[2]


def start(url: str, options: dict[str, Any] | None, racer: int, rounds: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.racer"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"url": url, "options": options, "racer": racer, "rounds": rounds}) + "\n")
    process.stdin.flush()
    return process


def race(url: str, options: dict[str, Any] | None, racers: int, rounds: int) -> dict[int, list[int]]:
    """The racers that were told they created each key."""
    processes = [start(url, options, racer, rounds) for racer in range(racers)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    winners: dict[int, list[int]] = {number: [] for number in range(rounds)}
    for racer, process in enumerate(processes):
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        for line in output.split():
            winners[int(line)].append(racer)
    return winners


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_racing_processes_exactly_one_is_told_created(kind: str, tmp_path: Path, s3: S3Server) -> None:
    url, options, rounds = (
        (str(tmp_path / "root"), None, 400) if kind == "local" else (s3.url("race"), s3.storage_options, 150)
    )
    winners = race(url, options, 4, rounds)
    assert {len(told) for told in winners.values()} == {1}
    store = open_store(url, options)
    for number, (racer,) in winners.items():
        assert store.get(f"_log/{number:06d}").startswith(f"{racer}-".encode())
    # A race in which one process did everything would prove little.
    assert len(Counter(told[0] for told in winners.values())) > 1


def test_a_process_killed_while_it_creates_leaves_whole_objects_only(tmp_path: Path) -> None:
    rng = random.Random(20)
    for attempt in range(8):
        root = tmp_path / str(attempt)
        process = start(str(root), None, attempt, 1_000_000)
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.08))
        process.kill()
        output, _ = process.communicate()
        store = open_store(root)
        found = {info.key: info.size_bytes for info in store.list("_log/")}
        body = f"{attempt}-".encode() * 200
        assert found
        assert all(store.get(key) == body for key in found)
        # Whatever the process said it had created is there, and it works in order: nothing is missing in between.
        acknowledged = [int(line) for line in output.split() if line]
        assert all(f"_log/{number:06d}" in found for number in acknowledged)
        assert sorted(found) == [f"_log/{number:06d}" for number in range(len(found))]


FORKS = """
import json, os, sys
from txnlog.store import Created, open_store
url, options = json.loads(sys.argv[1])
store = open_store(url, options)
assert store.create("before", b"x") is Created.CREATED
child = os.fork()
name = "parent" if child else "child"
assert store.create(name, name.encode()) is Created.CREATED
assert store.create("before", b"y") is Created.UNKNOWN
assert store.get("before") == b"x"
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(info.key for info in store.list("")) == ["before", "child", "parent"]
else:
    os._exit(0)
"""


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_store_goes_on_working_on_both_sides_of_a_fork(kind: str, tmp_path: Path, s3: S3Server) -> None:
    task = [str(tmp_path / "root"), None] if kind == "local" else [s3.url("fork"), s3.storage_options]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, json.dumps(task)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
