"""A small, real use of an installed txnlog, which ``tools.matrix`` runs in each environment with ``python -I``.

It imports nothing of the checkout. It ends with exit code 0 after it wrote and read messages in Python and through
Spark, and says which versions it did that with.
"""

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("txnlog", "txnlog.errors", "txnlog.testing", "catalog", "spark_ext")


def main() -> int:
    """Use it, and print the versions as JSON."""
    import_every_public_name()
    with tempfile.TemporaryDirectory() as folder:
        use_python(folder + "/lake")
        use_it_to_the_end(folder + "/lake")
        spark_version = use_spark(folder + "/lake")
    versions = asked_on_the_command_line()
    same("PySpark", versions["packages"]["pyspark"], spark_version)
    print(json.dumps(versions))
    return 0


def import_every_public_name() -> None:
    """Each name of each ``__all__`` is there, from the environment and not from a checkout."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        same(f"{package} in {sys.prefix}", Path(module.__file__ or "").is_relative_to(sys.prefix), True)
        for name in module.__all__:
            getattr(module, name)


def use_python(root: str) -> None:
    """A transaction over two topics, and what it wrote at the version that its commit returned."""
    import pyarrow as pa  # noqa: PLC0415 - whatever the environment lacks is to fail in its step

    import txnlog  # noqa: PLC0415

    with txnlog.open(root, namespace="sales", create=True) as ns:
        ns.create_topic("orders", schema=pa.schema([("id", pa.int64()), ("what", pa.string())]), partitions=2)
        ns.create_topic("audit", schema=pa.schema([("note", pa.string())]))
        with ns.begin() as txn:
            txn.produce("orders", [{"id": 1, "what": "apples"}, {"id": 2, "what": "pears"}])
            txn.produce("audit", [{"note": "two orders"}])
        assert txn.result is not None  # for the checker of types
        snapshot = ns.snapshot(version=txn.result.version)
        same("orders", sorted(snapshot.read("orders")["id"].to_pylist()), [1, 2])
        same("audit", snapshot.read("audit").to_pylist(), [{"note": "two orders"}])
        same("before it", ns.snapshot(version=txn.result.version - 1).read("audit").num_rows, 0)


def use_it_to_the_end(root: str) -> None:
    """A thread that outlives the script, a commit of its last line, and ``close`` by atexit: Pythons differ there."""
    script = """
import atexit, sys, threading, time
import txnlog
ns = txnlog.open(sys.argv[1], namespace="sales")
def late():
    threading.main_thread().join()
    time.sleep(2)  # the engine of the client is idle
    ns.produce("audit", [{"note": "late"}])
threading.Thread(target=late).start()
atexit.register(ns.close)
txn = ns.begin()
txn.produce("audit", [{"note": "last"}])
txn.commit_async().add_done_callback(lambda future: print("called", bool(future.result().version)))
"""
    command = [sys.executable, "-I", "-c", script, root]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    same("at the end of a script", (ran.stdout, ran.stderr, ran.returncode), ("called True\n", "", 0))


def use_spark(root: str) -> str:
    """Write and read through the format ``txnlog``, which Spark finds by itself; the version of Spark."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[1]").appName("matrix")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1")
    spark: SparkSession = builder.getOrCreate()
    try:
        path = root + "/sales/orders"
        more = spark.createDataFrame([(3, "plums"), (4, "figs")], "id bigint, what string")
        more.write.format("txnlog").mode("append").save(path)
        same("read by Spark", sorted(row.id for row in spark.read.format("txnlog").load(path).collect()), [1, 2, 3, 4])
        use_spark_ext(spark, root)
        return spark.version
    finally:
        spark.stop()


def use_spark_ext(spark: "SparkSession", root: str) -> None:
    """A transaction over DataFrames, and Spark's own reader of the segments."""
    import spark_ext  # noqa: PLC0415
    import txnlog  # noqa: PLC0415

    with spark_ext.transaction(spark, root + "/sales") as txn:
        txn.write(spark.createDataFrame([(5, "nuts")], "id bigint, what string"), "orders")
        txn.write(spark.createDataFrame([("a third",)], "note string"), "audit")
    same("read natively", spark_ext.read_topic(spark, root + "/sales/audit").count(), 4)
    with txnlog.open(root, namespace="sales", mode="r") as ns:
        notes = sorted(ns.snapshot().read("audit")["note"].to_pylist())
        same("what the end brought", notes, ["a third", "last", "late", "two orders"])
        same("read in Python", sorted(ns.snapshot().read("orders")["id"].to_pylist()), [1, 2, 3, 4, 5])


def asked_on_the_command_line() -> dict[str, dict[str, str]]:
    """What ``txnlog --version --json`` prints."""
    command = [str(Path(sys.executable).with_name("txnlog")), "--version", "--json"]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, str]] = json.loads(ran.stdout)
    return found


def same(what: str, found: object, wanted: object) -> None:
    """End the check where the two differ, also under ``python -O``."""
    if found != wanted:
        raise AssertionError(f"{what}: {found!r}, and not {wanted!r}")


if __name__ == "__main__":
    sys.exit(main())
