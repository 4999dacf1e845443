"""Print Java options with which Spark's drivers start in half of the time: an archive of the classes that they load.

The archive lies in the environment and is made by the first call: a small session does a little of everything, which
takes half a minute of a processor, as much as eight starts save. Java leaves it aside, silently, where it does not fit:
another Java, another Spark, other jars. Spark's scripts take the options out of ``SPARK_SUBMIT_OPTS``.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from tools.java_home import find_java_home
from tools.spark_home import home_in, spark_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""For sessions of queries that each run once: what the second compiler takes never comes back.

An archive fits only the collector that it was made with, so that it and all who use it name these options.
"""

# What a Java says of an archive is nothing that anybody who runs a query wants to read.
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
LONGEST_S = 300
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Print the options; nothing where no archive could be made, for all works without."""
    archive = archive_of(Path(sys.prefix))
    with one_at_a_time():
        there = archive.exists() or make(archive)
    if there:
        sys.stdout.write(f"-Xshare:auto -XX:SharedArchiveFile={archive} {SILENT}\n")
    return 0


@contextlib.contextmanager
def one_at_a_time() -> "Iterator[None]":
    """Let who asks while the archive is being made wait for it, instead of making another one."""
    with Path(__file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def archive_of(folder: Path) -> Path:
    """Where the archive lies that belongs to this Java and this Spark."""
    home = find_java_home()
    release = home / "release" if home is not None else None
    text = release.read_text() if release is not None and release.is_file() else ""
    digest = hashlib.sha256(f"{home}\n{text}\n{home_in(folder)}\n{pyspark.__version__}".encode())
    return folder / f"spark-classes-{digest.hexdigest()[:16]}.jsa"


def make(archive: Path) -> bool:
    """Make the archive; whether it is there afterwards."""
    with tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent) as folder:
        made = Path(folder) / "made.jsa"
        options = f"{QUICK} -XX:ArchiveClassesAtExit={made} {SILENT}"
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # The jars must lie where those who use it find them.
        spark = {"SPARK_HOME": str(spark_home(archive.parent)), "SPARK_LOCAL_IP": "127.0.0.1"}
        environment = os.environ | python | spark | {"SPARK_SUBMIT_OPTS": options}
        command = [sys.executable, "-m", "tools.java_archive", "session", folder]
        try:
            subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=LONGEST_S)
            made.replace(archive)  # whole, or not there: two processes may do this at once
        except (OSError, subprocess.SubprocessError):
            return False
    return True


def session(folder: Path) -> None:
    """Batches, files, Python and a stream, once each, so that their classes are loaded."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (the process that prints the options needs none of it)

    builder = SparkSession.builder.master("local[1]").appName("classes")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "a session of this process"
    java = gateway.proc
    frame = spark.createDataFrame([(number, str(number)) for number in range(10)], "id long, name string")
    frame.mapInArrow(lambda batches: batches, frame.schema).groupBy("name").count().collect()
    frame.write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    read.where("id > 3").orderBy("id").toArrow()
    stream = spark.readStream.schema(read.schema).parquet(str(folder / "rows"))
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    writer.foreachBatch(_count).start().awaitTermination()
    spark.stop()
    # It ends when nobody writes to it any more, and only then writes the archive.
    java.stdin.close()
    java.wait(LONGEST_S)


def _count(batch: "DataFrame", _: int) -> None:
    batch.count()


if __name__ == "__main__":
    if sys.argv[1:2] == ["session"]:
        session(Path(sys.argv[2]))
    else:
        sys.exit(main())
