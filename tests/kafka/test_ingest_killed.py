"""Drivers that are killed (SIGKILL, JVM and all) in the middle of an ingestion, and others that go on."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.effort import tries
from tests.kafka.driver import PLACE_OF_A_START, PLACE_OF_THE_FIRST, PLACES
from tests.kafka.lake import Lake, lake

__all__ = ["lake"]  # a fixture

ROOT = Path(__file__).parents[2]
COMMITTED = {"read": 9, "written": 9, "committed": 18, PLACE_OF_THE_FIRST: 0}
"""How many messages are in the topic behind the death, by its place: of three partitions with as many in each batch."""


@pytest.mark.parametrize("place", [*PLACES, PLACE_OF_THE_FIRST])
def test_the_messages_of_a_killed_driver_come_once(lake: Lake, place: str) -> None:
    lake.cluster.create(lake.source, partitions=3)
    for partition in range(3):
        lake.cluster.produce(lake.source, range(partition, 30, 3), partition)
    folder = lake.folder
    command = [sys.executable, "-m", "tests.kafka.driver", str(folder), lake.cluster.address, lake.source, place]
    with open(folder / "driver.log", "ab") as log:
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, check=False)
    assert done.returncode == -signal.SIGKILL, (folder / "driver.log").read_text()
    assert len(lake.ids()) == COMMITTED[place]
    lake.cluster.produce(lake.source, range(30, 40), 0)
    lake.ingest()
    ends = [lake.cluster.end(lake.source, partition) for partition in range(3)]
    assert [lake.position(partition) for partition in range(3)] == ends == [20, 10, 10]
    assert lake.ids() == list(range(40))
    assert lake.in_order()


def test_where_a_killed_driver_began_the_next_one_goes_on(lake: Lake) -> None:
    """At the latest offsets, of which one is 0: what comes behind the death is not behind the next start."""
    lake.cluster.create(lake.source, partitions=2)
    lake.cluster.produce(lake.source, range(10), 0)
    folder = lake.folder
    command = [
        sys.executable,
        "-m",
        "tests.kafka.driver",
        str(folder),
        lake.cluster.address,
        lake.source,
        PLACE_OF_A_START,
    ]
    with open(folder / "driver.log", "ab") as log:
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, check=False)
    assert done.returncode == -signal.SIGKILL, (folder / "driver.log").read_text()
    lake.cluster.produce(lake.source, range(10, 20), 0)
    lake.cluster.produce(lake.source, range(20, 30), 1)
    lake.ingest({"startingOffsets": "latest"})
    assert lake.ids() == list(range(10, 30))


@pytest.mark.timeout(1800)  # a driver takes half a minute where the machine does much else
def test_the_messages_of_drivers_that_are_killed_at_any_moment_come_once(lake: Lake) -> None:
    """Python and the JVM die at once, some time behind one of the next entries."""
    seed = int(os.environ.get("TXNLOG_CRASH_SEED") or secrets.randbits(32))
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    count, kills = 0, tries(20, 3)
    lake.cluster.create(lake.source, partitions=3)
    folder = lake.folder
    command = [sys.executable, "-m", "tests.kafka.driver", str(folder), lake.cluster.address, lake.source, "nowhere"]
    for _ in range(kills):
        for partition in range(3):
            lake.cluster.produce(lake.source, range(count + partition, count + 120, 3), partition)
        count += 120
        version = lake.ns.snapshot().version
        wanted = version + chance.randint(1, 6)
        with open(folder / "driver.log", "ab") as log:
            driver = subprocess.Popen(
                command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, start_new_session=True
            )
        while lake.ns.snapshot().version < wanted:
            assert driver.poll() is None, (folder / "driver.log").read_text()
            time.sleep(0.01)
        time.sleep(chance.random())
        os.killpg(driver.pid, signal.SIGKILL)
        assert driver.wait() == -signal.SIGKILL, "it had messages for many more batches"
        found = lake.ids()
        assert len(found) == len(set(found)), f"messages came twice (seed {seed})"
    lake.ingest()
    ends = [lake.cluster.end(lake.source, partition) for partition in range(3)]
    assert [lake.position(partition) for partition in range(3)] == ends == [40 * kills] * 3, f"seed {seed}"
    assert lake.ids() == list(range(count)), f"seed {seed}"
    assert lake.in_order()
