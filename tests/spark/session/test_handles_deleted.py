"""What a long-lived process of Spark keeps, and what became of it meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import txnlog
from spark_ext.streaming.format_sink import TopicStreamWriter
from spark_ext.support import namespace_cache
from spark_ext.support.options import write_options
from spark_ext.write import write_jobs
from txnlog.errors import NamespaceNotFound

IDS = pa.schema([("id", pa.int64())])
MORE = pa.schema([("id", pa.int64()), ("more", pa.int64())])


def _made(root: Path, *topics: str) -> txnlog.Namespace:
    ns = txnlog.open(root, "sales", create=True)
    for topic in topics:
        ns.create_topic(topic, IDS)
    return ns


def test_a_namespace_that_was_deleted_and_made_again_is_not_the_one_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old handle would append behind a gap: a commit that nobody ever sees."""
    monkeypatch.setattr(namespace_cache, "_LOOK_S", 0.0)
    root = tmp_path / "lake"
    path = f"{root}/sales"
    with _made(root, "orders", "more", "others"):
        kept = namespace_cache.namespace_at(namespace_cache.location_of(path), "rw")
        assert namespace_cache.namespace_at(namespace_cache.location_of(path), "rw") is kept
    shutil.rmtree(root)
    with pytest.raises(NamespaceNotFound):
        namespace_cache.namespace_at(namespace_cache.location_of(path), "rw")
    with _made(root, "orders") as again:
        new = namespace_cache.namespace_at(namespace_cache.location_of(path), "rw")
        txn = write_jobs.begin(new, write_jobs.reserve_job(new))
        txn.produce("orders", [{"id": 1}])
        txn.commit()
        assert again.snapshot().read("orders").num_rows == 1
        assert namespace_cache.namespace_at(namespace_cache.location_of(path), "rw") is new


def test_a_namespace_that_older_files_took_the_place_of_is_not_the_one_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy that was put back the first entry is the same: the old handle would append behind a gap as well."""
    monkeypatch.setattr(namespace_cache, "_LOOK_S", 0.0)
    root, copy = tmp_path / "lake", tmp_path / "copy"
    path = f"{root}/sales"
    with _made(root, "orders"):
        pass
    shutil.copytree(root, copy)
    kept = namespace_cache.namespace_at(namespace_cache.location_of(path), "rw")
    with kept.begin() as txn:
        txn.produce("orders", [{"id": 1}])
    kept.create_topic("more", IDS)
    assert namespace_cache.namespace_at(namespace_cache.location_of(path), "rw") is kept
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    new = namespace_cache.namespace_at(namespace_cache.location_of(path), "rw")
    with new.begin() as txn:
        txn.produce("orders", [{"id": 2}])
    with txnlog.open(root, "sales") as again:
        assert again.snapshot().read("orders").column("id").to_pylist() == [2]
    assert namespace_cache.namespace_at(namespace_cache.location_of(path), "rw") is new


def test_a_streams_writer_knows_the_topic_that_is_there(tmp_path: Path) -> None:
    """Processes that plan live long: what the last batch knew of the topic is not what this one needs."""

    def writer(*names: str) -> TopicStreamWriter:
        path = f"{tmp_path}/lake/sales/orders"
        schema = StructType([StructField(name, LongType()) for name in names])
        options = write_options({"path": path, "txnAppId": "copier"}, streaming=True)
        return TopicStreamWriter(options, schema, overwrite=False)

    with _made(tmp_path / "lake", "orders") as ns:
        writer("id")
        ns.drop_topic("orders")
        ns.create_topic("orders", MORE)
        spec = writer("id", "more").__getstate__()["_spec"]
        assert [target.id for target in spec.targets] == [ns._connection.topic_record("orders").id]
