"""Try wheel and sdist with every PySpark and every Python that are supported, each in a clean environment.

``python -m tools.matrix`` builds the last commit once. Each cell is an environment with nothing but PySpark, and then
the wheel or the sdist with its extra ``spark``: there ``tools/matrix_check.py`` writes and reads messages. Then each extra
is installed where the newest DuckDB, pandas and PyArrow are already: none of them may become older. Exit code 1 if
a cell fails, or if there is no Python to try.

``--python 3.12 --spark 4.2 --archive wheel`` runs some cells; what a Python lacks to be tried is said, never skipped
without a word.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import Version
from rich.console import Console
from rich.table import Table

from tools.install import ROOT
from tools.java_home import find_java_home
from tools.release import EXTRAS, build, clean_environment, install

LOCKS: Final = {"4.0": "spark-4.0.lock", "4.1": "spark-4.1.lock", "4.2": "dev.lock"}
"""The lock that says which release of each PySpark is tried."""

KEPT: Final = ("duckdb", "pandas", "pyarrow")
"""What people have in their environments, and want to keep as new as it is."""

ARCHIVES: Final = ("wheel", "sdist")
NEWEST_PYTHON: Final = (3, 14)
CHECK: Final = ROOT / "tools" / "matrix_check.py"
CHECK_SECONDS: Final = 300
LAST_LINES: Final = 25


@dataclass(frozen=True)
class Cell:
    """One environment: a Python, what is installed into it first, and what comes then."""

    python: str
    interpreter: Path
    what: str
    archive: str
    run: Callable[[Cell], str]


@dataclass(frozen=True)
class Verdict:
    """What became of a cell: what it found, or why it failed."""

    cell: Cell
    passed: bool
    text: str
    seconds: float


def main(arguments: Sequence[str]) -> int:
    """Run all cells, or those that were asked for, and print them as a table."""
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="only this Python, as 3.12")
    parser.add_argument("--spark", action="append", choices=[*LOCKS], help="only this PySpark")
    parser.add_argument("--archive", action="append", choices=ARCHIVES, help="only the wheel, or only the sdist")
    parser.add_argument("--no-extras", action="store_true", help="leave out the extras beside newer packages")
    chosen = parser.parse_args(arguments)
    pythons = {name: path for name, path in interpreters(candidates()).items() if name in (chosen.python or [name])}
    with tempfile.TemporaryDirectory() as folder:
        built = {}
        for name, content in build(Path(folder) / "built").items():
            path = Path(folder) / name
            path.write_bytes(content)
            built["wheel" if name.endswith(".whl") else "sdist"] = path
        cells = [
            Cell(python, path, f"PySpark {version}", archive, tried_with_spark(pinned(spark), built[archive]))
            for spark in chosen.spark or LOCKS
            for version in [pinned(spark)]
            for python, path in pythons.items()
            for archive in chosen.archive or ARCHIVES
        ]
        if pythons and not chosen.no_extras:
            newest = max(pythons, key=Version)
            beside = beside_newer_packages(built["wheel"])
            cells += [Cell(newest, pythons[newest], extra, "wheel", beside) for extra in EXTRAS]
        verdicts = run(cells)
    Console().print(table(verdicts))
    print("\n".join(missing(pythons)))
    return 0 if verdicts and all(verdict.passed for verdict in verdicts) else 1


def run(cells: Iterable[Cell]) -> list[Verdict]:
    """What became of the cells, one after the other; why one failed is printed at once."""
    verdicts = []
    for cell in cells:
        started, passed = time.monotonic(), True
        try:
            text = cell.run(cell)
        except subprocess.CalledProcessError as failure:
            passed, text = False, "\n".join(f"{failure.stdout}{failure.stderr}".strip().splitlines()[-LAST_LINES:])
        except (subprocess.TimeoutExpired, ValueError) as failure:
            passed, text = False, str(failure)
        verdicts.append(Verdict(cell, passed, text, time.monotonic() - started))
        name = f"{cell.python} {cell.what} {cell.archive}"
        print(f"{name}: {f'passed, {text}' if passed else f'FAILED{chr(10)}{text}'}", flush=True)
    return verdicts


def table(verdicts: Iterable[Verdict]) -> Table:
    """A line a cell."""
    found = Table(title="Clean environments", title_justify="left")
    for name in ("Python", "with", "archive", "verdict", "s", "found"):
        found.add_column(name, justify="right" if name == "s" else "left", overflow="fold")
    for verdict in verdicts:
        cell, last = verdict.cell, verdict.text.rpartition("\n")[2]
        state = "passed" if verdict.passed else "FAILED"
        found.add_row(cell.python, cell.what, cell.archive, state, f"{verdict.seconds:.0f}", last)
    return found


def tried_with_spark(version: str, archive: Path) -> Callable[[Cell], str]:
    """A cell that installs this PySpark, then the archive with its extra, and uses both."""

    def use(cell: Cell) -> str:
        with clean_environment(cell.interpreter) as python:
            install(python, f"pyspark=={version}")
            install(python, f"txnlog[spark] @ {archive.as_uri()}")
            versions = json.loads(checked(python).splitlines()[-1])
        if versions["packages"]["pyspark"] != version:
            raise ValueError(f"the extra replaced PySpark {version} by {versions['packages']['pyspark']}")
        shown = ("pyarrow", "pandas", "numpy")
        packages = [f"{name} {versions['packages'][name]}" for name in shown if name in versions["packages"]]
        return ", ".join([versions["python"], *packages])

    return use


def checked(python: Path) -> str:
    """What the check prints in an environment; it sees nothing of this one and of the checkout.

    Raises:
        subprocess.CalledProcessError: it failed.
        subprocess.TimeoutExpired: it did not end.
        ValueError: there is no Java.
    """
    home = find_java_home()
    if home is None:
        raise ValueError("no Java 17 or newer: see tools/java_home.py")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK_", "PYSPARK_"))}
    spark = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [str(python), "-I", str(CHECK)],
            env={**kept, **spark, "JAVA_HOME": str(home)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=CHECK_SECONDS,
        )
    return ran.stdout


def beside_newer_packages(wheel: Path) -> Callable[[Cell], str]:
    """A cell that installs the newest of what people have, then the wheel with one extra, and compares."""

    def compare(cell: Cell) -> str:
        with clean_environment(cell.interpreter) as python:
            install(python, *KEPT)
            before = installed(python)
            install(python, f"txnlog[{cell.what}] @ {wheel.as_uri()}")
            after = installed(python)
        older = lowered(before, after)
        if older:
            raise ValueError(f"the extra {cell.what} made older: {', '.join(older)}")
        return ", ".join(f"{name} {after[name]}" for name in KEPT)

    return compare


def installed(python: Path) -> dict[str, str]:
    """The packages of an environment, with their versions."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    ran = subprocess.run([str(python), "-I", "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(ran.stdout)
    return found


def lowered(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What is older than before, or gone."""
    return [
        f"{name} {version} to {after.get(name, 'none')}"
        for name, version in sorted(before.items())
        if name not in after or Version(after[name]) < Version(version)
    ]


def pinned(spark: str) -> str:
    """The release of a PySpark that its lock has.

    Raises:
        ValueError: the lock has none.
    """
    lock = (ROOT / "requirements" / LOCKS[spark]).read_text(encoding="utf-8")
    found = re.search(r"^pyspark(?:\[[\w,-]+\])?==(\S+)", lock, re.MULTILINE)
    if found is None or not found[1].startswith(f"{spark}."):
        raise ValueError(f"requirements/{LOCKS[spark]} has no PySpark {spark}")
    return found[1]


def candidates() -> list[Path]:
    """Where interpreters are: on the path, below pyenv's folder, and this one's."""
    names = [f"python{major}.{minor}" for major, minor in supported()]
    on_path = [Path(found) for name in names if (found := shutil.which(name))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [*on_path, *sorted(pyenv.glob("3.*/bin/python")), Path(sys.executable).resolve()]


def supported() -> list[tuple[int, int]]:
    """The Pythons that are to be tried: from the oldest that the package takes to the newest that there is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    major, minor = (int(part) for part in project["requires-python"].removeprefix(">=").split("."))
    return [(major, number) for number in range(minor, NEWEST_PYTHON[1] + 1)]


def interpreters(paths: Iterable[Path]) -> dict[str, Path]:
    """By ``"3.12"`` the newest interpreter of each supported Python that runs; the oldest Python first."""
    code = "import sys; print(*sys.version_info[:3])"
    found: dict[tuple[int, int], tuple[int, Path]] = {}
    for path in paths:
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            ran = subprocess.run([str(path), "-I", "-c", code], check=True, capture_output=True, text=True, timeout=60)
            major, minor, patch = (int(part) for part in ran.stdout.split())
            if (major, minor) in supported() and patch > found.get((major, minor), (-1, path))[0]:
                found[major, minor] = patch, path
    return {f"{major}.{minor}": path for (major, minor), (_, path) in sorted(found.items())}


def missing(pythons: Iterable[str]) -> list[str]:
    """A line for each Python that was not tried."""
    names = [f"{major}.{minor}" for major, minor in supported()]
    return [f"Python {name} was not tried: not asked for, or not on this machine" for name in names if name not in pythons]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
