"""No module is longer than 600 lines: who changes one should have read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 600


def test_no_module_is_longer_than_600_lines() -> None:
    command = ["git", "ls-files", "-z", "*.py"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    # The index names what was moved a moment ago, too.
    lengths = {name: len((ROOT / name).read_bytes().splitlines()) for name in tracked if (ROOT / name).is_file()}
    assert len(lengths) > 500
    assert [name for name, length in lengths.items() if length > MOST] == []
