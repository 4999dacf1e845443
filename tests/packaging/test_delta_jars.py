"""Delta's jars are fetched once, with Maven, and who has none is told."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import delta_jars

MAVEN = """\
#!/bin/sh
echo ran >> {log}
for argument; do
    case "$argument" in -DoutputDirectory=*) touch "${{argument#*=}}/b.jar" "${{argument#*=}}/a.jar" ;; esac
done
{end}
"""


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """A function that puts a Maven on the path, which ends as it is told; the file with its calls."""
    monkeypatch.setattr(delta_jars, "FOLDER", tmp_path / "jars")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def put(end: str = "exit 0") -> Path:
        program = tmp_path / "mvn"
        program.write_text(MAVEN.format(log=tmp_path / "log", end=end), encoding="utf-8")
        program.chmod(0o755)
        return tmp_path / "log"

    return put


def test_jars_are_fetched_once_for_the_installed_versions(maven):
    log = maven()
    first = delta_jars.delta_jars()
    assert [Path(jar).name for jar in first] == ["a.jar", "b.jar"]
    assert delta_jars.delta_jars() == first
    assert log.read_text(encoding="utf-8") == "ran\n"
    pom = Path(first[0]).with_name("pom.xml").read_text(encoding="utf-8")
    assert "<artifactId>delta-spark_4." in pom
    assert "{" not in pom


def test_of_several_processes_that_need_them_at_once_one_fetches_them(maven):
    """FAILED: test processes copied into one folder, and one emptied it beneath the other."""
    log = maven("sleep 0.3")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: delta_jars.delta_jars(), range(4)))
    assert [len(jars) for jars in found] == [2, 2, 2, 2]
    assert log.read_text(encoding="utf-8") == "ran\n"


def test_what_maven_says_is_reported_and_the_next_call_tries_again(maven, capsys):
    maven("echo no such artifact; exit 1")
    assert delta_jars.main() == 1
    assert "no such artifact" in capsys.readouterr().err
    maven()
    assert delta_jars.main() == 0
    assert capsys.readouterr().out.count(".jar") == 2


def test_a_maven_that_does_not_end_is_reported_and_the_next_call_tries_again(maven, monkeypatch, capsys):
    maven("exec sleep 600")
    monkeypatch.setattr(delta_jars, "MAVEN_TIMEOUT_S", 0.5)
    assert delta_jars.main() == 1
    assert re.search(r"Maven has not fetched io\.delta:\S+ within 0\.5 s\. Run it again", capsys.readouterr().err)
    assert [folder.suffix for folder in delta_jars.FOLDER.iterdir()] == [".part"], "some jars are not taken for all"
    monkeypatch.setattr(delta_jars, "MAVEN_TIMEOUT_S", 60)
    maven()
    assert delta_jars.main() == 0


@pytest.mark.usefixtures("maven")
def test_without_maven_the_way_out_is_reported(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert delta_jars.main() == 1
    assert "Install Maven 3.8 or newer." in capsys.readouterr().err
