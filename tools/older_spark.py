"""Run a command in an environment with an older PySpark: its own is ``.venv-spark40``, all else is taken from this one.

``python -m tools.older_spark 4.0 -m pytest tests/spark`` runs that with the PySpark of ``requirements/spark-4.0.lock``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from tools.install import ROOT, ensure_environment, ensure_installed, one_at_a_time


def main(arguments: list[str]) -> int:
    """Make the environment, if it is not there, and run the rest of the arguments in its Python."""
    version, *command = arguments
    with one_at_a_time():
        python = install(version)
    # This environment's home of Spark is another version; without one PySpark takes its own.
    others = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    environment = {**others, "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    return subprocess.run([str(python), *command], env=environment, cwd=ROOT, check=False).returncode


def install(version: str) -> Path:
    """The Python of the environment."""
    lock = ROOT / "requirements" / f"spark-{version}.lock"
    folder = ROOT / f".venv-spark{version.replace('.', '')}"
    python = folder / "bin" / "python"
    ensure_environment(folder, python)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Behind the environment's own packages, so that its PySpark is found first; this one's path files count as well.
    (packages / "usual.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--use-pep517", "--no-deps", "--require-hashes", "--requirement", str(lock)]
    ensure_installed(folder / "pyspark.sha256", digest, command)
    return python


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
