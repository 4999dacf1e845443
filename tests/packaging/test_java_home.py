"""Which Java the targets of the Makefile take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import java_home


def settings(version: str, home: str) -> str:
    return (
        f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n    java.vendor = X\n"
    )


@pytest.mark.parametrize(
    ("version", "usable"), [("1.8", False), ("11", False), ("17", True), ("21", True), ("25", True)]
)
def test_java_17_and_newer_are_usable(version, usable):
    found = java_home.parse_settings(settings(version, "/opt/java with a blank"))
    assert found == (Path("/opt/java with a blank") if usable else None)


@pytest.mark.parametrize("text", ["", "no such option", "    java.home = /opt/java\n"])
def test_an_answer_that_says_too_little_is_no_java(text):
    assert java_home.parse_settings(text) is None


def fake_java(folder: Path, version: str) -> Path:
    """A program that answers like a Java of that version and returns its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{settings(version, str(folder))}END\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def no_bundled_java(monkeypatch):
    monkeypatch.setattr(java_home, "bundled_home", lambda: None)


@pytest.mark.usefixtures("no_bundled_java")
def test_java_home_comes_before_the_path(tmp_path, monkeypatch):
    first, second = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", f"{second}/bin:/bin:/usr/bin")
    assert java_home.find_java_home() == first


@pytest.mark.usefixtures("no_bundled_java")
def test_a_java_home_that_is_too_old_is_passed_over(tmp_path, monkeypatch):
    old, new = fake_java(tmp_path / "a", "11"), fake_java(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new}/bin:/bin:/usr/bin")
    assert java_home.find_java_home() == new


@pytest.mark.usefixtures("no_bundled_java")
def test_without_any_java_the_message_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_home.main() == 1
    assert "make install" in capsys.readouterr().err


def test_without_any_java_the_bundled_one_is_taken(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    home = java_home.find_java_home()
    assert home is not None
    # As Spark's launcher calls it.
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/bin:/usr/bin"})
    assert "21" in answer.stderr


def test_the_wrapped_java_gets_every_other_argument_unchanged(tmp_path):
    program = tmp_path / "a folder" / "java"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor argument; do echo "<$argument>"; done\n')
    program.chmod(0o755)
    home = java_home.wrap(program, tmp_path / "home")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME 'y' \"z\"", "--add-modules=ALL"]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    expected = [argument for argument in arguments if argument != "--add-modules=jdk.incubator.vector"]
    assert answer.stdout.splitlines() == [f"<{argument}>" for argument in expected]
