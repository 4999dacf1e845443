"""Errors of ours come out of Spark without a traceback, and errors of other kinds with it."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

import spark_ext
from spark_ext.read.format_batch_reader import TopicBatchReader
from spark_ext.source import TxnLogDataSource
from spark_ext.streaming.format_sink import TopicStreamWriter
from spark_ext.streaming.format_source import TopicStreamReader
from spark_ext.support.short_errors import short_errors
from spark_ext.write.format_batch_writer import TopicBatchWriter
from txnlog.errors import InvalidInputError

SWITCH = "SPARK_HIDE_TRACEBACK"


@short_errors
class Called:
    """A class whose methods Spark calls."""

    def method(self, error: Exception | None) -> int:
        if error is not None:
            raise error
        return 7

    def rows(self, error: Exception | None) -> Iterator[int]:
        yield 1
        if error is not None:
            raise error
        yield 2


@pytest.fixture(autouse=True)
def _no_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "")
    monkeypatch.delenv(SWITCH)


CALLS: tuple[Callable[[Exception], object], ...] = (
    lambda error: Called().method(error),
    lambda error: list(Called().rows(error)),
)


@pytest.mark.parametrize("call", CALLS, ids=["method", "iterator"])
def test_only_errors_of_ours_and_only_in_a_process_of_sparks_lose_their_traceback(
    call: Callable[[Exception], object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidInputError):
        call(InvalidInputError("wrong"))
    assert SWITCH not in os.environ, "not where a user's own code runs"
    monkeypatch.setitem(sys.modules, "pyspark.worker_util", ModuleType("pyspark.worker_util"))
    with pytest.raises(KeyError):
        call(KeyError("a bug"))
    assert SWITCH not in os.environ
    with caplog.at_level("DEBUG", "txnlog.spark"), pytest.raises(InvalidInputError):
        call(InvalidInputError("wrong"))
    assert os.environ[SWITCH]
    assert [record for record in caplog.records if record.exc_info]


def test_what_is_right_goes_through_as_it_is() -> None:
    called = pickle.loads(pickle.dumps(Called()))
    assert called.method(None) == 7
    rows = called.rows(None)
    assert next(rows) == 1
    assert list(rows) == [2]
    assert Called.method.__name__ == "method"


def test_a_stream_that_cannot_be_read_says_why_whatever_it_is_asked() -> None:
    reader = TxnLogDataSource({"path": "relative"}).streamReader(StructType())
    calls: tuple[Callable[[], object], ...] = (
        reader.initialOffset,
        lambda: reader.latestOffset({}, None),
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(0)),
    )
    for call in calls:
        with pytest.raises(InvalidInputError, match="'relative' is relative"):
            call()
    assert "relative" in repr(reader)
    reader.stop()


def classes_that_spark_calls() -> set[type]:
    """Those of the package that have a base in Spark's module of data sources, but for what only carries values."""
    found: set[type] = set()
    for module in pkgutil.walk_packages(spark_ext.__path__, "spark_ext."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__ == module.name:
                bases = {base for base in value.__mro__ if base.__module__ == "pyspark.sql.datasource"}
                found |= {value} if bases - {InputPartition, WriterCommitMessage} else set()
    return found


def test_every_class_whose_methods_spark_calls_is_one() -> None:
    found = classes_that_spark_calls()
    assert {TxnLogDataSource, TopicBatchReader, TopicStreamReader, TopicBatchWriter, TopicStreamWriter} < found
    for cls in found:
        methods = [value for name, value in vars(cls).items() if not name.startswith("_") and callable(value)]
        assert methods
        assert all(hasattr(method, "__wrapped__") or isinstance(method, classmethod) for method in methods), cls
