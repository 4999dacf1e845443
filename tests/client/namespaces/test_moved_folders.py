"""A namespace's folder on a local disk is moved, removed or restored under clients at work."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, is_entry, raises, read, rows
from txnlog.errors import Durable, NamespaceNotFound, StoreError
from txnlog.store import Store
from txnlog.store.wrappers import HookStore, StoreCall


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize("gone", [moved, removed])
@pytest.mark.parametrize("many", [False, True], ids=["a small commit", "rows of their own files"])
def test_a_writer_does_not_make_a_folder_again_that_goes_away_in_the_middle_of_a_commit(
    local: Place, gone: Callable[[Path], None], many: bool
) -> None:
    """Behind its look at the log, and before its entry: else it would go on in a log that nobody can open."""
    folder = Path(local.root) / "sales"
    armed: list[bool] = []

    def before(call: StoreCall, key: str) -> None:
        if armed and (call is StoreCall.PUT or (call is StoreCall.CREATE and is_entry(key))):
            armed.clear()
            gone(folder)

    def wrap(store: Store) -> Store:
        return HookStore(store, before=before)

    ns, _ = local.wrapped(wrap)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    txn = begun(ns, 2)
    armed.append(True)
    with raises(StoreError, match="removed, moved or renamed", durable=Durable.NOTHING):
        txn.flush() if many else txn.commit()
    assert not folder.exists()
    with raises(NamespaceNotFound, match="no longer the one"):
        ns.produce("orders", rows(3))
    assert not folder.exists()
    if gone is moved:
        folder.with_name("moved").rename(folder)
        txn.commit()
        assert read(ns) == [1, 2]


@pytest.mark.parametrize("gone", [moved, removed])
def test_writers_without_a_pause_end_where_their_folder_goes_away(local: Place, gone: Callable[[Path], None]) -> None:
    folder = Path(local.root) / "sales"
    ns = local.orders()
    committed: list[int] = []
    ended: list[BaseException] = []
    going = threading.Event()

    def write() -> None:
        for number in range(100_000):
            try:
                ns.produce("orders", rows(number))
            except (StoreError, NamespaceNotFound) as error:
                ended.append(error)
                return
            committed.append(number)
            if number == 20:
                going.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert going.wait(30)
    while True:
        try:
            gone(folder)
        except OSError:  # a file came into it meanwhile
            continue
        break
    writer.join(30)
    assert not writer.is_alive()
    assert ended
    assert not folder.exists()
    if gone is moved:
        folder.with_name("moved").rename(folder)
        found: Any = read(local.open())
        assert found[: len(committed)] == committed, "all that was acknowledged, and perhaps what was under way"


_CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    "produce": lambda ns, _txn, _messages: ns.produce("orders", rows(7)),
    "commit": lambda _ns, txn, _messages: txn.commit(),
    "acknowledge": lambda _ns, _txn, messages: messages.consumer.acknowledge(messages.found),
    "create a topic": lambda ns, _txn, _messages: ns.create_topic("payments", SCHEMA),
    "checkpoint": lambda ns, _txn, _messages: ns.checkpoint(),
}


class _Received:
    def __init__(self, ns: Any) -> None:
        self.consumer = ns.consumer("orders", "billing")
        self.found = self.consumer.receive(timeout_ms=0)


def _restored(folder: Path) -> None:
    """The backup is a few entries older than the namespace."""
    moved(folder)
    shutil.copytree(folder.with_suffix(".backup"), folder)


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("what", [removed, moved, _restored], ids=["removed", "moved", "restored"])
def test_a_client_at_work_is_refused_where_its_folder_went_away(
    local: Place, what: Callable[[Path], object], call: str
) -> None:
    ns = local.orders(0)
    folder = Path(local.root) / "sales"
    shutil.copytree(folder, folder.with_suffix(".backup"))
    received = _Received(ns)
    txn = begun(ns, 8)
    what(folder)
    with raises(NamespaceNotFound, match="its folder was removed", durable=Durable.NOTHING):
        _CALLS[call](ns, txn, received)
    if what is _restored:
        with local.open(create=False) as again:
            assert read(again) == [0]
            assert again.topics() == ("orders",)
    else:
        assert not (folder / "_log").exists()
