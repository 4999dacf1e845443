"""The archive of classes with which Spark's drivers start sooner, and what is done where there is none."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import java_archive
from tools.spark_home import home_in


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java, and an environment without an archive."""
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text("JAVA_VERSION=17")
    monkeypatch.setattr(java_archive, "find_java_home", lambda: home)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return home


def test_every_java_has_an_archive_of_its_own(java: Path, tmp_path: Path) -> None:
    first = java_archive.archive_of(tmp_path)
    assert java_archive.archive_of(tmp_path) == first
    (java / "release").write_text("JAVA_VERSION=21")
    assert java_archive.archive_of(tmp_path) != first


def test_an_archive_that_is_there_is_used_and_not_made_again(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = java_archive.archive_of(tmp_path)
    archive.touch()
    monkeypatch.setattr(java_archive, "make", lambda _: pytest.fail("it is there"))
    assert java_archive.main() == 0
    assert f"-XX:SharedArchiveFile={archive} " in capsys.readouterr().out


def test_without_an_archive_there_are_no_options_and_nothing_is_left_behind(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "false")  # a Python that ends with an error, instead of a session
    assert java_archive.main() == 0
    assert capsys.readouterr().out == ""
    assert set(tmp_path.iterdir()) == {java, home_in(tmp_path)}


def test_an_archive_is_there_as_a_whole(java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> None:
        assert not java_archive.archive_of(tmp_path).exists()
        (Path(command[-1]) / "made.jsa").write_bytes(b"classes")

    monkeypatch.setattr(subprocess, "run", run)
    archive = java_archive.archive_of(tmp_path)
    assert java_archive.make(archive)
    assert archive.read_bytes() == b"classes"
    assert set(tmp_path.iterdir()) == {archive, java, home_in(tmp_path)}


def test_who_asks_while_it_is_made_waits_for_it(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    making, go_on = threading.Event(), threading.Event()
    made: list[Path] = []

    def make(archive: Path) -> bool:
        making.set()
        assert go_on.wait(30)
        made.append(archive)
        archive.touch()
        return True

    monkeypatch.setattr(java_archive, "make", make)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(java_archive.main)
        assert making.wait(30)
        second = pool.submit(java_archive.main)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        go_on.set()
        assert (first.result(30), second.result(30)) == (0, 0)
    assert made == [java_archive.archive_of(tmp_path)]
    assert capsys.readouterr().out.count("-XX:SharedArchiveFile=") == 2


def test_the_demo_starts_as_the_archive_was_made() -> None:
    session = Path(__file__).parents[2] / "examples" / "demo" / "session.py"  # an example stands alone
    assert f'.config("spark.driver.extraJavaOptions", "{java_archive.QUICK}")' in session.read_text()
