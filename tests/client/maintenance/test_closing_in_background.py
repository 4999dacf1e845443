"""HANG: ``close()`` in a finalizer that the garbage collector runs in a thread of the handle's work in the background.

It waited for that work, which waits for the finalizer: a minute, in which also nobody else could close the handle.
Python runs finalizers in whatever thread makes objects, and a merge makes more of them than anything else that runs by
itself. ``close()`` raises there, as every call does in the middle of a request, and does nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.merging import merger, soon
from tests.client.support import SCHEMA, Place, kind_of, memory_place, rows, wait_for
from txnlog.client import auto_publisher
from txnlog.client.checkpointer import Checkpointer
from txnlog.engine import engine
from txnlog.errors import CalledInItsOwnWork
from txnlog.store import HookStore
from txnlog.store.wrappers import StoreCall

__all__ = ["memory_place", "soon"]


class _Owner:
    """An object of a user that closes its namespace when it is collected; it is part of a cycle."""

    def __init__(self, ns: Any, heard: list[CalledInItsOwnWork]) -> None:
        self.ns, self.heard, self.me = ns, heard, self

    def __del__(self) -> None:
        try:
            self.ns.close()
        except CalledInItsOwnWork as error:
            self.heard.append(error)


class _Publisher:
    """Makes no table, but something that is collected."""

    def __init__(self, collect: Callable[[], None]) -> None:
        self._collect = collect

    def publish_after_commit(self, _topic: int) -> None:
        self._collect()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("where", ["a request of a merge", "a merge", "a publication", "a checkpoint"])
def test_a_finalizer_that_closes_does_not_wait_for_its_own_thread(
    memory: Place, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(engine, "_of_process", {})  # what hangs keeps the engine, too
    armed: list[Any] = []
    merges: list[str] = []

    def collect() -> None:
        if armed:
            armed.clear()
            gc.collect()

    def before(call: StoreCall, key: str) -> None:
        if where == "a request of a merge" and merges and call is StoreCall.PUT and kind_of(key) == "segment":
            collect()

    monkeypatch.setattr(auto_publisher, "_load", lambda: lambda *_: _Publisher(collect))
    make = Checkpointer._make

    def making(self: Checkpointer) -> Any:
        if where == "a checkpoint":
            collect()
        return make(self)

    monkeypatch.setattr(Checkpointer, "_make", making)
    gc.disable()
    try:
        ns = memory.open(wrap=lambda store: HookStore(store, before=before))
        memory.opened.remove(ns)
        ns.create_topic("orders", SCHEMA, delta="auto" if where == "a publication" else "off")
        if where == "a checkpoint":
            ns._connection.session.checkpointer.interval = 3
            ns._connection.session.checkpointer.spread = 0
        merge = merger(ns)._merge

        def merging(*what: Any) -> object:
            merges.append("begun")
            if where == "a merge":
                collect()
            return merge(*what)

        merger(ns)._merge = merging
        heard: list[CalledInItsOwnWork] = []
        armed.append(_Owner(ns, heard))
        for number in range(13):
            if armed:
                ns.produce("orders", rows(number))
        wait_for(lambda: bool(heard))
        ns.produce("orders", rows(99))  # nothing was closed
        ns.close()
    finally:
        gc.enable()
