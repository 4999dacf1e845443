"""Stores, and bugs, that raise what is none of the library's errors: MemoryError, CancelledError, SystemExit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.client.support import SCHEMA, Place, begun, committed, ids, read, rows, take
from tests.faults import Once
from txnlog.log.transaction_commands import CommitCommand, FlushCommand, PrepareCommand
from txnlog.store import HookStore, StoreCall


def _raising(error: type[BaseException]) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("error", [MemoryError, asyncio.CancelledError, SystemExit, OSError])
@pytest.mark.parametrize("call", ["produce", "commit"])
def test_an_entry_whose_segment_was_not_stored_is_never_put(
    memory: Place, error: type[BaseException], call: str
) -> None:
    """TEAR, LOSE: whoever runs short of memory, once, while the file of a small commit is put.

    The next call of the handle, whatever it is, put the entry that names the file. From then on the log named a
    segment that there never was: every read of the topic was damage, for the rows of this commit and of those that
    share it.
    """
    armed = False

    def is_meant(done: StoreCall, key: str) -> bool:
        return armed and done is StoreCall.PUT and key.endswith(".parquet")

    ns, _ = memory.wrapped(lambda store: HookStore(store, before=Once(is_meant, _raising(error))))
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(0))
    armed = True
    with contextlib.suppress(BaseException):
        if call == "produce":
            ns.produce("orders", rows(1))
        else:
            committed(ns, 1)
    ns.produce("audit", rows(2))  # anything
    assert read(memory.open(mode="r")) in ([0], [0, 1])


@pytest.mark.parametrize(
    ("call", "command"), [("flush", FlushCommand), ("prepare", PrepareCommand), ("commit", CommitCommand)]
)
def test_a_bug_before_anything_was_sent_leaves_the_transaction_as_it_was(
    memory: Place, monkeypatch: pytest.MonkeyPatch, call: str, command: type
) -> None:
    ns = memory.orders()
    txn = begun(ns, 1)
    with monkeypatch.context() as bug:
        bug.setattr(command, "decide", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            getattr(txn, call)()
    assert caught.value.__notes__ == ["txnlog: nothing was sent of this call, and nothing of it takes effect"]
    assert txn.state == "OPEN"
    getattr(txn, call)()
    if call != "commit":
        assert txn.state == {"flush": "OPEN", "prepare": "PREPARED"}[call]
        ns.abort(str(txn.id), force=True)
    assert read(memory.open(mode="r")) == ([1] if call == "commit" else [])


def test_a_bug_before_anything_was_sent_ends_a_block_with_an_abort(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns = memory.orders()
    ns.produce("orders", rows(1))
    consumer = ns.consumer("orders", "billing")
    with monkeypatch.context() as bug:
        bug.setattr(CommitCommand, "decide", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError), ns.begin() as txn:
            txn.acknowledge(take(consumer))
    assert txn.state == "ABORTED"
    consumer.redeliver_unacknowledged()
    assert ids(take(consumer).table) == [1]
