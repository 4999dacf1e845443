"""What is read of the state in memory while entries are applied: whole, and without a lock."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, begun, read, received, rows
from tests.interrupts import hearing_signal
from txnlog.fold.state import State


def two(memory: Place) -> tuple[Any, Any]:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    return ns, other


def applied_meanwhile(ns: Any, other: Any) -> None:
    """Another thread applies an entry."""
    other.produce("orders", rows(1))
    thread = threading.Thread(target=ns.snapshot)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.clause("P-27")
@pytest.mark.parametrize("raises", [False, True])
def test_a_look_under_which_the_state_changed_is_made_again(memory: Place, raises: bool) -> None:
    ns, other = two(memory)
    seen: list[tuple[int, int]] = []

    def look(state: State) -> int:
        before = state.head.version
        if not seen:
            seen.append((before, before))
            applied_meanwhile(ns, other)
            if raises:
                raise KeyError(before)
        seen.append((before, state.head.version))
        return before

    newest = ns._connection.follower.look(look)
    assert newest == ns._connection.follower.version > seen[0][0]
    assert seen[-1] == (newest, newest)


def test_an_error_of_a_look_under_which_nothing_changed_is_raised_at_once(memory: Place) -> None:
    ns, _ = two(memory)
    calls: list[int] = []

    def look(_state: State) -> None:
        calls.append(1)
        raise KeyError("orders")

    with pytest.raises(KeyError, match="orders"):
        ns._connection.follower.look(look)
    assert calls == [1]


def test_the_handler_of_a_signal_may_commit_in_the_middle_of_a_look(memory: Place) -> None:
    """As SIGTERM in a loop that looks at the lag: with a lock the handler would wait for ever for its own thread."""
    ns, _ = two(memory)
    txn = begun(ns, 1)

    def handle(_number: int, _frame: object) -> None:
        txn.commit()

    def look(state: State) -> int:
        if txn.state == "OPEN":
            with hearing_signal(handle) as send:
                send()
        return state.head.version

    assert ns._connection.follower.look(look) == ns._connection.follower.version
    assert txn.state == "COMMITTED"
    assert read(ns) == received(ns.consumer("orders", "billing")) == [1]
