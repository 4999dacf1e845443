"""Programs of others that are built from their Go modules into ``out/``, once: minutes of CPU each."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

OUT: Final = Path(__file__).resolve().parent.parent / "out"

_BUILD_SECONDS: Final = 3_600


def built(name: str, package: str, version: str, *, tags: str = "") -> Path:
    """The program of a Go package at a version, built if it is not there."""
    folder = OUT / f"{name}-{version}"
    program = folder / name
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    module = f"{package}@{version}"
    print(f"Building {module} (once, minutes)", flush=True)
    with tempfile.TemporaryDirectory(prefix="go-", dir=folder) as place:
        # Below our own folder, and writable, so that a gigabyte of sources goes with it.
        settings = {"GOPATH": place, "GOBIN": place, "GOFLAGS": "-modcacherw -buildvcs=false", "CGO_ENABLED": "0"}
        command = ["go", "install", *(["-tags", tags] if tags else []), module]
        subprocess.run(command, env={**os.environ, **settings}, cwd=place, check=True, timeout=_BUILD_SECONDS)
        shutil.move(Path(place) / name, program)
    return program


__all__ = ["OUT", "built"]
