"""Drivers that are killed (SIGKILL, JVM and all) in the middle of an ingestion, and others that go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.driver import PLACES
from tests.kafka.lake import Lake, lake

__all__ = ["lake"]  # a fixture

ROOT = Path(__file__).parents[2]
COMMITTED = {"read": 9, "written": 9, "between": 12, "committed": 18}
"""How many messages are in the topic behind the death, by its place: of three partitions with as many in each batch."""


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_the_messages_of_a_killed_driver_come_once(lake: Lake, place: str, lost: bool) -> None:
    lake.cluster.create(lake.source, partitions=3)
    for partition in range(3):
        lake.cluster.produce(lake.source, range(partition, 30, 3), partition)
    folder = lake.checkpoint.parent
    command = [sys.executable, "-m", "tests.kafka.driver", str(folder), lake.cluster.address, lake.source, place]
    with open(folder / "driver.log", "ab") as log:
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, check=False)
    assert done.returncode == -signal.SIGKILL, (folder / "driver.log").read_text()
    assert len(lake.ids()) == COMMITTED[place]
    if lost:
        lake.lose_checkpoint()
    lake.cluster.produce(lake.source, range(30, 40), 0)
    lake.ingest()
    assert lake.ids() == list(range(40))
    assert lake.in_order()
