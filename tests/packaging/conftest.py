"""What the packaging tests share: the files of the checkout, and the wheel built from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def project_files() -> list[str]:
    """Every file that git tracks or would track, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in set(listing.split("\0")) if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def wheel(project_files: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built offline from a copy of the whole checkout, tests and all."""
    source = tmp_path_factory.mktemp("source")
    for name in project_files:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built
