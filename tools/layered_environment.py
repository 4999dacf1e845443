"""Environments that have a few packages of their own, by a lock, and take all others from the one that makes them."""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

from tools.install import ensure_environment, ensure_installed


def install(folder: Path, lock: Path, *, stamp: str) -> Path:
    """The Python of the environment in ``folder``; the first call makes it.

    Args:
        folder: where the environment lies.
        lock: its own packages, with digests.
        stamp: names the file in the environment that says with which lock it was made.
    """
    python = folder / "bin" / "python"
    ensure_environment(folder, python)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Behind the environment's own packages, so that these are found first; this one's path files count as well.
    (packages / "usual.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--use-pep517", "--no-deps", "--require-hashes", "--requirement", str(lock)]
    ensure_installed(folder / f"{stamp}.sha256", digest, [command])
    return python
