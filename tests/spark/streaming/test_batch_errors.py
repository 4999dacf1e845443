"""What Spark hears of a batch that goes wrong: always an Exception, whose text can be sent, with what is committed."""

from __future__ import annotations

import asyncio
import itertools
import sys
import traceback
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_ext.streaming.write_stream import _Batches
from spark_ext.support.namespace_cache import target_at
from spark_ext.write.task_writer import TaskIdentity
from tests.spark.queries import ns, offset, query
from tests.spark.support import Frame, Query, ids
from txnlog.errors import Durable, InvalidInputError, InvalidTransactionState

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

__all__ = ["ns", "query"]  # fixtures

Run = Callable[[Callable[[Any, Any], object]], None]


@pytest.fixture
def run(ns: Namespace, query: Query, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call batch 0 of a query as py4j does, with a handler."""
    attempts = itertools.count()
    monkeypatch.setattr(TaskIdentity, "current", lambda: TaskIdentity(0, next(attempts)))
    ns.create_topic("billed", pa.schema([("id", pa.int64())]))
    query.write(0, offset(ns, (0, 0), (4, 0)))
    target = target_at(f"{ns.root}/{ns.name}", {})

    def call(handler: Callable[[Any, Any], object]) -> None:
        frame: Any = Frame()
        _Batches(target, str(query.folder), handler, "billing", None, uuid.uuid4().hex).run(frame, 0)

    return call


def cursor(ns: Namespace) -> list[int]:
    return [item.cursor for item in ns.subscription("orders", "billing").cursors]


def raising(error: BaseException) -> Callable[[Any, Any], object]:
    def handler(batch: Any, txn: Any) -> None:
        txn.write(batch, "billed")
        raise error

    return handler


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (SystemExit(3), "SystemExit(3)"),
        (SystemExit(), "SystemExit()"),
        (SystemExit("no rates"), "SystemExit('no rates')"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
        (GeneratorExit(), "GeneratorExit()"),
        (asyncio.CancelledError(), "CancelledError()"),
    ],
)
def test_what_would_end_the_thread_is_an_error_that_stops_the_query(
    ns: Namespace, run: Run, error: BaseException, named: str
) -> None:
    """HANG: py4j answers Java only for an Exception; without an answer the query waits for ever."""
    with pytest.raises(InvalidInputError) as raised:
        run(raising(error))
    text = str(raised.value)
    assert text.startswith(f"the handler of batch 0 raised {named}; nothing of the batch is committed, and a restart")
    assert "raise an Exception in the handler to stop the query" in text
    assert ("call sys.exit() after awaitTermination()" in text) == isinstance(error, SystemExit)
    assert raised.value.durable is Durable.NOTHING
    assert raised.value.__cause__ is error, "its traceback shows where"
    assert (ids(ns, "billed"), cursor(ns), ns.transactions("OPEN")) == ([], [0, 0], ())
    run(lambda batch, txn: txn.write(batch, "billed"))
    assert (ids(ns, "billed"), cursor(ns)) == ([1, 2, 3], [4, 0])


def test_an_exit_after_the_commit_says_that_the_batch_is_committed(ns: Namespace, run: Run) -> None:
    def handler(batch: Any, txn: Any) -> None:
        txn.write(batch, "billed")
        txn.commit()
        sys.exit(3)

    with pytest.raises(
        InvalidInputError, match=r"raised SystemExit\(3\); the batch is committed, at version"
    ) as raised:
        run(handler)
    assert raised.value.durable is Durable.MAYBE
    assert (ids(ns, "billed"), cursor(ns)) == ([1, 2, 3], [4, 0])
    run(handler)  # it is not called again


def test_an_exit_amid_a_commit_says_that_nobody_knows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("txnlog.api.transaction.Transaction.commit", interrupted)
    monkeypatch.setattr("txnlog.api.transaction.Transaction._discard", lambda _self: False)
    with pytest.raises(InvalidInputError, match="whether the batch is committed is unknown here") as raised:
        run(lambda batch, txn: txn.write(batch, "billed"))
    assert raised.value.durable is Durable.MAYBE


def test_an_exit_before_there_is_a_transaction_is_no_error_of_the_handler(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaves(*_args: object) -> None:
        sys.exit(3)

    monkeypatch.setattr("spark_ext.streaming.batch_commit.begin_batch", leaves)
    with pytest.raises(InvalidInputError, match=r"^batch 0 raised SystemExit\(3\); nothing of the batch is committed"):
        run(raising(ValueError()))


def test_an_error_after_the_commit_has_a_note_of_it(ns: Namespace, run: Run) -> None:
    def handler(batch: Any, txn: Any) -> None:
        txn.write(batch, "billed")
        txn.commit()
        raise ValueError("no rates")

    with pytest.raises(ValueError, match="no rates") as raised:
        run(handler)
    (note,) = raised.value.__notes__
    assert note.startswith(f"batch 0 is committed, at version {ns.snapshot().version}: a restart")


ABORTED = (
    "the handler aborted the transaction of batch 0, of which nothing is committed (do not abort it in the handler: "
    "raise an error to stop; or return without writing, and the batch counts as processed; nothing was written)"
)
ADDED = (
    "the transaction of batch 0 is committed: nothing can be added to it any more (leave txn.commit() out of the "
    "handler, whose transaction is committed when it returns; or call it last; data may be durable)"
)


@pytest.mark.parametrize(
    ("end", "more", "text", "position"),
    [("commit", True, ADDED, 4), ("abort", False, ABORTED, 0), ("abort", True, ABORTED, 0)],
)
def test_a_handler_that_ends_its_transaction_learns_what_it_means_and_what_to_do(
    ns: Namespace, run: Run, end: str, more: bool, text: str, position: int
) -> None:
    def handler(batch: Any, txn: Any) -> None:
        getattr(txn, end)()
        if more:
            txn.write(batch, "billed")

    with pytest.raises(InvalidTransactionState) as raised:
        run(handler)
    assert str(raised.value) == text
    assert (ids(ns, "billed"), cursor(ns)) == ([], [position, 0])


def test_a_text_that_is_no_unicode_is_sent_escaped(run: Run) -> None:
    """LIE: py4j cannot send it, and Spark reports "Error while sending a command" in its place."""
    with pytest.raises(RuntimeError) as raised:
        run(raising(ValueError("cannot read a\udcff.csv")))
    text = "".join(traceback.format_exception(raised.value))
    assert text.encode().count(b"ValueError: cannot read a\\udcff.csv") == 1
