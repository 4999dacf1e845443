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

import pytest
import yaml  # comes with myst-parser, which builds the pages

from tests.pages import page
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
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "type", "title", "authors", "abstract", "keywords"} <= set(found)
    assert all(author.get("name") or author.get("family-names") for author in found["authors"])
    assert (found["version"], found["license"]) == (PROJECT["version"], PROJECT["license"])
    # The changelog has the date of a release, and "Unreleased" before it.
    (when,) = re.findall(rf"^## {re.escape(PROJECT['version'])} - (\S+)$", page("CHANGELOG.md"), re.MULTILINE)
    assert str(found.get("date-released", "Unreleased")) == when


def test_the_changelog_has_the_kinds_of_keep_a_changelog_each_once_a_release():
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for release in re.split(r"^## ", page("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.+)$", release, re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found], release.splitlines()[0]


def test_a_bug_report_asks_for_the_versions_and_warns_of_secrets():
    form = yaml.safe_load(page(".github/ISSUE_TEMPLATE/bug_report.yml"))
    (versions,) = [item for item in form["body"] if item.get("id") == "versions"]
    assert "`txnlog --version --json`" in versions["attributes"]["description"]
    assert versions["validations"]["required"] is True
    (first,) = [item["attributes"]["value"] for item in form["body"] if item["type"] == "markdown"]
    assert all(word in first for word in ("SECURITY.md", "passwords", "keys", "tokens", "storage options"))


@pytest.mark.parametrize("name", ["bug_report", "feature_request"])
def test_an_issue_form_has_what_a_form_must_have(name):
    form = yaml.safe_load(page(f".github/ISSUE_TEMPLATE/{name}.yml"))
    assert {"name", "description", "body"} <= set(form)
    asked = [item for item in form["body"] if item["type"] != "markdown"]
    assert {item["type"] for item in asked} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({item["id"] for item in asked}) == len(asked)
    assert all(item["attributes"]["label"] for item in asked)
    for item in asked:
        options = item["attributes"].get("options")
        assert (options is not None) == (item["type"] in {"dropdown", "checkboxes"})
        # Without quotes YAML takes yes and no for truth values, and the form is refused.
        assert all(isinstance(option, str | dict) for option in options or ())


def test_an_issue_needs_a_form():
    assert yaml.safe_load(page(".github/ISSUE_TEMPLATE/config.yml"))["blank_issues_enabled"] is False


def test_the_security_page_says_how_to_report_what_for_which_versions_and_what_never_goes_into_a_report():
    text = page("SECURITY.md")
    for start in ("Reporting.", "What never goes into a report", "Versions.", "In scope.", "Out of scope."):
        assert f"**{start}" in text
    assert "(SECURITY.md)" in page("README.md")


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
