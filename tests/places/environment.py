"""A second Python environment: pyspark, pyarrow and pandas, what these need, and nothing else.

Its packages are those of this environment, which pip installed by the lock and its hashes, linked one by one: so it is
made in a moment, needs no network, and has the versions that everything else was tested with.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

PACKAGES = ("pyspark", "pyarrow", "pandas")


def second_environment(folder: Path) -> Path:
    """Make it in an empty folder; returns its ``python``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    report = "import sysconfig; print(sysconfig.get_path('purelib'))"
    command = [str(python), "-I", "-c", report]
    packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    for distribution in _closure(PACKAGES):
        files = distribution.files
        assert files, f"{distribution.name} tells its files"
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    return python


def _closure(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """The distributions of some names and of everything that they need, without extras."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        distribution = importlib.metadata.distribution(name)
        if found.setdefault(distribution.name, distribution) is distribution:
            needed = map(Requirement, distribution.requires or ())
            waiting += [item.name for item in needed if item.marker is None or item.marker.evaluate({"extra": ""})]
    return list(found.values())
