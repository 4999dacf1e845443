"""What must be in no file of the project, and what the lock must say."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Put together here, so that this file does not contain what it looks for.
INDEX_HOSTS = [
    "pypi" + ".org",
    "files.python" + "hosted.org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
    "repo.maven" + ".apache.org",
    "repo1.maven" + ".org",
    "static.crates" + ".io",
    "index.crates" + ".io",
    "proxy.golang" + ".org",
    "deb.debian" + ".org",
]
INDEX_OPTIONS = [r"(?<!no-emit-)(?:extra-)?index" + r"[-_]url\b", r"(?<!no-emit-)find" + r"[-_]links\b"]
MACHINE_FOLDERS = ["work", "root", "opt/wheels", "home/[a-z]+", "Users/[A-Za-z]+"]

FORBIDDEN = re.compile(
    "|".join(
        [
            *(re.escape(host) for host in INDEX_HOSTS),
            *INDEX_OPTIONS,
            # A path on someone's machine: not the inside of a longer path or URL.
            *(rf"(?<![\w./~>}}$*)]){'/' + folder}/" for folder in MACHINE_FOLDERS),
        ]
    )
)


def lines_with(pattern: re.Pattern[str], file: Path) -> list[str]:
    """The lines of a text file that match; bytes that are no text count as they look."""
    lines = file.read_bytes().decode("utf-8", errors="replace").splitlines()
    return [f"{number}: {line.strip()[:160]}" for number, line in enumerate(lines, 1) if pattern.search(line)]


def test_no_file_names_a_package_index_or_a_machine_path(project_files):
    found = {name: lines for name in project_files if (lines := lines_with(FORBIDDEN, ROOT / name))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "--index" + "-url https://example.org/simple",
        "PIP_EXTRA_INDEX" + "_URL=x".lower(),
        "see https://pypi" + ".org/project/x",
        "path = '/wo" + "rk/main/x'",
        "open(/ro" + "ot/.config/x)",
        "/ho" + "me/ada/lake",
    ],
)
def test_the_search_finds_what_it_should(line):
    assert FORBIDDEN.search(line) or FORBIDDEN.search(line.lower())


@pytest.mark.parametrize(
    "line", ["s3://bucket/root/sales", "uv --no-emit-index" + "-url", "framework/root", "<root>/work/"]
)
def test_the_search_lets_the_rest_pass(line):
    assert not FORBIDDEN.search(line)


def test_no_file_takes_helpers_from_a_module_of_tests(project_files):
    """They would be lost with it, or its tests collected twice: helpers have modules of their own."""
    imports = re.compile(r"^\s*(from tests[\w.]*\.test_|import tests[\w.]*\.test_|from tests[\w.]* import .*\btest_)")
    found = {
        name: lines for name in project_files if name.endswith(".py") and (lines := lines_with(imports, ROOT / name))
    }
    assert found == {}


def test_every_page_that_a_module_names_is_there(project_files):
    named = {
        page
        for name in project_files
        if name.endswith(".py")
        for page in re.findall(r"\bdocs/[\w/.-]*\.md\b", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert sorted(page for page in named if not (ROOT / page).is_file()) == []


def test_every_requirement_of_the_lock_is_pinned_with_hashes():
    text = (ROOT / "requirements" / "dev.lock").read_text()
    entries = re.split(r"\n(?=[a-z0-9])", text[re.search(r"^[a-z0-9]", text, re.MULTILINE).start() :])
    assert len(entries) > 50
    for entry in entries:
        assert re.match(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==\S+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_the_lock_covers_every_direct_dependency():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"].values()
    direct = {
        re.match(r"[A-Za-z0-9-]+", text).group() for texts in (project["dependencies"], *extras) for text in texts
    }
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE))
    assert direct - {"txnlog"} <= locked


def test_ci_can_be_started():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_target_of_the_makefile_is_explained():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z][a-z0-9-]*):.*?## \S", makefile, re.MULTILINE))
    phony = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE).group(1).split())
    assert targets == explained == phony


def test_every_decision_has_its_number_once():
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert all(number.isdigit() for number in numbers)
    assert len(numbers) == len(set(numbers))
