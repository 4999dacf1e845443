"""Jars that come with Maven, once: ``mvn`` reads a small pom, and copies what an artifact needs to run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>txnlog</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>
  </dependencies>
</project>
"""


class NoJarsError(Exception):
    """The jars cannot be had; the text says what to do."""


def jars(folder: Path, coordinates: str, *, groups: Sequence[str] | None = None, timeout_s: float) -> list[str]:
    """The paths of the jars of an artifact and of what it needs; the first call fetches them.

    Args:
        folder: where they are kept. It is there once all of them are.
        coordinates: ``GROUP:ARTIFACT:VERSION``.
        groups: whose jars are taken; everybody's by default.
        timeout_s: how long Maven may take.

    Raises:
        NoJarsError: there is no Maven, it fails, or takes too long.
    """
    if not folder.exists():
        with _alone():
            if not folder.exists():
                _fetch(folder, coordinates, groups, timeout_s)
    return sorted(str(jar) for jar in folder.glob("*.jar"))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process of this user at a time: what Maven has fetched it keeps in one place, which it does not guard."""
    with Path(tempfile.gettempdir(), f"txnlog-maven-{os.getuid()}.lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(folder: Path, coordinates: str, groups: Sequence[str] | None, timeout_s: float) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJarsError(
            f"{coordinates} comes with Maven, and there is no `mvn` on the path. Install Maven 3.8 or newer."
        )
    making = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    (making / "pom.xml").write_text(POM.format(*coordinates.split(":")), encoding="utf-8")
    command = [maven, "-q", "-B", PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={making}"]
    if groups is not None:
        command.append(f"-DincludeGroupIds={','.join(groups)}")
    try:
        done = subprocess.run(command, cwd=making, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise NoJarsError(
            f"Maven has not fetched {coordinates} within {timeout_s:g} s. Run it again: what it fetched, it has."
        ) from None
    if done.returncode:
        raise NoJarsError(f"Maven could not fetch {coordinates}:\n{(done.stdout + done.stderr)[-2000:]}")
    making.rename(folder)
