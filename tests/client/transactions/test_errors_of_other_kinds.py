"""Stores that raise what is none of the library's errors: MemoryError, CancelledError, SystemExit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.client.support import SCHEMA, Place, committed, read, rows
from tests.faults import Once
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
