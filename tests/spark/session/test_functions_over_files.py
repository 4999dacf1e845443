"""Where a plain ``udf`` never returns in Spark 4.2.0, which docs/spark.md warns of, and where it does.

Spark hangs where it passes the columns of a Parquet scan to the function as they are. Each session is a process of its
own, since nothing else ends a task that hangs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import txnlog
from tests.client.support import SCHEMA, rows
from tools.java_archive import QUICK

HANGS_AFTER_S = 20
"""Ten rows take a second."""

PROGRAM = """
import sys
from pyspark.sql import SparkSession, functions as F
import spark_ext

path, setting, *calls = sys.argv[1:]
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
made = made.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
made = made.config("spark.ui.showConsoleProgress", "false")
spark = made.config("spark.sql.execution.arrow.pythonUDF.columnarInput.enabled", setting).getOrCreate()
topic = spark_ext.read_topic(spark, path)
files = spark.read.parquet(*topic.inputFiles())
more, even = F.udf(lambda id: id + 1, "bigint"), F.udf(lambda id: id % 2 == 0, "boolean")
asked = {
    "files": lambda: files.select(more("id")),
    "topic": lambda: topic.select(more("id")),
    "topic, another column": lambda: topic.withColumn("more", more("id")),
    "topic, filter": lambda: topic.where(even("id")),
    "topic, filter of a column": lambda: topic.withColumn("even", even("id")).where("even"),
    "format": lambda: spark.read.format("txnlog").load(path).where(even("id")),
}
for call in calls:
    print("asks", call, flush=True)
    print("got", call, asked[call]().count() if call == "format" else len(asked[call]().collect()), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    with txnlog.open(tmp_path / "lake", namespace="shop", create=True) as ns:
        ns.create_topic("orders", SCHEMA)
        ns.produce("orders", rows(*range(10)))
    return f"{tmp_path}/lake/shop/orders"


@contextlib.contextmanager
def lines_of(*arguments: str) -> Iterator[queue.Queue[str]]:
    """Context with what a session of Spark prints, which is ended with all of its processes."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment = os.environ | {"SPARK_SUBMIT_OPTS": QUICK}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    ) as process:
        found: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None, "a pipe was asked for"
            for line in process.stdout:
                found.put(line.strip())

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        try:
            yield found
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    reading.join(10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "calls", "hangs"),
    [
        ("true", ["files"], True),
        ("true", ["topic", "topic, another column", "format", "topic, filter"], True),
        ("true", ["topic, filter of a column"], True),
        (
            "false",
            ["files", "topic", "topic, another column", "format", "topic, filter", "topic, filter of a column"],
            False,
        ),
    ],
)
@pytest.mark.usefixtures("spark")  # whose surroundings these sessions inherit
def test_a_plain_function_directly_over_a_parquet_scan_hangs_in_spark_420_unless_the_setting_is_false(
    path: str, setting: str, calls: list[str], hangs: bool
) -> None:
    with lines_of(path, setting, *calls) as lines:
        for call in calls:
            assert lines.get(timeout=100) == f"asks {call}"
            rows_of_it = 5 if "filter" in call or call == "format" else 10
            if hangs and call == calls[-1] and pyspark.__version__ == "4.2.0":
                with pytest.raises(queue.Empty):
                    lines.get(timeout=HANGS_AFTER_S)
            else:
                assert lines.get(timeout=HANGS_AFTER_S) == f"got {call} {rows_of_it}"
