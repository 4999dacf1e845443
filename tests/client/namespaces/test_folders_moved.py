"""Folders that are moved, removed or restored on a local file system under clients that have the namespace open."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, raises, read, rows
from txnlog.errors import Durable, NamespaceNotFound

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


def _moved(folder: Path) -> None:
    folder.rename(folder.with_suffix(".moved"))


def _restored(folder: Path) -> None:
    """The backup is a few entries older than the namespace."""
    _moved(folder)
    shutil.copytree(folder.with_suffix(".backup"), folder)


@pytest.mark.parametrize("call", _CALLS)
@pytest.mark.parametrize("what", [shutil.rmtree, _moved, _restored], ids=["removed", "moved", "restored"])
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
