"""Run a command in an environment with an older PySpark: its own is ``.venv-spark40``, all else is taken from this one.

``python -m tools.older_spark 4.0 -m pytest tests/spark`` runs that with the PySpark of ``requirements/spark-4.0.lock``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools import layered_environment
from tools.install import ROOT, one_at_a_time


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
    return layered_environment.install(ROOT / f".venv-spark{version.replace('.', '')}", lock, stamp="pyspark")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
