"""A project with a ``catalog`` of its own, first on Python's path: maintenance, publication, ``write_delta``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from txnlog.client.shadowing import check_not_hidden
from txnlog.errors import UnsupportedFeature
from txnlog.maintenance import maintain

ROOT = Path(__file__).parents[3]

LOUD = "open('imported', 'w'); raise SystemExit('only the program itself may import its own catalog')"

PROJECTS = {
    "a module": {"catalog.py": LOUD},
    "a package with our module": {
        "catalog/__init__.py": "",
        "catalog/publication/publications.py": "class Publication: pass",
    },
    "a package whose module fails": {
        "catalog/__init__.py": "",
        "catalog/publication/publications.py": "import nowhere_at_all",
    },
    "a folder of data": {"catalog/books.csv": "id"},
}
"""By what is in the way the files of a project."""

HIDING = ["a module", "a package with our module", "a package whose module fails"]

MAINTAIN = """
import json, logging, sys
import pyarrow as pa
import txnlog
logging.basicConfig(stream=sys.stderr, format="%(name)s %(message)s")
with txnlog.open("memory://lake", namespace="sales", create=True) as ns:
    for topic, mode in (("orders", sys.argv[1]), ("audit", "manual")):
        ns.create_topic(topic, pa.schema([("id", pa.int64())]), delta=mode)
        for number in range(6):
            ns.produce(topic, [{"id": number}], partition=0)
    done = ns.maintain()
print(json.dumps([done.published, dict(done.failures), [item.topic for item in done.optimized], done.finished]))
"""

IMPORTED_BEFORE = """
import sys, types
theirs = types.ModuleType("catalog")
theirs.__spec__ = None
theirs.__file__ = "/their/catalog.py"
sys.modules["catalog"] = theirs
"""


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that a program is started in."""
    folder = tmp_path / "project"
    for name, text in PROJECTS[request.param].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(project: Path, code: str, *arguments: str) -> tuple[Any, str]:
    """What a program prints as JSON, and what it logs; its own folder comes first on its path."""
    (project / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, str(project / "program.py"), *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("project", HIDING, indirect=True)
def test_maintenance_does_the_rest_and_names_the_file_in_the_way(project: Path) -> None:
    (published, failures, optimized, finished), log = run(project, MAINTAIN, "auto")
    assert (published, optimized, finished) == ([], ["audit", "orders"], True)
    assert list(failures) == [maintain.DELTA_TABLES]
    for told in (failures[maintain.DELTA_TABLES], log):
        assert str(project / "catalog") in told
        assert "rename that file or folder" in told
    assert "the topic 'orders' was not published; the next commit tries again" in log, "after the commit"
    assert "The Delta tables were not brought up to date: " in log
    assert "'Delta tables'" not in log
    assert "Traceback" not in log
    assert not (project / "imported").exists()


@pytest.mark.parametrize("project", ["a module"], indirect=True)
def test_who_publishes_nothing_does_not_hear_of_it(project: Path) -> None:
    (published, failures, _, finished), log = run(project, MAINTAIN, "manual")
    assert (published, failures, finished, log) == ([], {}, True, "")


@pytest.mark.parametrize("project", ["a folder of data"], indirect=True)
def test_a_folder_without_code_is_in_nobodys_way(project: Path) -> None:
    (published, failures, *_), log = run(project, MAINTAIN, "auto")
    assert (published, failures, log) == (["orders"], {}, "")


@pytest.mark.parametrize("project", ["a folder of data"], indirect=True)
def test_one_that_the_program_imported_before_is_named_too(project: Path) -> None:
    (_, failures, *_), log = run(project, IMPORTED_BEFORE + MAINTAIN, "auto")
    assert "what Python finds as 'catalog' is /their/catalog.py" in failures[maintain.DELTA_TABLES]
    assert "Traceback" not in log


@pytest.mark.parametrize("project", ["a module"], indirect=True)
def test_in_spark_only_what_writes_to_delta_tables_needs_it(project: Path) -> None:
    code = """
import json
import spark_ext
from txnlog.errors import TxnLogError
for name in spark_ext.__all__:
    if name != "write_delta":
        getattr(spark_ext, name)
try:
    spark_ext.write_delta
except TxnLogError as error:
    print(json.dumps(str(error)))
"""
    told, _ = run(project, code)
    assert str(project / "catalog.py") in told


def test_a_package_that_is_not_installed_is_called_missing() -> None:
    with pytest.raises(UnsupportedFeature, match=r"no_such_package\.part is missing: Python finds no no_such_package"):
        check_not_hidden("no_such_package.part")
    check_not_hidden("catalog.publication.publications")
