"""The home of Spark in which Python processes do not compile PySpark anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from tools.spark_home import LINKED, spark_home

PACKAGE = Path(pyspark.__file__).parent


def test_it_leads_to_the_installed_spark_and_has_no_pyspark_of_its_own(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    assert {entry.name: entry.resolve() for entry in home.iterdir()} == {name: PACKAGE / name for name in LINKED}
    assert next((home / "jars").glob("spark-core_*.jar")).is_file()
    assert (PACKAGE / "python" / "lib" / "pyspark.zip").is_file(), "what it is there for"


def test_it_is_made_once_and_as_a_whole(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    (home / "kept").touch()
    assert spark_home(tmp_path) == home
    assert (home / "kept").exists()
    assert list(tmp_path.iterdir()) == [home]


def test_the_command_prints_that_of_this_environment() -> None:
    program = Path(__file__).parents[2] / "tools" / "spark_home.py"
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{spark_home(Path(sys.prefix))}\n"
