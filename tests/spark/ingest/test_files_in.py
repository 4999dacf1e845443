"""The program examples/ingest/files_in.py, and what a lost checkpoint does to a stream of files without it."""

from __future__ import annotations

import ast
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import spark_ext
import txnlog
from examples.ingest import files_in
from tests.pages import ROOT, blocks, page
from tests.spark.support import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def drop(folder: Path, name: str, *ids: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps({"id": i, "customer": "ann"}) + "\n" for i in ids))


def ids(ns: Namespace) -> list[int]:
    return sorted(ns.snapshot().read("orders").column("id").to_pylist())


def test_files_come_once_over_restarts_repeated_batches_and_lost_checkpoints(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, folder, checkpoint = f"{tmp_path}/lake", tmp_path / "incoming", tmp_path / "lake-checkpoints" / "files"
    with txnlog.open(lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", files_in.ORDERS)
        ns.create_topic("loaded", files_in.LOADED)
        drop(folder, "a.json", 1, 2)
        files_in.load(spark, lake, str(folder)).awaitTermination()
        forget_commit(checkpoint, 0)
        drop(folder, "b.json", 3)
        files_in.load(spark, lake, str(folder)).awaitTermination()
        assert ids(ns) == [1, 2, 3]
        shutil.rmtree(checkpoint)
        drop(folder, "c.json", 4)
        files_in.load(spark, lake, str(folder)).awaitTermination()
        assert ids(ns) == [1, 2, 3, 4]
        assert ns.snapshot().read("loaded").num_rows == 3


def test_without_it_a_lost_checkpoint_doubles_all_files_and_an_app_id_refuses_that(
    spark: SparkSession, namespace: Namespace, tmp_path: Path
) -> None:
    namespace.create_topic("orders", files_in.ORDERS)
    folder, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    drop(folder, "a.json", 1, 2)

    def load(**given: Any) -> None:
        rows = spark.readStream.schema("id BIGINT, customer STRING").json(str(folder))
        spark_ext.write_stream(
            rows,
            f"{namespace.root}/{namespace.name}",
            checkpoint=str(checkpoint),
            handler=lambda batch, txn: txn.write(batch, "orders"),
            trigger={"availableNow": True},
            **given,
        ).awaitTermination()

    load(txn_app_id="files")
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="the stream 'files' committed batch 0 of the query"):
        load(txn_app_id="files")
    assert ids(namespace) == [1, 2]
    shutil.rmtree(checkpoint)
    load()
    assert ids(namespace) == [1, 1, 2, 2]


def test_the_page_shows_the_programs_as_they_are() -> None:
    programs = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples" / "ingest").glob("*.py"))]
    found = blocks(page("docs/ingest.md"))
    assert len(found) == 6
    others = [block for block in found if not any(block in program for program in programs)]
    # No program ends an ingestion or lists any: the page's calls fit what they call at least, and tests make them.
    called = [node for block in others for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    called = [call for call in called if ast.unparse(call.func) != "print"]
    functions: list[Callable[..., Any]] = [
        spark_ext.end_ingestion,
        spark_ext.ingest_kafka,
        spark_ext.ingested_offsets,
    ]
    assert sorted(ast.unparse(call.func) for call in called) == [f"spark_ext.{item.__name__}" for item in functions]
    for call in called:
        function = getattr(spark_ext, ast.unparse(call.func).removeprefix("spark_ext."))
        inspect.signature(function).bind(*call.args, **{str(item.arg): item.value for item in call.keywords})
