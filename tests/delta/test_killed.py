"""Drivers that are killed (SIGKILL, JVM and all) between Delta's commit and ours, and others that go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.delta.lives import Shop, shop

__all__ = ["shop"]  # a fixture

ROOT = Path(__file__).parents[2]


def driver(how: str, shop: Shop, *killed_at: int) -> int:
    command = [sys.executable, "-m", "tests.delta.driver", how, str(shop.folder), *map(str, killed_at)]
    with open(shop.folder / "driver.log", "ab") as log:
        return subprocess.run(command, cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log, check=False).returncode


@pytest.mark.parametrize(("how", "append"), [("process", 2), ("decided", 1)])
def test_the_rows_of_a_driver_that_is_killed_behind_its_first_append_come_once(
    shop: Shop, how: str, append: int
) -> None:
    assert driver(how, shop, append) == -signal.SIGKILL
    assert (shop.in_topic(), len(shop.in_delta())) == ([], 4), "the table is ahead"
    shop.produce()
    assert driver(how, shop) == 0, (shop.folder / "driver.log").read_text()
    shop.check()
