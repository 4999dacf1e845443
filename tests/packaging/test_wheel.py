"""The wheel ships the library, all of it and nothing else, and its core needs neither Spark nor any other extra."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

PACKAGES = ("txnlog", "catalog", "spark_ext")
CORE_DEPENDENCIES = {"click", "fsspec", "msgspec", "numpy", "pyarrow", "xxhash"}
EXTRAS = {"spark", "progress", "delta", "s3", "azure", "gcs", "testing", "docs", "dev"}

IMPORT_EVERYTHING = """
import importlib, importlib.metadata, json, pkgutil, sys

class Banned:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "delta", "pandas", "s3fs", "adlfs", "gcsfs"}:
            tried.append(name)

tried = []
sys.path[:0] = sys.argv[1:]
sys.meta_path.insert(0, Banned())
import txnlog, catalog
at_once = list(tried)
names = [module.name for module in pkgutil.walk_packages(txnlog.__path__, "txnlog.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
(distribution,) = importlib.metadata.distributions(name="txnlog", path=sys.argv[1:2])
scripts = [script.name for script in distribution.entry_points if script.load()]
print(json.dumps({"file": txnlog.__file__, "names": names, "at_once": at_once, "scripts": scripts}))
"""


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked, as pip would."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def core_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the core's dependencies and nothing more, linked from this environment."""
    folder = tmp_path_factory.mktemp("core")
    for name in CORE_DEPENDENCIES:
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            (folder / top).symlink_to(str(distribution.locate_file(top)))
    return folder


def test_the_wheel_holds_the_three_packages_and_the_module(contents):
    tops = {name.partition("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES, "pyspark_txnlog.py"}


def test_the_wheel_holds_every_file_of_the_packages(contents, project_files):
    expected = {name for name in project_files if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    assert {name for name in contents if name.startswith(tuple(f"{package}/" for package in PACKAGES))} == expected


def test_the_wheel_says_that_it_is_typed_and_carries_its_licence(contents):
    assert {f"{package}/py.typed" for package in PACKAGES} <= contents
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in contents)


def test_the_wheel_fits_every_platform(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")


@pytest.mark.parametrize("page", ["docs/tour.md", "docs/spark.md", "examples/submit/late_flights.py"])
def test_who_copies_a_command_names_the_wheel_that_is_built(wheel, page):
    named = set(re.findall(r"[\w.-]+\.whl\b", (Path(__file__).parents[2] / page).read_text(encoding="utf-8")))
    assert named == {wheel.name}


def test_the_core_depends_on_a_handful_of_packages(installed):
    (distribution,) = importlib.metadata.distributions(path=[str(installed)])
    requirements = distribution.requires or []
    core = {re.match(r"[A-Za-z0-9._-]+", text).group() for text in requirements if "extra ==" not in text}
    assert core == CORE_DEPENDENCIES
    assert set(distribution.metadata.get_all("Provides-Extra")) == EXTRAS
    assert distribution.metadata["Requires-Python"] == ">=3.11"


@pytest.fixture(scope="module")
def core_only(installed: Path, core_environment: Path) -> dict[str, Any]:
    """What a process reports that imported all of txnlog, with the core's dependencies and nothing else on its path."""
    # -I and -S: nothing of this environment, of the current folder or of the user's is on the path.
    command = [
        sys.executable,
        "-I",
        "-S",
        "-W",
        "error",
        "-c",
        IMPORT_EVERYTHING,
        str(installed),
        str(core_environment),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=installed, timeout=60)
    assert run.returncode == 0, run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    assert report["file"].startswith(str(installed))
    return report


def test_everything_in_txnlog_imports_with_the_core_dependencies_alone(core_only, project_files):
    files = {name for name in project_files if name.startswith("txnlog/") and name.endswith(".py")}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files}
    assert set(core_only["names"]) == modules - {"txnlog"}


def test_importing_txnlog_and_catalog_tries_no_package_of_an_extra(core_only):
    assert core_only["at_once"] == []


def test_every_command_that_the_wheel_installs_can_be_loaded(core_only, contents):
    has_commands = any(name.endswith(".dist-info/entry_points.txt") for name in contents)
    assert bool(core_only["scripts"]) == has_commands
