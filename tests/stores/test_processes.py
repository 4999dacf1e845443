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

from tests.effort import tries
from tools.servers import S3Server
from txnlog.store import open_store

REPOSITORY = Path(__file__).parents[2]


class Racer:
    """A process of tests/stores/racer.py."""

    def __init__(self, url: str, options: dict[str, Any] | None, number: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.racer"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.say(json.dumps({"url": url, "options": options, "racer": number}))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """Close its input and wait; what it said meanwhile."""
        output, _ = self.process.communicate(timeout=120)
        return output


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_of_racing_processes_exactly_one_sees_created(kind: str, tmp_path: Path, s3: S3Server) -> None:
    url, options = (str(tmp_path / "root"), None) if kind == "local" else (s3.url("race"), s3.storage_options)
    racers = [Racer(url, options, number) for number in range(4)]
    assert [racer.hear() for racer in racers] == ["ready"] * 4
    store = open_store(url, options)
    winners: Counter[int] = Counter()
    for number in range(tries(300, 100) if kind == "local" else tries(100, 40)):
        # Who hears of it first has an advantage: each in turn.
        order = [(number + shift) % 4 for shift in range(4)]
        for racer in order:
            racers[racer].say(f"{number} {number + 1}")
        told = []
        for racer in order:
            while (line := racers[racer].hear()) != "done":
                assert line == str(number)
                told.append(racer)
        assert len(told) == 1
        assert store.get(f"_log/{number:06d}").startswith(f"{told[0]}-".encode())
        winners[told[0]] += 1
    assert [racer.end() for racer in racers] == [""] * 4
    assert len(winners) > 1, "races that one process always wins prove little"


def test_a_process_killed_while_it_creates_leaves_whole_objects_only(tmp_path: Path) -> None:
    rng = random.Random(20)
    for attempt in range(8):
        root = tmp_path / str(attempt)
        racer = Racer(str(root), None, attempt)
        assert racer.hear() == "ready"
        racer.say("0 1000000")
        assert racer.hear() == "0"
        time.sleep(rng.uniform(0, 0.08))
        racer.process.kill()
        output = racer.end()
        store = open_store(root)
        found = [info.key for info in store.list("_log/")]
        body = f"{attempt}-".encode() * 200
        assert found
        assert all(store.get(key) == body for key in found)
        # Whatever the process said it had created is there, and it works in order: nothing is missing in between.
        assert {f"_log/{line:0>6}" for line in output.split("\n")[:-1]} <= set(found)
        assert found == [f"_log/{number:06d}" for number in range(len(found))]


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
