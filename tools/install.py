"""Make the virtual environment of the checkout, exactly as ``requirements/dev.lock`` says; do nothing if it is there.

``python3 tools/install.py [FOLDER]`` needs nothing but Python: the Makefile calls it before every target. What was
installed is remembered by digest in the environment itself, so an unchanged lock costs some milliseconds, whatever
the times of the files are.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MINIMUM_PYTHON = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.lock"

LOTS = 8
"""In so many lots the lock is installed: enough that the processors end at about the same time, few enough that
starting pip for each costs little."""


def main(arguments: "list[str]") -> int:
    """Bring the environment up to date and return the exit code."""
    if sys.version_info < MINIMUM_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(
            f"txnlog needs Python 3.11 or newer, but {sys.executable} is Python {found}.\n"
            "Name another one: make PYTHON=/path/to/python3 ...\n"
        )
        return 1
    folder = ROOT / (arguments[0] if arguments else ".venv")
    with one_at_a_time():
        install(folder)
    return 0


@contextlib.contextmanager
def one_at_a_time() -> "Iterator[None]":
    """Let two commands that were started at once install one after the other."""
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(folder: Path) -> None:
    """Make the environment, install what the lock says, then this project itself in place."""
    python = folder / "bin" / "python"
    ensure_environment(folder, python)
    # Nothing is compiled that may never be imported: it would take half of the time.
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    lock = LOCK.read_bytes()
    ensure_installed(folder / "lock.sha256", hashlib.sha256(lock).hexdigest(), lots_of_lock(pip, folder))
    # The compat mode puts the root itself on the path, so that Spark's search for `pyspark_*` modules finds ours.
    in_place = ["--no-deps", "--no-build-isolation", "--config-settings", "editable_mode=compat", "--editable"]
    ensure_installed(
        folder / "project.sha256",
        hashlib.sha256(lock + packaging_settings()).hexdigest(),
        [[*pip, *in_place, str(ROOT)]],
    )


def lots_of_lock(pip: "list[str]", folder: Path) -> "Iterator[list[str]]":
    """Yield the commands that install the lock between them, in any order and several at once.

    pip takes one distribution after the other, and unpacking PySpark alone takes it a third of the time. The lock names
    every distribution with its exact version, so no pip needs to know what another one installs.
    """
    # A distribution begins in the first column; its hashes and comments are indented below it.
    distributions = re.findall(r"^\w.*(?:\n[ \t].*)*", LOCK.read_text(), re.MULTILINE)
    for number in range(LOTS):
        lot = folder / f"lock-{number}.txt"
        lot.write_text("\n".join(distributions[number::LOTS]) + "\n")
        yield [*pip, "--no-deps", "--require-hashes", "--requirement", str(lot)]


def packaging_settings() -> bytes:
    """Return what pyproject.toml says about the package: a setting of a linter is no reason to install it again."""
    import tomllib  # noqa: PLC0415 (an older Python must come as far as the message that it is too old)

    with (ROOT / "pyproject.toml").open("rb") as file:
        settings = tomllib.load(file)
    chosen = [settings["build-system"], settings["project"], settings["tool"]["setuptools"]]
    return json.dumps(chosen, sort_keys=True).encode()


def ensure_environment(folder: Path, python: Path) -> None:
    """Make the environment anew if it is missing or of another Python than the one that runs this."""
    marker = folder / "python.version"
    if python.exists() and marker.exists() and marker.read_text() == sys.version:
        return
    sys.stdout.write(f"Making {folder.name} with Python {sys.version.split()[0]}\n")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    marker.write_text(sys.version)


def ensure_installed(stamp: Path, digest: str, commands: "Iterable[list[str]]") -> None:
    """Run the commands unless ``stamp`` says that it was done with this digest; the stamp is written last.

    Each processor has one of them at a time. The error of one that fails ends all of it.
    """
    if stamp.exists() and stamp.read_text() == digest:
        return
    stamp.unlink(missing_ok=True)
    sys.stdout.write(f"Installing: {stamp.stem}\n")
    sys.stdout.flush()
    with ThreadPoolExecutor(os.cpu_count()) as processors:
        for _ in processors.map(run, commands):
            pass
    stamp.write_text(digest)


def run(command: "list[str]") -> None:
    """Run a command in the root of the checkout."""
    subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.CalledProcessError as failure:
        sys.exit(failure.returncode or 1)
