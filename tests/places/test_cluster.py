"""A standalone cluster of two workers that have pyspark, pyarrow and pandas only: our wheel comes with the job."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import txnlog
from tests.places.servers import HOME, environment_of, standalone_cluster
from tests.places.support import DEADLINE_S, ROOT, SMALL, check, run_pipeline, settings, story_of

ABSENT = ("click", "fsspec", "msgspec", "s3fs", "spark_ext", "txnlog", "xxhash")
EXAMPLE = ROOT / "examples" / "submit" / "late_flights.py"

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's URL."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def conf(cluster: str) -> dict[str, str]:
    """Two small executors."""
    return {**SMALL, "spark.master": cluster, "spark.executor.cores": "1", "spark.executor.memory": "512m"}


def test_the_second_environment_has_nothing_of_ours(second_python: str) -> None:
    script = f"""
import importlib.util, pandas, pyarrow, pyspark
print(*[name for name in {ABSENT} if importlib.util.find_spec(name)])
"""
    done = subprocess.run([second_python, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_pipeline_runs_where_executors_have_pyspark_pyarrow_and_pandas(
    cluster: str, wheel: Path, second_python: str, tmp_path: Path
) -> None:
    steps = story_of("cluster", ("read", "native", "visible", "stream", "sink", "process", "refused"))
    steps.append("executors")
    seen = run_pipeline(tmp_path, steps, conf={**conf(cluster), **settings(wheel, second_python)}, python=second_python)
    check(seen, elsewhere=["executors"])
    assert seen["executors"]["pythons"] == [second_python]
    assert all(f"/{wheel.name}/" in home for home in seen["executors"]["homes"])


def submitted(wheel: Path, conf: Mapping[str, str], python: str, arguments: Sequence[str]) -> str:
    """The first line that the example prints."""
    told = [argument for name, value in conf.items() for argument in ("--conf", f"{name}={value}")]
    command = [str(HOME / "bin" / "spark-submit"), "--py-files", str(wheel), *told, str(EXAMPLE), *arguments]
    done = subprocess.run(
        command, env=environment_of(python), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout.splitlines()[0]


@pytest.mark.long  # two more drivers and two executors, in a minute of a processor
def test_an_example_is_submitted_to_the_cluster_and_again_without_it_and_counts_once(
    cluster: str, wheel: Path, second_python: str, tmp_path: Path
) -> None:
    delays = {"AA": ("20", "3", "", "15"), "UA": ("-2", "14"), "B6": ("90",)}
    rows = [(name, number, "MIA", delay) for name, found in delays.items() for number, delay in enumerate(found)]
    with (tmp_path / "flights.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("carrier", "flight", "dest", "dep_delay"), *rows])
    arguments = [str(tmp_path / "lake"), "2013-01-01", str(tmp_path / "flights.csv")]
    shipped = {name: value for name, value in settings(wheel, second_python).items() if "pyFiles" not in name}
    places = [
        ({**conf(cluster), **shipped}, second_python, "2013-01-01: 7 flights"),
        ({**SMALL, "spark.master": "local[2]"}, sys.executable, "2013-01-01 was loaded before"),
    ]
    for where, python, first_line in places:
        assert submitted(wheel, where, python, arguments) == first_line
        with txnlog.open(str(tmp_path / "lake"), namespace="airport", mode="r") as ns:
            snapshot = ns.snapshot()
            assert snapshot.read("flights").num_rows == 7
            assert sorted(snapshot.read("late").column("carrier").to_pylist()) == ["AA", "AA", "B6"]
            counts = {row["carrier"]: (row["flights"], row["late"]) for row in snapshot.read("counts").to_pylist()}
            assert counts == {"AA": (4, 2), "B6": (1, 1), "UA": (2, 0)}
            assert sum(item.behind_messages for item in ns.lag("flights", "late")) == 0
