"""Try wheel and sdist with every PySpark and every Python that are supported, each in a clean environment.

``python -m tools.matrix`` builds the last commit once. Each cell is an environment with nothing but one PySpark. The
wheel comes into it with its extra ``spark``, and ``tools/matrix_check.py`` writes and reads messages; then the wheel
is uninstalled, and the sdist does the same. Last, each extra is installed where the newest DuckDB, pandas and PyArrow
are: none of these may become older, and nothing else unless a package of others demands it, which is said then.

Exit code 1 if a cell fails, or if there is none. ``--python 3.12 --spark 4.2`` runs some of them. PySpark comes as an
sdist of 450 MB, so its wheels are made once and stay in ``build/matrix``.
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

from packaging.requirements import Requirement
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from tools.install import ROOT
from tools.java_home import find_java_home
from tools.release import EXTRAS, build, clean_environment, install, uninstall

LOCKS: Final = {"4.0": "spark-4.0.lock", "4.1": "spark-4.1.lock", "4.2": "dev.lock"}
"""The lock that says which release of each PySpark is tried."""

KEPT: Final = ("duckdb", "pandas", "pyarrow")
"""What people have in their environments, and want to keep as new as it is."""

WHEELS: Final = ROOT / "build" / "matrix"
NEWEST_PYTHON: Final = (3, 14)
CHECK: Final = ROOT / "tools" / "matrix_check.py"
CHECK_SECONDS: Final = 900
LAST_LINES: Final = 25


@dataclass(frozen=True)
class Cell:
    """One environment: its Python, what is tried in it, and how; what that returns is shown."""

    python: str
    interpreter: Path
    what: str
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
    parser.add_argument("--no-extras", action="store_true", help="leave out the extras after newer packages")
    chosen = parser.parse_args(arguments)
    found = interpreters(candidates())
    with tempfile.TemporaryDirectory() as folder:
        archives = written(build(Path(folder) / "built"), Path(folder))
        versions = [pinned(spark) for spark in chosen.spark or LOCKS]
        pythons = {name: path for name, path in found.items() if name in (chosen.python or found)}
        cells = [
            Cell(python, path, f"PySpark {version}", tried_with_spark(version, archives))
            for version in versions
            for python, path in pythons.items()
        ]
        if pythons and not chosen.no_extras:
            newest = max(pythons, key=Version)
            compared = after_newer_packages(archives["wheel"])
            cells += [Cell(newest, pythons[newest], f"extra {extra}", compared) for extra in EXTRAS]
        verdicts = run(cells)
    Console().print(table(verdicts))
    print("\n".join(missing(found)))
    return exit_code(verdicts)


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0 if there are cells and all passed."""
    return 0 if verdicts and all(verdict.passed for verdict in verdicts) else 1


def written(built: dict[str, bytes], folder: Path) -> dict[str, Path]:
    """The files of ``wheel`` and ``sdist``."""
    found = {}
    for name, content in built.items():
        path = folder / name
        path.write_bytes(content)
        found["wheel" if name.endswith(".whl") else "sdist"] = path
    return {kind: found[kind] for kind in ("wheel", "sdist")}


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
        name = f"Python {cell.python}, {cell.what}"
        print(f"{name}: {f'passed, {text}' if passed else f'FAILED{chr(10)}{text}'}", flush=True)
    return verdicts


def table(verdicts: Iterable[Verdict]) -> Table:
    """A line a cell."""
    found = Table(title="Clean environments", title_justify="left")
    for name in ("Python", "with", "verdict", "s", "found"):
        found.add_column(name, justify="right" if name == "s" else "left", overflow="fold")
    for verdict in verdicts:
        state, last = "passed" if verdict.passed else "FAILED", verdict.text.rpartition("\n")[2]
        found.add_row(verdict.cell.python, verdict.cell.what, state, f"{verdict.seconds:.0f}", last)
    return found


def tried_with_spark(version: str, archives: dict[str, Path]) -> Callable[[Cell], str]:
    """A cell that installs this PySpark, then each archive with its extra, and uses all of it."""

    def use(cell: Cell) -> str:
        with clean_environment(cell.interpreter) as python:
            install(python, str(wheel_of_pyspark(version)))
            found = [used(python, kind, archive) for kind, archive in archives.items()]
        for packages, _ in found:
            if packages["pyspark"] != version:
                raise ValueError(f"the extra replaced PySpark {version} by {packages['pyspark']}")
        packages = found[0][0]
        shown = [f"{name} {packages[name]}" for name in ("pyarrow", "pandas", "numpy") if name in packages]
        return ", ".join([*(took for _, took in found), packages["python"], *shown])

    def used(python: Path, kind: str, archive: Path) -> tuple[dict[str, str], str]:
        install(python, f"txnlog[spark] @ {archive.as_uri()}")
        started = time.monotonic()
        versions = json.loads(checked(python).splitlines()[-1])
        took = f"{kind} {time.monotonic() - started:.0f} s"
        uninstall(python, "txnlog")
        return {"python": versions["python"], **versions["packages"]}, took

    return use


def wheel_of_pyspark(version: str) -> Path:
    """The wheel of a PySpark, made from its sdist where it is not kept yet."""
    folder = WHEELS / version
    if not list(folder.glob("pyspark-*.whl")):
        with tempfile.TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", temporary]
            subprocess.run([*command, f"pyspark=={version}"], check=True, capture_output=True, text=True)
            folder.mkdir(parents=True, exist_ok=True)
            (made,) = Path(temporary).iterdir()
            shutil.move(made, folder / made.name)
    (kept,) = folder.glob("pyspark-*.whl")
    return kept


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


def after_newer_packages(wheel: Path) -> Callable[[Cell], str]:
    """A cell that installs the newest of what people have, then the wheel with one extra, and compares."""

    def compare(cell: Cell) -> str:
        extra = cell.what.removeprefix("extra ")
        with clean_environment(cell.interpreter) as python:
            install(python, *KEPT)
            before = installed(python)
            spark = [str(wheel_of_pyspark(pinned("4.2")))] if extra in {"spark", "delta"} else []
            install(python, f"txnlog[{extra}] @ {wheel.as_uri()}", *spark)
            after = installed(python)
        return ", ".join([*(f"{name} {after[name].version}" for name in KEPT), *older(before, after)])

    return compare


@dataclass(frozen=True)
class Installed:
    """A package of an environment."""

    version: str
    requires: tuple[str, ...] = ()


def installed(python: Path) -> dict[str, Installed]:
    """The packages of an environment by their names in lower case."""
    found = "{d.name.lower(): [d.version, d.requires or []] for d in m.distributions()}"
    code = f"import importlib.metadata as m, json; print(json.dumps({found}))"
    ran = subprocess.run([str(python), "-I", "-c", code], check=True, capture_output=True, text=True)
    return {name: Installed(version, tuple(requires)) for name, (version, requires) in json.loads(ran.stdout).items()}


def older(before: dict[str, Installed], after: dict[str, Installed]) -> list[str]:
    """What became older because packages of others demand it, each with the packages that do.

    Raises:
        ValueError: a package that people keep became older or is gone, or another for no reason but txnlog.
    """
    excused, blamed = [], []
    for name, had in sorted(before.items()):
        has = after.get(name)
        if has is not None and Version(has.version) >= Version(had.version):
            continue
        change = f"{name} {had.version} to {has.version if has else 'none'}"
        by = sorted(
            other for other, package in after.items() if other != "txnlog" and _refuses(package, name, had.version)
        )
        if by and name not in KEPT:
            excused.append(f"{change} for {', '.join(by)}")
        else:
            blamed.append(change)
    if blamed:
        raise ValueError(f"made older: {', '.join(blamed)}")
    return excused


def _refuses(package: Installed, name: str, version: str) -> bool:
    """Whether a requirement of a package leaves this version out."""
    for text in package.requires:
        requirement = Requirement(text)
        named = requirement.name.lower() == name and (requirement.marker is None or requirement.marker.evaluate())
        if named and version not in requirement.specifier:
            return True
    return False


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


def missing(found: Iterable[str]) -> list[str]:
    """A line for each supported Python that this machine does not have."""
    names = [f"{major}.{minor}" for major, minor in supported()]
    return [f"Python {name} is not on this machine, and was not tried" for name in names if name not in found]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
