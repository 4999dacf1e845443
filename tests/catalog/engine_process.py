"""Reads and tries to write Delta tables with foreign engines, in a process in which txnlog cannot be imported.

One JSON object a line comes in and one goes out. ``{"call": "read", "engine": "polars", "path": ..., "version": 3,
"out": file}`` leaves the rows as an Arrow file; ``{"call": "write", ...}`` tells what became of a write.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

REFUSED = ("txnlog", "catalog", "spark_ext", "pyspark_txnlog")


class _Absent:
    """As if the packages were not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Absent())


def check_absent() -> None:
    for name in REFUSED:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        raise AssertionError(f"{name} can be imported")


_cache: dict[str, Any] = {}


def spark() -> Any:
    if "spark" not in _cache:
        from pyspark.sql import SparkSession

        folder, quick = os.environ["TXNLOG_TEST_FOLDER"], os.environ["TXNLOG_TEST_JAVA"]
        settings = {
            "spark.jars": os.environ["TXNLOG_TEST_JARS"],
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={folder} {quick}",
            "spark.sql.warehouse.dir": folder,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "OFF",
        }
        builder = SparkSession.builder.master("local[2]").appName("txnlog-delta")
        for name, value in settings.items():
            builder = builder.config(name, value)
        _cache["spark"] = builder.getOrCreate()
    return _cache["spark"]


def duckdb() -> Any:
    if "duckdb" not in _cache:
        import duckdb as engine
        from duckdb_extensions import import_extension

        import_extension("delta")
        connection = engine.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("LOAD delta")
        _cache["duckdb"] = connection
    return _cache["duckdb"]


# --- reading ----------------------------------------------------------------------------------------------------------


def read_deltalake(path: str, version: int | None, where: str | None) -> Any:
    import deltalake

    table = deltalake.DeltaTable(path, version=version)
    if where is None:
        return table.to_pyarrow_table()
    return deltalake.QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {where}").read_all()


def read_arrow_dataset(path: str, version: int | None, where: str | None) -> Any:
    """By delta-rs as an Arrow dataset, which passes over files by itself; DuckDB only hands it the condition."""
    import deltalake

    dataset = deltalake.DeltaTable(path, version=version).to_pyarrow_dataset()
    return duckdb().from_arrow(dataset).filter(where or "true").to_arrow_table()


def read_polars(path: str, version: int | None, where: str | None) -> Any:
    import polars

    frame = polars.scan_delta(path, version=version)
    if where is not None:
        frame = frame.filter(polars.sql_expr(where))
    return frame.collect().to_arrow()


def read_duckdb(path: str, version: int | None, where: str | None) -> Any:
    at = "" if version is None else f", version={version}"
    condition = "" if where is None else f" WHERE {where}"
    found = duckdb().sql(f"SELECT * FROM delta_scan('{path}'{at}){condition}").arrow()
    return found if hasattr(found, "column_names") else found.read_all()


def read_spark(path: str, version: int | None, where: str | None) -> Any:
    reader = spark().read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    frame = reader.load(path)
    return (frame if where is None else frame.where(where)).toArrow()


def read_spark_stream(path: str, version: int | None, where: str | None) -> Any:
    """A stream from the first version to the newest one, some files a batch."""
    import tempfile

    folder = tempfile.mkdtemp(dir=os.environ["TXNLOG_TEST_FOLDER"])
    reader = spark().readStream.format("delta").option("maxFilesPerTrigger", 2).option("startingVersion", version or 0)
    query = (
        reader.load(path)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/rows")
    )
    query.awaitTermination()
    return spark().read.parquet(f"{folder}/rows").toArrow()


def read_spark_changes(path: str, version: int | None, where: str | None) -> Any:
    options = {"readChangeFeed": "true", "startingVersion": version or 0}
    return spark().read.format("delta").options(**options).load(path).toArrow()


def read_deltalake_changes(path: str, version: int | None, where: str | None) -> Any:
    import deltalake
    import pyarrow

    return pyarrow.table(deltalake.DeltaTable(path).load_cdf(starting_version=version or 0).read_all())


READERS: dict[str, Callable[[str, int | None, str | None], Any]] = {
    "deltalake": read_deltalake,
    "arrow_dataset": read_arrow_dataset,
    "polars": read_polars,
    "duckdb": read_duckdb,
    "spark": read_spark,
    "spark_stream": read_spark_stream,
    "spark_changes": read_spark_changes,
    "deltalake_changes": read_deltalake_changes,
}


# --- writing, which must not be ---------------------------------------------------------------------------------------


def _deltalake(path: str) -> Any:
    import deltalake

    return deltalake.DeltaTable(path)


def _delta(path: str) -> Any:
    from delta.tables import DeltaTable

    return DeltaTable.forPath(spark(), path)


def _deltalake_write(path: str, mode: Any) -> object:
    import deltalake

    return deltalake.write_deltalake(path, _deltalake(path).to_pyarrow_table(), mode=mode)


def _deltalake_merge(path: str) -> object:
    table = _deltalake(path)
    merger = table.merge(table.to_pyarrow_table(), "a.id = b.id", source_alias="b", target_alias="a")
    return merger.when_matched_delete().execute()


def _spark_write(path: str, mode: str) -> object:
    return spark().read.format("delta").load(path).limit(1).write.format("delta").mode(mode).save(path)


def _spark_merge(path: str) -> object:
    source = spark().read.format("delta").load(path).alias("b")
    return _delta(path).alias("a").merge(source, "a.id = b.id").whenMatchedDelete().execute()


def _stream_write(path: str) -> object:
    import tempfile

    folder = tempfile.mkdtemp(dir=os.environ["TXNLOG_TEST_FOLDER"])
    frame = spark().readStream.format("delta").load(path)
    writer = frame.writeStream.format("delta").option("checkpointLocation", folder).trigger(availableNow=True)
    return writer.start(path).awaitTermination()


def _vacuum_by_spark(path: str) -> object:
    spark().conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        return spark().sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS").collect()
    finally:
        spark().conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


WRITERS: dict[str, Callable[[str], object]] = {
    "deltalake append": lambda path: _deltalake_write(path, "append"),
    "deltalake overwrite": lambda path: _deltalake_write(path, "overwrite"),
    "deltalake delete": lambda path: _deltalake(path).delete("id = 1"),
    "deltalake update": lambda path: _deltalake(path).update({"id": "7"}),
    "deltalake merge": _deltalake_merge,
    "deltalake optimize": lambda path: _deltalake(path).optimize.compact(target_size=1 << 30),
    "deltalake vacuum": lambda path: _deltalake(path).vacuum(0, dry_run=False, enforce_retention_duration=False),
    "deltalake full vacuum": lambda path: _deltalake(path).vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    ),
    "spark append": lambda path: _spark_write(path, "append"),
    "spark overwrite": lambda path: _spark_write(path, "overwrite"),
    "spark stream": _stream_write,
    "spark delete": lambda path: _delta(path).delete("id = 1"),
    "spark update": lambda path: spark().sql(f"UPDATE delta.`{path}` SET id = 7"),
    "spark merge": _spark_merge,
    "spark optimize": lambda path: spark().sql(f"OPTIMIZE delta.`{path}`").collect(),
    "spark zorder": lambda path: spark().sql(f"OPTIMIZE delta.`{path}` ZORDER BY (id)").collect(),
    "spark vacuum": _vacuum_by_spark,
    "spark restore": lambda path: _delta(path).restoreToVersion(0),
    "spark properties": lambda path: spark().sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('a' = 'b')"),
    "spark columns": lambda path: spark().sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (more INT)"),
    "spark feature": lambda path: spark().sql(f"ALTER TABLE delta.`{path}` DROP FEATURE txnlog"),
}


# --- the loop ---------------------------------------------------------------------------------------------------------


def answer(request: dict[str, Any]) -> dict[str, Any]:
    call = request["call"]
    if call == "read":
        import pyarrow

        table = READERS[request["engine"]](request["path"], request.get("version"), request.get("where"))
        table = table if isinstance(table, pyarrow.Table) else pyarrow.table(table)
        with pyarrow.OSFile(request["out"], "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        return {}
    if call == "write":
        WRITERS[request["what"]](request["path"])
        return {}
    if call == "checkpoint":
        table = _deltalake(request["path"])
        table.create_checkpoint()
        table.cleanup_metadata()
        return {}
    if call == "exec":
        exec(compile(request["code"], "docs", "exec"), {"spark": spark()})
        return {}
    if call == "sql":
        return {"rows": [list(row) for row in spark().sql(request["text"]).collect()]}
    raise AssertionError(call)


def main() -> None:
    check_absent()
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - it is the answer
            found = {
                "error": f"{type(error).__name__}: {error}"[:4_000],
                "traceback": traceback.format_exc()[-4_000:],
            }
        sys.__stdout__.write(json.dumps(found, default=str) + "\n")
        sys.__stdout__.flush()


if __name__ == "__main__":
    sys.stdout = sys.stderr  # what engines print is no answer
    main()
