"""``make matrix``: which cells it runs, that a failed one fails it, and that its check uses what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from rich.console import Console

from tools import matrix, matrix_check
from tools.install import ROOT
from tools.matrix import Cell, Installed, interpreters, missing, older, pinned, run, supported, table
from tools.release import EXTRAS

SPARK = ("4.0", "4.1", "4.2")


def interpreter(folder: Path, version: str) -> Path:
    """A program that answers like a Python of this version."""
    file = folder / version / "bin" / "python"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\necho {version.replace('.', ' ')}\n")
    file.chmod(0o755)
    return file


def cell(outcome: str | Exception) -> Cell:
    def tried(_: Cell) -> str:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return Cell("3.12", Path(sys.executable), "PySpark 4.2.0", tried)


def test_every_supported_python_is_tried_by_its_newest_interpreter(tmp_path):
    found = [interpreter(tmp_path, version) for version in ("3.10.13", "3.12.1", "3.12.9", "3.11.7", "4.0.1")]
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    chosen = interpreters([*found, broken, tmp_path / "none"])
    assert chosen == {"3.11": found[3], "3.12": found[2]}
    assert list(chosen) == ["3.11", "3.12"]


def test_a_python_that_this_machine_lacks_is_named():
    assert supported()[0] == (3, 11)
    assert (3, 14) in supported()
    assert [line.split()[1] for line in missing(["3.11", "3.12", "3.13"])] == ["3.14"]


@pytest.mark.parametrize("spark", SPARK)
def test_the_release_of_a_pyspark_is_the_one_of_its_lock(spark):
    assert tuple(matrix.LOCKS) == SPARK
    assert pinned(spark).startswith(f"{spark}.")


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("made older: pandas"),
        subprocess.TimeoutExpired("python", 300),
        subprocess.CalledProcessError(1, "python", "", "Traceback\nAssertionError: orders: [1], and not [1, 2]"),
    ],
)
def test_a_cell_that_fails_fails_the_run_and_the_others_go_on(failure, capsys):
    verdicts = run([cell("all right"), cell(failure), cell("all right")])
    assert [verdict.passed for verdict in verdicts] == [True, False, True]
    assert matrix.exit_code(verdicts) == 1
    assert matrix.exit_code([verdicts[0]]) == 0
    assert matrix.exit_code([]) == 1, "a run of nothing shows nothing"
    assert str(getattr(failure, "stderr", None) or failure) in capsys.readouterr().out
    console = Console(width=200, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(table(verdicts))
    assert console.export_text().count("FAILED") == 1


BEFORE = {"pandas": Installed("3.1.1"), "python-dateutil": Installed("4.0.0"), "numpy": Installed("2.0.0")}


def after(**changed: str) -> dict[str, Installed]:
    return BEFORE | {name.replace("_", "-"): Installed(version) for name, version in changed.items()}


def test_a_package_that_becomes_older_is_reported_unless_a_package_of_others_demands_it():
    assert older(BEFORE, after(numpy="2.1.0", txnlog="0.1.0")) == []
    for found in (after(pandas="2.3.3"), after(numpy="1.26.0"), {"pandas": BEFORE["pandas"]}):
        with pytest.raises(ValueError, match="made older"):
            older(BEFORE, found)
    lower = after(python_dateutil="2.9.0")
    with pytest.raises(ValueError, match=r"python-dateutil 4\.0\.0 to 2\.9\.0"):
        older(BEFORE, lower)
    botocore = {"botocore": Installed("1.43", ("python-dateutil<3.0.0,>=2.1",))}
    assert older(BEFORE, lower | botocore) == ["python-dateutil 4.0.0 to 2.9.0 for botocore"]
    with pytest.raises(ValueError, match="python-dateutil"):
        older(BEFORE, lower | {"txnlog": botocore["botocore"]})


def test_what_people_keep_is_made_older_for_nobody():
    other = {"other": Installed("1", ("pandas<3",))}
    with pytest.raises(ValueError, match="pandas"):
        older(BEFORE, after(pandas="2.3.3") | other)


def test_no_extra_limits_what_people_keep_from_above():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [text for extra in EXTRAS for text in extras["optional-dependencies"][extra]]
    named = [Requirement(text) for text in texts]
    kept = [found for found in named if found.name in matrix.KEPT]
    assert [found.name for found in kept] == ["pandas"]
    assert [part.operator for found in kept for part in found.specifier] == [">="]


def test_the_check_writes_and_reads_in_python(tmp_path):
    matrix_check.use_python(str(tmp_path / "lake"))
    with pytest.raises(Exception, match="exists"):
        matrix_check.use_python(str(tmp_path / "lake"))


def test_the_check_refuses_a_package_of_a_checkout():
    with pytest.raises(AssertionError, match="txnlog"):
        matrix_check.import_every_public_name()


def test_what_differs_ends_the_check():
    matrix_check.same("orders", [1, 2], [1, 2])
    with pytest.raises(AssertionError, match=r"orders: \[1\], and not \[1, 2\]"):
        matrix_check.same("orders", [1], [1, 2])
