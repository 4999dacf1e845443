"""Topics that were dropped and made again: what was meant for the one never reaches the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, begun, committed, raises, read, rows
from txnlog.errors import (
    TopicNotFound,
    TransactionConflict,
    TransactionHasFailedOperation,
)

WIDER = pa.schema([*SCHEMA, pa.field("extra", pa.string())])


def make_again(rival: Any, schema: pa.Schema = SCHEMA, partitions: int = 1) -> None:
    rival.drop_topic("orders")
    rival.create_topic("orders", schema, partitions=partitions)


@pytest.mark.clause("P-217")
@pytest.mark.parametrize("when", ["before", "while it is open", "before its flush", "in its commit"])
def test_rows_that_may_be_meant_for_a_topic_made_again_are_not_left_out(pair: Any, when: str) -> None:
    """The client cannot tell the cases apart, and in the first the rows belong to the topic that has the name."""
    ns, store, rival = pair
    if when == "before":
        make_again(rival)
    txn = begun(ns, 1)
    txn.produce("audit", rows(2))
    if when in {"while it is open", "before its flush"}:
        make_again(rival)
    if when == "before its flush":
        txn.flush()
    if when == "in its commit":
        store.script.append(lambda: make_again(rival))
    with raises(TransactionConflict, match="'orders' was dropped and created again"):
        txn.commit()
    assert txn.state == "ABORTED"
    assert (read(rival), read(rival, "audit")) == ([], [0])
    committed(ns, 3)
    assert read(rival) == read(ns) == [3]


@pytest.mark.clause("P-217")
def test_who_prepares_hears_of_a_topic_that_was_made_again(pair: Any) -> None:
    ns, _, rival = pair
    make_again(rival)
    txn = begun(ns, 1)
    with raises(TransactionConflict, match="'orders' was dropped and created again"):
        txn.prepare()
    with raises(TransactionHasFailedOperation):
        txn.commit()


@pytest.mark.clause("P-33", "P-97", "P-217")
def test_rows_that_the_log_took_are_those_of_the_old_topic(pair: Any) -> None:
    ns, _, rival = pair
    txn = begun(ns, 1, flush=True)
    make_again(rival)
    assert txn.commit().dropped == ("orders",)
    assert read(rival) == read(ns) == []


@pytest.mark.clause("P-54")
def test_a_first_batch_of_a_topic_made_again_is_no_repetition(pair: Any) -> None:
    """Neither to a client that has not heard of it: nothing is told to be there that was not looked for."""
    ns, _, rival = pair
    producer = ns.producer("loader")
    producer.produce("orders", rows(1, 2), 0, sequence=0)
    make_again(rival)
    result = producer.produce("orders", rows(7), 0, sequence=0)
    assert (result.duplicate, result.offsets) == (False, {("orders", 0): range(1)})
    assert read(rival) == [7]
    assert producer.produce("orders", rows(7), 0, sequence=0).duplicate


@pytest.mark.clause("P-54")
@pytest.mark.parametrize("count", [1, 3], ids=["all", "a part"])
def test_a_batch_of_a_dropped_topic_is_not_repeated(pair: Any, count: int) -> None:
    ns, _, rival = pair
    producer = ns.producer("loader")
    producer.produce("orders", rows(1, 2), 0, sequence=0)
    rival.drop_topic("orders")
    with raises(TopicNotFound, match="'orders' was dropped"):
        producer.produce("orders", rows(*range(count)), 0, sequence=0)


@pytest.mark.clause("P-119")
@pytest.mark.parametrize(
    ("data", "partition"),
    [
        (lambda: rows(2), None),
        (lambda: rows(2), 3),
        (lambda: [{"id": 2, "extra": "x"}], None),
        (lambda: iter([{"id": 2, "extra": "x"}]), None),
        (lambda: pa.table([[2], ["n"], ["x"]], WIDER).to_reader(), 3),
    ],
    ids=["name", "partition", "column", "iterator", "stream"],
)
def test_nobody_is_refused_for_what_a_topic_was_before(
    pair: Any, data: Callable[[], Any], partition: int | None
) -> None:
    ns, _, rival = pair
    make_again(rival, WIDER, 4)
    ns.produce("orders", data(), partition)
    assert read(rival) == [2]


@pytest.mark.clause("P-33")
@pytest.mark.parametrize("again", [False, True])
def test_a_plain_produce_whose_topic_is_made_again_meanwhile_goes_to_that_one(pair: Any, *, again: bool) -> None:
    """Once: where that is made again too, somebody else has to sort it out."""
    ns, store, rival = pair
    store.script.append(lambda: make_again(rival))
    if not again:
        ns.produce("orders", rows(2))
        assert read(rival) == [2]
        return
    store.script.extend(["ok", lambda: make_again(rival)])
    with raises(TopicNotFound, match="'orders' was dropped"):
        ns.produce("orders", rows(2))
    assert read(rival) == []


class Progress:
    """A progress bar: it has the length of what it counts, which may be gone as soon as somebody looked at it."""

    def __init__(self, items: list[Any]) -> None:
        self._items, self._length = iter(items), len(items)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        yield from self._items


def _table(items: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(items, WIDER if any("extra" in item for item in items) else SCHEMA)


READ_ONCE: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "iterator": iter,
    "progress bar": Progress,
    "batches in a progress bar": lambda items: Progress([_table([item]) for item in items]),
    "stream": lambda items: _table(items).to_reader(),
    "streams in a list": lambda items: [_table([item]).to_reader() for item in items],
    "streams in a tuple, behind a table": lambda items: (
        _table(items[:1]),
        *[_table([item]).to_reader() for item in items[1:]],
    ),
}
READ_AGAIN: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "row": lambda items: items[0],
    "rows": list,
    "a tuple of rows": tuple,
    "table": _table,
    "a list of batches": lambda items: _table(items).to_batches(),
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("kind", READ_ONCE)
def test_what_is_read_once_is_not_read_again(pair: Any, kind: str) -> None:
    """Nothing, or half of it, would go to the topic that was made again meanwhile."""
    ns, store, rival = pair
    store.script.append(lambda: make_again(rival))
    with raises(TopicNotFound, match="'orders' was dropped"):
        ns.produce("orders", READ_ONCE[kind](rows(2, 3)))
    assert read(rival) == []


@pytest.mark.parametrize("kind", READ_AGAIN)
def test_what_can_be_read_again_goes_to_the_topic_made_again(pair: Any, kind: str) -> None:
    ns, store, rival = pair
    store.script.append(lambda: make_again(rival))
    ns.produce("orders", READ_AGAIN[kind](rows(2)))
    assert read(rival) == [2]


@pytest.mark.clause("P-119")
@pytest.mark.parametrize("kind", [*READ_ONCE, *READ_AGAIN])
@pytest.mark.parametrize("how", ["plain", "in a transaction"])
def test_rows_that_fitted_the_topic_of_before_come_along(pair: Any, how: str, kind: str) -> None:
    ns, _, rival = pair
    make_again(rival, WIDER)
    items: list[dict[str, Any]] = [*rows(1), {"id": 2, "extra": "x"}, *rows(3)]
    data = (READ_ONCE | READ_AGAIN)[kind](items)
    if how == "plain":
        ns.produce("orders", data)
    else:
        ns.transact(lambda txn: txn.produce("orders", data), 1 if kind in READ_ONCE else 2)
    assert read(rival) == ([1] if kind == "row" else [1, 2, 3])


def test_rows_that_their_caller_took_away_meanwhile_were_not_committed(pair: Any) -> None:
    ns, store, rival = pair
    data = rows(2)

    def meanwhile() -> None:
        make_again(rival)
        data.clear()

    store.script.append(meanwhile)
    with raises(TopicNotFound, match="'orders' was dropped"):
        ns.produce("orders", data)
