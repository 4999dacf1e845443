"""The recorder writes down what happened in real time; a history survives a bug report."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from txnlog.errors import Durable, InvalidInputError, OutcomeUnknown, StoreError, TransactionTimedOut
from txnlog.testing.history import History, Recorder
from txnlog.testing.operation_parts import (
    CursorAt,
    Ended,
    Message,
    OffsetRange,
    PartitionRows,
    Row,
    Span,
)
from txnlog.testing.operations import (
    DropTopic,
    Produce,
)


def recorded() -> Recorder:
    """One operation of every kind that has anything to say."""
    found = Recorder()
    token = found.invoke("writer", "open_producer", name="loader")
    found.ok(token, epoch=1)
    found.ok(found.invoke("writer", "begin", txn="a", producer="loader", epoch=1))
    found.ok(found.invoke("writer", "produce", txn="a", topic="orders", partition=0, values=[1, 2], sequence=0))
    ranges = [(0, 0, 1)]
    acknowledge = {"topic": "orders", "subscription": "s", "epoch": 2, "ranges": ranges, "cumulative": False}
    found.ok(found.invoke("writer", "acknowledge", txn="a", **acknowledge))
    found.ok(found.invoke("writer", "commit", txn="a"), version=3, offsets={("orders", 0): range(2)})
    found.ok(found.invoke("reader", "open_consumer", topic="orders", subscription="s"), epoch=2)
    token = found.invoke("reader", "receive", topic="orders", subscription="s", epoch=2)
    found.ok(token, messages=[(0, 0, 1, 0)])
    found.ok(found.invoke("reader", "seek", topic="orders", subscription="s", positions={0: 1}), epoch=4)
    rows = {("orders", 0): ((0, 1, "a", 3), (1, 2, "a", 3))}
    found.ok(found.invoke("reader", "read", version=None), version=3, rows=rows)
    found.ok(found.invoke("reader", "outcome", txn="a"), state="COMMITTED", version=3)
    found.failed(found.invoke("reader", "abort", txn="a"), InvalidInputError("it is committed"))
    token = found.invoke("judge", "final")
    cursors = {("orders", "s"): {0: (1, ((2, 3),))}}
    found.ok(token, rows=rows, outcomes={"a": ("COMMITTED", 3)}, cursors=cursors)
    found.invoke("writer", "commit", txn="b")
    return found


def test_events_are_numbered_in_the_order_in_which_they_happen():
    found = Recorder()
    first = found.invoke("a", "commit", txn="1")
    second = found.invoke("b", "commit", txn="2")
    found.ok(second, version=7)
    found.ok(first, version=8)
    assert [(item.invoked, item.completed) for item in found.history().operations] == [(1, 4), (2, 3)]


def test_what_only_the_call_could_find_out_is_amended_until_its_end():
    found = Recorder()
    call = found.invoke("a", "drop_topic", topic="orders")
    found.amend(call, topic="orders~7")
    found.ok(call)
    assert found.history().operations[0].arguments == DropTopic("orders~7")
    with pytest.raises(AssertionError, match="nothing is amended afterwards"):
        found.amend(call, topic="orders")


def test_a_call_that_did_not_return_stays_open():
    last = recorded().history().operations[-1]
    assert (last.completed, last.result, last.error, last.durable) == (None, None, None, None)
    assert last.possible
    assert not last.succeeded


@pytest.mark.parametrize(
    ("error", "name", "durable"),
    [
        (OutcomeUnknown("?"), "OutcomeUnknown", "maybe"),
        (TransactionTimedOut("late"), "TransactionTimedOut", "nothing"),
        (StoreError("full", durable=Durable.MAYBE), "StoreError", "maybe"),
        (ValueError("a bug"), "ValueError", None),
    ],
)
def test_an_error_is_kept_as_its_name_and_what_it_says_of_effects(error, name, durable):
    found = Recorder()
    found.failed(found.invoke("a", "commit", txn="1"), error)
    operation = found.history().operations[0]
    assert (operation.error, operation.durable) == (name, durable)
    assert operation.possible == (durable != "nothing")


def test_arguments_and_results_are_kept_as_immutable_typed_values():
    operations = recorded().history().operations
    asked: list[Any] = [operation.arguments for operation in operations]
    told: list[Any] = [operation.result for operation in operations]
    assert asked[2] == Produce("a", "orders", 0, (1, 2), 0)
    assert asked[3].ranges == (OffsetRange(0, 0, 1),)
    assert told[4].offsets == (Span("orders", 0, 0, 2),)
    assert told[6].messages == (Message(0, 0, 1, 0),)
    assert asked[7].positions == ((0, 1),)
    assert told[8].rows == (PartitionRows("orders", 0, (Row(0, 1, "a", 3), Row(1, 2, "a", 3))),)
    assert told[11].outcomes == (Ended("a", "COMMITTED", 3),)
    assert told[11].cursors == (CursorAt("orders", "s", 0, 1, ((2, 3),)),)
    assert hash(operations)


def test_a_history_is_the_same_after_it_was_written_as_lines_and_read_back():
    history = recorded().history()
    lines = history.to_lines()
    assert lines.count("\n") == len(history.operations)
    assert History.from_lines(lines) == history
    assert History.from_lines(lines.splitlines()) == history


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("comit", {"txn": "1"}),
        ("commit", {}),
        ("commit", {"txn": 1}),
        ("commit", {"txn": "1", "version": 3}),
        ("produce", {"txn": None, "topic": "orders", "partition": 0, "values": ["text"]}),
    ],
)
def test_a_call_that_is_none_of_the_kinds_is_refused_at_once(kind, arguments):
    with pytest.raises(msgspec.ValidationError):
        Recorder().invoke("a", kind, **arguments)


def test_a_result_of_another_kind_is_refused():
    found = Recorder()
    token = found.invoke("a", "commit", txn="1")
    with pytest.raises(msgspec.ValidationError):
        found.ok(token, rows=())
    assert found.history().operations[0].completed is None


def test_a_call_returns_once():
    found = Recorder()
    token = found.invoke("a", "abort", txn="1")
    found.ok(token)
    with pytest.raises(AssertionError, match="returns once"):
        found.failed(token, ValueError("again"))


def test_threads_may_share_a_recorder():
    found = Recorder()

    def work(name: str) -> None:
        for number in range(200):
            found.ok(found.invoke(name, "commit", txn=f"{name}{number}"), version=number)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    operations = found.history().operations
    events = sorted(event for item in operations for event in (item.invoked, item.completed))
    assert events == list(range(1, 1601))
    assert [item.number for item in operations] == list(range(800))
