"""The call of ``spark_ext.process``: what it refuses, and how it is watched."""

from __future__ import annotations

import functools
import io
import logging
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ext
from spark_ext.processing.ownership import take_over
from spark_ext.processing.progress import progress_line
from spark_ext.processing.run import Run
from spark_ext.support import namespace_cache
from tests.by_hand import append
from tests.client.support import Place, memory_place
from tests.spark.shop import SCHEMA, Shop, shop
from tests.spark.support import path_of
from txnlog.errors import (
    InvalidInputError,
    NameNotAllowed,
    NamespaceNotFound,
    OffsetOutOfRange,
    SchemaMismatch,
    TopicNotFound,
    UnsupportedFeature,
)
from txnlog.format.actions import DeleteRecords
from txnlog.format.keys import kind_of
from txnlog.store import CountingStore
from txnlog.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_ext.write.dataframe_transaction import DataFrameTransaction

__all__ = ["memory_place", "shop"]  # fixtures


# --- what it is asked -------------------------------------------------------------------------------------------------


@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"topics": []}, InvalidInputError, "topics is the name"),
        ({"topics": 7}, InvalidInputError, "topics is the name"),
        ({"topics": ["ordres"]}, TopicNotFound, r"did you mean 'orders'\?; nothing was written"),
        ({"topics": ["orders", "counts"]}, SchemaMismatch, "different columns"),
        ({"subscription": "a/b"}, NameNotAllowed, "a/b"),
        ({"subscription": None}, NameNotAllowed, "None"),
        ({"handler": "no function"}, InvalidInputError, "handler is a function"),
        ({"handler": len}, InvalidInputError, "handler cannot be called with a batch and its tra"),
        ({"handler": setattr}, InvalidInputError, "cannot be called .*: missing a required argument: 'value'"),
        ({"trigger": "once"}, InvalidInputError, "unknown trigger 'once'"),
        ({"trigger": {"processingTime": "1 second"}}, InvalidInputError, "interval_ms"),
        ({"trigger": {"interval_ms": 0}}, InvalidInputError, "interval_ms is a length of time, at least 1ms"),
        ({"on_error": "ignore"}, InvalidInputError, "unknown on_error 'ignore'"),
        ({"on_error": ["stop"]}, InvalidInputError, "unknown on_error"),
        ({"on_error": "dead_letters"}, InvalidInputError, "did you mean 'dead_letter'"),
        ({"max_rows": 0}, InvalidInputError, "max_rows"),
        ({"max_attempts": 0}, InvalidInputError, "max_attempts"),
        ({"query_name": ""}, NameNotAllowed, "query_name"),
        ({"stop": 5}, InvalidInputError, "stop is a threading.Event"),
        ({"start": "soon"}, InvalidInputError, "unknown position 'soon'"),
        ({"include_metadata": "no"}, InvalidInputError, "include_metadata is True or False, not 'no'"),
        ({"native": "false"}, InvalidInputError, "native is True or False, not 'false'"),
        ({"progress": 0}, InvalidInputError, "progress is True or False, not 0"),
        ({"start": {"ordres": "latest"}}, InvalidInputError, "did you mean 'orders'"),
        ({"storage_options": {"key": object()}}, InvalidInputError, "plain values"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    shop: Shop, options: dict[str, Any], kind: type[Exception], problem: str
) -> None:
    shop.ns.create_topic("counts", pa.schema([("customer", pa.string())]))
    version = shop.ns.snapshot().version
    with pytest.raises(kind, match=problem):
        shop.run(**options)
    assert shop.ns.snapshot().version == version


def test_a_handler_is_called_as_it_is_not_as_what_it_wraps(shop: Shop) -> None:
    def inner(batch: DataFrame, txn: DataFrameTransaction, handle: Any) -> None:
        handle(batch, txn)

    @functools.wraps(inner)
    def outer(batch: DataFrame, txn: DataFrameTransaction) -> None:
        inner(batch, txn, shop.handle)

    shop.produce(0)
    assert shop.run(outer).rows == 4


def test_a_subscription_that_a_run_creates_is_reported_and_a_similar_one_is_named(
    memory: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="txnlog.subscriptions")
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    for name in ("billing", "billing", "biling"):
        take_over(ns._connection, ["orders"], name, query_name="q", start="earliest", to_dead_letters=False)
    first, second = [item for item in caplog.records if item.name == "txnlog.subscriptions"]
    assert (first.levelname, second.levelname) == ("INFO", "WARNING")
    assert "the run created the subscription 'biling' of 'orders'" in second.getMessage()
    assert "There is also 'billing'" in second.getMessage()


@pytest.mark.parametrize(
    ("start", "kind", "problem"),
    [
        ("begin", InvalidInputError, "unknown position 'begin'"),
        (None, InvalidInputError, "unknown position None"),
        ({2: 0}, OffsetOutOfRange, "no partition 2"),
        ({0: -1}, InvalidInputError, "an offset is a whole number"),
        ({"audit": "begin"}, InvalidInputError, "unknown position 'begin'"),
        ({"ordres": "latest"}, InvalidInputError, "did you mean 'orders'"),
        ("2062-11-25T00:00:00Z", InvalidInputError, "in the future"),
        ({"audit": "2062-11-25T00:00:00Z"}, InvalidInputError, "in the future"),
    ],
    ids=str,
)
@pytest.mark.parametrize("there", [(), ("orders",), ("audit",), ("orders", "audit")], ids=str)
def test_a_start_that_is_none_is_refused_whether_or_not_the_subscription_is_there(
    memory: Place, there: tuple[str, ...], start: Any, kind: type[Exception], problem: str
) -> None:
    ns = memory.open()
    topics = ["orders", "audit"]
    for topic in topics:
        ns.create_topic(topic, SCHEMA)
    for topic in there:
        ns.create_subscription(topic, "billing")
    version = ns.snapshot().version
    with pytest.raises(kind, match=problem):
        take_over(ns._connection, topics, "billing", query_name="q", start=start, to_dead_letters=False)
    assert ns.snapshot().version == version


def test_a_start_that_was_deleted_meanwhile_is_no_reason_to_refuse_a_subscription_that_is_there(shop: Shop) -> None:
    shop.run(start={0: 0, 1: 0})
    shop.produce(0, 20)
    append(shop.ns, DeleteRecords(shop.ns.topic("orders").id, ((0, 7),)))
    assert shop.run(start={0: 0, 1: 0}).rows == 13


@pytest.mark.parametrize("connect", [False, True], ids=["", "connect"])
def test_a_root_that_spark_itself_cannot_read_is_reported_before_anything_is_written(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, connect: bool
) -> None:
    """No file system for the root's scheme; or, behind Connect, another machine's folder."""
    shop.produce(0)
    version = shop.ns.snapshot().version
    if connect:  # without a JVM of its own
        monkeypatch.setattr(
            shop, "spark", SimpleNamespace(read=shop.spark.read, conf=shop.spark.conf, is_stopped=False)
        )
    address, problem = ("", "PATH_NOT_FOUND") if connect else ("nowhere:/", 'No FileSystem for scheme "nowhere"')
    url = f"{address}/not/here"
    monkeypatch.setattr(LocalStore, "url", lambda _store, key: f"{url}/{key}")
    with pytest.raises(InvalidInputError, match=rf"own scan cannot read .*{problem}.* \(pass native=False"):
        shop.run()
    assert shop.ns.snapshot().version == version
    monkeypatch.undo()
    shop.run()
    shop.check(0, 4)


def test_a_path_is_a_namespace(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match=r"names the topic 'orders'.* and name it in topics="):
        spark_ext.process(
            shop.spark, path_of(shop.ns, "orders"), topics="orders", subscription="billing", handler=shop.handle
        )
    with pytest.raises(NamespaceNotFound):
        spark_ext.process(shop.spark, f"{shop.ns.root}/no/no", topics="a", subscription="b", handler=shop.handle)


@pytest.mark.parametrize("options", [{"type": "shared"}, {"type": "failover"}, {"takeover": "after_lease"}], ids=str)
def test_a_subscription_whose_messages_are_not_one_runs_alone_is_refused(shop: Shop, options: Any) -> None:
    shop.ns.create_topic("returns", SCHEMA)
    shop.ns.create_subscription("orders", "billing", **options)
    version = shop.ns.snapshot().version
    with pytest.raises(UnsupportedFeature, match="use an exclusive subscription"):
        shop.run(topics=["returns", "orders"])
    assert shop.ns.snapshot().version == version, "nor was the subscription of the other topic made"


# --- how it is watched ------------------------------------------------------------------------------------------------


def test_a_batch_is_a_line_in_the_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.produce(0)
    with caplog.at_level(logging.INFO, "txnlog.spark"):
        result = shop.run(query_name="nightly")
    found = [record for record in caplog.records if record.name == "txnlog.spark" and record.levelno == logging.INFO]
    lines = [record.getMessage() for record in found]  # a warning may be there as well: of functions that hang
    assert lines == [f"'nightly': batch 1 of 4 rows is version {result.versions[0]} (orders 0: 0 to 2, 1: 0 to 2)"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_on_a_terminal_see_a_line_and_a_pipe_gets_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for first in (0, 4):
        shop.produce(first)
    for stream, wanted in ((io.StringIO(), True), (Terminal(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        subscription = f"s{len(shop.calls)}"
        shop.run(subscription=subscription, progress=wanted)
        monkeypatch.undo()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")
        seen = stream.getvalue()
        if isinstance(stream, Terminal) and wanted:
            assert f"{subscription}: 2 batches, 8 rows, 0 behind" in seen
        else:
            assert seen == ""


def test_without_the_package_for_it_a_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line("billing", wanted=True) as show:
        show("some text")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("own", [True, False])
def test_a_look_that_finds_nothing_is_two_reads_at_most(shop: Shop, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    store = shop.wrapped(lambda inner: CountingStore(inner, classify=kind_of))
    if not own:  # then the log's newest entry is looked at as well, once a second: here each time
        ((_, kept),) = [item for item in namespace_cache._handles.items() if item[1].namespace.root == shop.ns.root]
        kept.own = False
        monkeypatch.setattr(namespace_cache, "_LOOK_S", 0)
    looks: list[int] = []
    look = Run._look

    def counted(run: Run) -> Any:
        if len(looks) == 2:
            store.reset()  # the claim is made, and the log was read up to it
        looks.append(1)
        return look(run)

    monkeypatch.setattr(Run, "_look", counted)
    result = shop.run(stop=lambda: len(looks) >= 12, trigger={"interval_ms": 1})
    assert (result.batches, result.stopped) == (0, "asked")
    released = 1  # the subscription, when the run returns: an entry, before which a local log is looked at
    looked = (len(looks) - 2) * (1 if own else 2)
    assert store.counts() == {("get", "entry"): looked + released, ("create", "entry"): released}


@pytest.mark.parametrize("trigger", ["available_now", {"availableNow": True}])
def test_either_spelling_of_available_now_ends_with_what_is_there(shop: Shop, trigger: Any) -> None:
    shop.produce(0)
    result = shop.run(trigger=trigger)
    assert (result.batches, result.stopped) == (1, "caught_up")
