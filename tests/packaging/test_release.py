"""What a release promises: one version, the same bytes, extras that leave DuckDB alone, and a report without names."""

from __future__ import annotations

import getpass
import io
import json
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from tools.release import EXTRAS, normalised

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def packed(mtime: int, owner: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        entry = tarfile.TarInfo("txnlog/a.py")
        entry.mtime, entry.uname, entry.size = mtime, owner, 3
        archive.addfile(entry, io.BytesIO(b"x=1"))
    return stream.getvalue()


def test_an_sdist_does_not_show_who_packed_it_and_when():
    assert packed(1, "ann") != packed(2, "bob")
    assert normalised(packed(1, "ann"), 9) == normalised(packed(2, "bob"), 9)


def test_the_citation_has_the_version_of_the_library():
    found = dict(re.findall(r"^([a-z-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"cff-version", "message", "type", "title", "date-released"} <= set(found)
    assert (found["version"], found["license"]) == (PROJECT["version"], PROJECT["license"])


def test_no_extra_of_users_touches_duckdb():
    extras = PROJECT["optional-dependencies"]
    assert [text for name in EXTRAS for text in extras[name] if "duckdb" in text] == []


def test_the_version_as_json_says_what_a_report_needs_and_names_nobody():
    for order in (["--version", "--json"], ["--json", "--version"]):
        ran = subprocess.run([sys.executable, "-m", "txnlog", *order], capture_output=True, text=True, check=True)
        told = json.loads(ran.stdout)
        assert set(told) == {"txnlog", "format", "python", "platform", "packages"}
        assert {"pyarrow", "fsspec", "s3fs", "pyspark"} <= set(told["packages"])
        assert told["txnlog"] == PROJECT["version"]
        names = {platform.node(), str(Path.home()), str(ROOT), sys.prefix} | {f'"{getpass.getuser()}"'}
        assert [name for name in names if name and name in ran.stdout] == []
