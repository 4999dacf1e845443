"""What a process keeps for all of its tasks: stores without their secrets, locks that a fork does not leave locked."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.read import scan_session
from spark_ext.read.task_reader import ReadJob, read_batches
from spark_ext.streaming import batch_commit
from spark_ext.support import namespace_cache, python_process
from spark_ext.support.python_process import ProcessLock, digest_of, store_of
from spark_ext.write import arrow_batches, write_jobs
from txnlog.common.ids import Coordinators
from txnlog.store.base import Store
from txnlog.store.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txnlog.api.namespace import Namespace


def in_a_child(check: Callable[[], bool]) -> bool:
    """What a check says in a forked child; False as well where it does not come back."""
    child = os.fork()
    if child == 0:
        answered = threading.Event()
        truth: list[bool] = []

        def run() -> None:
            truth.append(check())
            answered.set()

        threading.Thread(target=run, daemon=True).start()
        answered.wait(10)
        os._exit(0 if truth == [True] else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def taken(lock: Any) -> bool:
    with lock:
        return True


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    "lock",
    [
        arrow_batches._lock,
        namespace_cache._lock,
        write_jobs._reserved_lock,
        batch_commit._epochs_lock,
        python_process._lock,
        scan_session._lock,
        ProcessLock(),
    ],
)
def test_a_lock_that_somebody_holds_at_a_fork_is_free_in_the_child(lock: Any) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    try:
        assert in_a_child(lambda: taken(lock))
    finally:
        done.set()
        holder.join(10)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_opens_stores_of_its_own(tmp_path: Path) -> None:
    store = store_of(str(tmp_path), "sales", {})
    assert store_of(str(tmp_path), "other", {}).inner is store.inner  # type: ignore[attr-defined]  # a wrapper
    assert in_a_child(lambda: store_of(str(tmp_path), "sales", {}).inner is not store.inner)  # type: ignore[attr-defined]  # a wrapper


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_takes_no_numbers_of_the_block_that_its_parent_goes_on_with(namespace: Namespace) -> None:
    number = [write_jobs.reserve_job(namespace).txn for _ in range(2)][-1]  # of a block of two
    assert in_a_child(lambda: write_jobs.reserve_job(namespace).txn >= number + 2 * write_jobs._STRIDE)
    assert write_jobs.reserve_job(namespace).txn == number + write_jobs._STRIDE


def test_no_secret_is_kept_in_the_keys_of_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_process, "open_store", lambda root, _options: open_store(root))
    options = {"secret": "hush-hush", "key": "k"}
    store_of("memory://process-secrets", "sales", options)
    assert "hush" not in repr(python_process._stores)
    assert digest_of(options) == digest_of(dict(reversed(options.items()))) != digest_of(None) == digest_of({})


def test_readers_and_writers_of_a_namespace_share_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def noted(root: str, options: Any) -> Store:
        opened.append(root)
        return open_store(root, options)

    monkeypatch.setattr(python_process, "open_store", noted)
    nothing = pa.schema([])
    for _ in range(3):
        list(read_batches(ReadJob("memory://process-shared", "sales", Coordinators.one(1), nothing, nothing), []))
        store_of("memory://process-shared", "other", {})
    assert opened == ["memory://process-shared"]


def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in a Python worker of Spark."""
    python_process.keep_modules()
    for batch in batches:
        yield pa.record_batch([pa.array([gc.get_freeze_count()] * batch.num_rows)], names=["count"])


def test_a_worker_of_spark_keeps_its_modules_out_of_the_collectors_way(spark: SparkSession) -> None:
    counts = spark.range(0, 1, 1, 1).mapInArrow(frozen, "count BIGINT").collect()
    assert counts[0][0] > 10_000


def test_the_users_process_collects_its_garbage_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_process, "_calls", 0)
    before = gc.get_freeze_count()
    python_process.keep_modules()
    assert gc.get_freeze_count() == before


def test_objects_are_kept_a_few_times_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_process, "_calls", 0)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    called: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: None)
    monkeypatch.setattr(gc, "freeze", lambda: called.append(python_process._calls))
    for _ in range(1_000):
        python_process.keep_modules()
    assert called == [1, 2, 4, 8, 16, 32, 64]
