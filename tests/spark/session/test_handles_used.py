"""A process may bring a handle of its own, and a transaction over DataFrames may be flushed."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import spark_ext
import txnlog
from spark_ext.support import namespace_cache
from spark_ext.support.paths import Location
from txnlog.errors import InvalidInputError, InvalidTransactionState
from txnlog.store import CountingStore, open_store


@pytest.fixture
def root(tmp_path):
    with txnlog.open(tmp_path / "lake", "sales", create=True) as made:
        made.create_topic("orders", pa.schema([("id", pa.int64())]))
    return tmp_path / "lake"


def test_a_handle_of_ones_own_is_used_for_its_namespace(root):
    store = CountingStore(open_store(str(root), {}))
    with txnlog.open(f"{root}/", "sales", store=store) as own:
        spark_ext.use(own)
        assert namespace_cache.namespace_at(namespace_cache.location_of(f"{root}/sales"), "rw") is own
        assert namespace_cache.namespace_at(namespace_cache.location_of(f"{root}/sales"), "rw", {}) is own
        assert namespace_cache.namespace_at(namespace_cache.location_of(f"{root}/sales"), "r") is not own


def test_one_that_cannot_serve_is_refused_and_one_that_was_closed_is_forgotten(root):
    place = namespace_cache.location_of(f"{root}/sales")
    with txnlog.open(root, "sales", mode="r") as reader:
        with pytest.raises(InvalidInputError, match="mode='r', and is to serve calls with mode='rw'"):
            spark_ext.use(reader)
        spark_ext.use(reader, mode="r")
        assert namespace_cache.namespace_at(place, "r") is reader
    assert namespace_cache.namespace_at(place, "r").snapshot().topics() == ("orders",)


def test_the_driver_commits_through_a_handle_of_ones_own(root, spark):
    store = CountingStore(open_store(str(root), {}))
    with txnlog.open(root, "sales", store=store) as own:
        spark_ext.use(own)
        store.reset()
        with spark_ext.transaction(spark, str(root / "sales")) as txn:
            txn.write(spark.range(10), "orders")
        assert any(call == "create" for call, _ in store.counts())
        assert own.snapshot().version == txn.result.version


def test_a_flushed_transaction_is_open_in_the_log_and_shows_only_to_read_uncommitted(root, spark):
    with (
        spark_ext.transaction(spark, str(root / "sales")) as txn,
        txnlog.open(root, "sales", mode="r") as ns,
    ):
        txn.write(spark.range(10), "orders")
        assert ns.transaction(txn.id).state == "UNKNOWN"
        txn.flush()
        assert ns.transaction(txn.id).state == "OPEN"
        assert ns.snapshot().read("orders").num_rows == 0
        assert ns.snapshot().read("orders", isolation_level="read_uncommitted").num_rows == 10
        txn.write(spark.range(5), "orders")
        assert txn.commit().version == ns.snapshot().version
        assert ns.snapshot().read("orders").num_rows == 15


def test_a_flushed_transaction_that_is_aborted_stays_readable_as_aborted(root, spark):
    with spark_ext.transaction(spark, str(root / "sales")) as txn:
        txn.write(spark.range(10), "orders")
        txn.flush()
        txn.abort()
    with txnlog.open(root, "sales", mode="r") as ns:
        assert ns.transaction(txn.id).state == "ABORTED"
        rows = ns.snapshot().read("orders", isolation_level="read_uncommitted", include_metadata=True)
        assert set(rows["_txn_state"].to_pylist()) == {"ABORTED"}
    with pytest.raises(InvalidTransactionState, match="was aborted"):
        txn.write(spark.range(1), "orders")


def test_what_is_written_to_travels_with_its_storage_options_and_shows_none_of_them():
    target = namespace_cache.Target(Location("s3://bucket/lake", "sales"), '{"secret": "hush-hush"}')
    assert pickle.loads(pickle.dumps(target)).storage_options == {"secret": "hush-hush"}
    assert "bucket" in repr(target)
    assert "hush" not in repr(target)
