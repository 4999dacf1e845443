"""Lost races, group commit and stale knowledge: two clients on one log, many commands in one entry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, ids, raises, read, rows, run_threads
from txnlog import appender, codec, segment_builder
from txnlog.actions import Close, DropTopic, Header, Protocol
from txnlog.codec import encode_action, encode_entry
from txnlog.commands import Simple
from txnlog.errors import (
    CoordinatorFenced,
    CorruptionError,
    Durable,
    InvalidInputError,
    LimitExceeded,
    OutcomeUnknown,
    OutOfOrderSequence,
    RetriableError,
    TopicExists,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
    TransactionHasFailedOperation,
    UnsupportedFeature,
)
from txnlog.keys import entry_key
from txnlog.namespace import Namespace
from txnlog.state import Draft
from txnlog.testing import ManualClock
from txnlog.transaction_commands import FlushCommand


@pytest.fixture
def pair(memory: Place) -> tuple[Any, FaultyStore, Any]:
    """A client on a store that misbehaves when told, and a rival on an honest one."""
    ns, store = memory.faulty()
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", rows(0))
    rival = memory.open()
    rival.produce("audit", rows(0))
    ns.snapshot()
    store.calls.clear()
    return ns, store, rival


def together(ns: Any, store: FaultyStore, *starts: Callable[[], Any]) -> list[Any]:
    """Start calls that gather while an entry is under way, so that they share the next one; their Futures."""
    futures: list[Any] = []
    store.script.append(lambda: futures.extend(start() for start in starts))
    ns.produce("audit", rows(-1))
    return futures


@pytest.mark.clause("P-116", "P-117")
def test_a_lost_race_is_decided_again_and_committed_behind_the_winner(pair: Any) -> None:
    ns, store, rival = pair
    store.script.append(lambda: rival.produce("orders", rows(7)))
    result = ns.produce("orders", rows(1))
    assert result.offsets == {("orders", 0): range(2, 3)}
    assert read(ns) == read(rival) == [0, 7, 1]


def test_many_lost_races_are_survived(pair: Any) -> None:
    ns, store, rival = pair
    for number in range(20):
        store.script.append(lambda number=number: rival.produce("orders", rows(100 + number)))
    for _ in range(20):
        store.script.append("ok")
    result = ns.produce("orders", rows(1))
    assert read(ns)[-1] == 1
    assert result.offsets == {("orders", 0): range(21, 22)}


def test_who_is_far_behind_reads_up_instead_of_losing_race_after_race(pair: Any) -> None:
    ns, store, rival = pair
    for number in range(60):
        rival.produce("orders", rows(number))
    store.calls.clear()
    ns.produce("orders", rows(1))
    assert [call for call, _ in store.calls].count("create") <= 4


@pytest.mark.clause("P-119")
def test_a_refusal_decided_on_stale_state_is_looked_at_again(pair: Any) -> None:
    ns, _, rival = pair
    consumer = rival.consumer("orders", "billing")
    txn = rival.begin()
    txn.acknowledge(consumer.receive(timeout_ms=0))
    txn.flush()
    ns.snapshot()  # knows of the pending acknowledgement
    txn.abort()
    mine = ns.begin()
    mine.acknowledge_ranges(_acknowledgement(rival))
    mine.commit()
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


def _acknowledgement(ns: Any) -> list[Any]:
    from txnlog.actions import Acknowledgement, PartitionRanges

    info = ns.subscription("orders", "billing")
    number = ns.connection.follower.state.subscription_names[ns.topic("orders").id, "billing"]
    return [Acknowledgement(number, info.epoch, (PartitionRanges(0, ((0, 1),)),))]


@pytest.mark.clause("P-119")
def test_a_refusal_after_a_lost_race_is_looked_at_again_too(pair: Any) -> None:
    """The winner of the race may be long ago: what it left behind is no reason to say no."""
    ns, store, rival = pair
    rival.create_topic("later", SCHEMA)
    rival.drop_topic("later")
    store.calls.clear()
    assert ns.create_topic("later", SCHEMA).name == "later"


@pytest.mark.clause("P-119")
def test_an_answer_without_an_entry_does_not_come_from_stale_state(pair: Any) -> None:
    ns, _, rival = pair
    with rival.begin(txn_app_id="nightly", txn_version=5) as txn:
        txn.produce("orders", rows(5))
    ns.forget_app("nightly")  # this client has not seen the app yet
    assert rival.last_txn_version("nightly") is None
    assert ns.create_topic("soon", SCHEMA).name == "soon"
    rival.drop_topic("soon")
    ns_topic = ns.create_topic("soon", SCHEMA, if_not_exists=True)
    assert ns_topic.id == rival.topic("soon").id


@pytest.mark.clause("P-69")
def test_a_stale_client_does_not_skip_what_was_forgotten(pair: Any) -> None:
    ns, _, rival = pair
    with ns.begin(txn_app_id="nightly", txn_version=5) as txn:
        txn.produce("orders", rows(5))
    rival.forget_app("nightly")
    txn = ns.begin(txn_app_id="nightly", txn_version=5)
    txn.produce("orders", rows(6))
    assert not txn.commit().skipped
    assert read(ns) == [0, 5, 6]


# --- group commit ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-95", "P-104")
def test_commits_that_gather_share_an_entry_and_a_segment(pair: Any) -> None:
    ns, store, _ = pair
    transactions = [ns.begin() for _ in range(5)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number + 1))
    results = [future.result(30) for future in together(ns, store, *(txn.commit_async for txn in transactions))]
    assert len({result.version for result in results}) == 1
    assert [result.offsets["orders", 0] for result in results] == [range(n, n + 1) for n in range(1, 6)]
    assert read(ns) == [0, 1, 2, 3, 4, 5]
    plan = ns.snapshot().plan("orders")
    assert len(plan.segments) == 2
    table = ns.snapshot().read("orders", include_metadata=True)
    assert table.column("_txn_id").to_pylist()[1:] == [txn.id.to_bytes() for txn in transactions]


def test_one_refused_among_good_ones_fails_alone(pair: Any) -> None:
    ns, store, _ = pair
    loader = ns.producer("loader")
    loader.produce("orders", rows(1), partition=0, sequence=5)
    good, bad, late = ns.begin(), loader.begin(), ns.begin()
    good.produce("orders", rows(2))
    bad.produce("orders", rows(99), partition=0, sequence=50)
    late.produce("orders", rows(3))
    first, refused, last = together(ns, store, good.commit_async, bad.commit_async, late.commit_async)
    assert first.result(30).offsets == {("orders", 0): range(2, 3)}
    assert last.result(30).offsets == {("orders", 0): range(3, 4)}
    assert first.result().version == last.result().version
    assert type(refused.exception(30)) is OutOfOrderSequence
    assert read(ns) == [0, 1, 2, 3]
    assert bad.state == "ABORTED"
    assert ids(ns.snapshot().read("orders", isolation_level="read_uncommitted")) == [0, 1, 2, 3]


def test_one_whose_line_the_log_cannot_hold_fails_alone(pair: Any) -> None:
    ns, store, _ = pair
    good, bad = ns.begin(), ns.begin()
    good.produce("orders", rows(1))
    bad.produce("orders", rows(2))
    bad._opening.app_id, bad._opening.app_version = "nightly", 1 << 70
    first, refused = together(ns, store, good.commit_async, bad.commit_async)
    assert first.result(30).offsets == {("orders", 0): range(1, 2)}
    assert isinstance(refused.exception(30), InvalidInputError)
    assert read(ns) == [0, 1]


@pytest.mark.clause("P-26")
def test_a_refused_member_leaves_no_trace_in_what_the_client_knows(pair: Any, memory: Place) -> None:
    """Its first lines were acceptable, a later one was not: none of them is in the entry, nor in the client's fold."""
    ns, store, _ = pair
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    consumer.acknowledge(messages)
    good, bad = ns.begin(), ns.begin()
    good.produce("orders", rows(1))
    wanted = tuple(messages.acknowledgements(ns.connection, cumulative=False))
    command = FlushCommand(bad._opening, (), wanted)
    first, refused = together(ns, store, good.commit_async, lambda: ns.connection.appender.submit(command, _unwrap))
    first.result(30)
    assert isinstance(refused.exception(30), TransactionConflict)
    fresh = memory.open()
    assert fresh.connection.follower.state.as_tables() == ns.connection.follower.state.as_tables()
    assert ns.transactions(state="OPEN") == ()


def test_a_bug_in_one_command_fails_it_alone(pair: Any) -> None:
    ns, store, _ = pair

    def broken(draft: Draft, at: Header) -> list[Any]:
        raise ZeroDivisionError

    good = ns.begin()
    good.produce("orders", rows(1))
    command = Simple(broken, broken)
    first, refused = together(ns, store, good.commit_async, lambda: ns.connection.appender.submit(command, _unwrap))
    assert first.result(30).offsets == {("orders", 0): range(1, 2)}
    assert isinstance(refused.exception(30), ZeroDivisionError)
    assert read(ns) == [0, 1]


def _unwrap(result: Any, error: BaseException | None) -> Any:
    if error is not None:
        raise error
    return result


@pytest.mark.clause("P-118", "P-119")
def test_an_answer_that_rests_on_another_member_waits_for_the_entry(pair: Any) -> None:
    """Twice the same commit in one entry: the second is not answered before that entry is there."""
    ns, store, _ = pair
    txn = ns.begin()
    txn.produce("orders", rows(1))
    futures: list[Any] = []

    def both() -> None:
        futures.extend([txn.commit_async(), txn.commit_async()])

    store.script.extend([both, "ok"])
    store.forever = "late"
    ns.produce("audit", rows(5))
    for future in futures:
        assert isinstance(future.exception(30), RetriableError), "nobody knows yet"
    store.forever = None
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    store.land()
    assert read(ns) == [0, 1]


@pytest.mark.clause("P-119")
def test_a_refusal_that_rests_on_another_member_waits_for_the_entry(pair: Any) -> None:
    """The first of two for one message wins only once it is in the log: the loser of a lost entry may win yet."""
    ns, store, rival = pair
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(timeout_ms=0)
    first, second = ns.begin(), ns.begin()
    first.acknowledge(messages)
    second._work.add_acknowledgements(first._work.acknowledged)  # as if another thread had been here at the same moment
    futures: list[Any] = []

    def rival_ends_the_first() -> None:
        rival.abort(first.id)

    store.script.extend(
        [
            lambda: futures.extend([first.commit_async(), second.commit_async()]),
            "ok",
            rival_ends_the_first,
            "ok",
        ]
    )
    ns.produce("audit", rows(5))
    assert isinstance(futures[0].exception(30), TransactionAborted)
    futures[1].result(30)
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


def test_two_for_one_message_in_one_entry_the_first_wins(pair: Any) -> None:
    ns, store, _ = pair
    consumer = ns.consumer("orders", "billing")
    first, second = ns.begin(), ns.begin()
    first.acknowledge(consumer.receive(timeout_ms=0))
    second._work.add_acknowledgements(first._work.acknowledged)
    one, two = together(ns, store, first.commit_async, second.commit_async)
    one.result(30)
    assert isinstance(two.exception(30), TransactionConflict)


def test_shared_rows_are_written_again_without_the_one_that_lost_its_topic(pair: Any) -> None:
    ns, store, rival = pair
    one, two = ns.begin(), ns.begin()
    one.produce("orders", rows(1))
    two.produce("audit", rows(2))
    futures: list[Any] = []
    store.script.extend(
        [
            lambda: futures.extend([one.commit_async(), two.commit_async()]),
            "ok",
            lambda: rival.drop_topic("audit"),
            "ok",
        ]
    )
    ns.produce("orders", rows(9))
    assert futures[0].result(30).offsets == {("orders", 0): range(2, 3)}
    result = futures[1].result(30)
    assert (result.offsets, result.dropped) == ({}, ("audit",))
    assert read(ns) == [0, 9, 1]


@pytest.mark.clause("P-33", "P-97")
def test_a_topic_dropped_between_data_and_entry_is_left_out_and_named(pair: Any) -> None:
    ns, store, rival = pair
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.produce("audit", rows(2))
    store.script.append(lambda: rival.drop_topic("orders"))
    result = txn.commit()
    assert (dict(result.offsets), result.dropped) == ({("audit", 0): range(1, 2)}, ("orders",))


@pytest.mark.clause("P-33")
def test_a_plain_produce_to_a_topic_dropped_meanwhile_is_refused(pair: Any) -> None:
    ns, store, rival = pair
    version = rival.snapshot().version
    store.script.append(lambda: rival.drop_topic("orders"))
    with raises(TopicNotFound, match="orders"):
        ns.produce("orders", rows(1))
    assert rival.snapshot().version == version + 1, "only the drop"


@pytest.mark.clause("P-97", "P-124")
def test_a_topic_that_is_dropped_by_the_entry_of_the_commit_is_left_out_and_named(pair: Any) -> None:
    """Its rows would be in that entry and at no version: the commit waits for the next one."""
    ns, store, rival = pair
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.produce("audit", rows(2))
    drop = Simple(lambda _draft, _at: [DropTopic(ns.topic("orders").id)], lambda _draft, _at: None)
    _, committed = together(
        ns, store, lambda: ns.connection.appender.submit(drop, lambda _value, _error: None), txn.commit_async
    )
    result = committed.result(30)
    assert (dict(result.offsets), result.dropped) == ({("audit", 0): range(2, 3)}, ("orders",))
    assert ids(rival.snapshot(version=result.version).read("audit")) == [0, -1, 2]


@pytest.mark.clause("P-69")
@pytest.mark.parametrize("app", ["nightly", None])
def test_a_commit_that_waits_for_the_drop_of_its_topic_is_not_overtaken(pair: Any, app: str | None) -> None:
    """A later version of its application would have it skipped, and its rows lost; later rows stand behind its own."""
    ns, store, rival = pair
    first, second = (ns.begin(txn_app_id=app, txn_version=version if app else None) for version in (1, 2))
    first.produce("orders", rows(1))
    first.produce("audit", rows(2))
    second.produce("audit", rows(3))
    drop = Simple(lambda _draft, _at: [DropTopic(ns.topic("orders").id)], lambda _draft, _at: None)
    dropping = lambda: ns.connection.appender.submit(drop, lambda _value, _error: None)  # noqa: E731
    futures = together(ns, store, dropping, first.commit_async, second.commit_async)
    assert [future.result(30).skipped for future in futures[1:]] == [False, False]
    assert read(rival, "audit") == [0, -1, 2, 3]


# --- topics that were dropped and made again ------------------------------------------------------------------------

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
    txn = ns.begin()
    txn.produce("orders", rows(1))
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
    with ns.begin() as txn:
        txn.produce("orders", rows(3))
    assert read(rival) == read(ns) == [3]


@pytest.mark.clause("P-217")
def test_who_prepares_hears_of_a_topic_that_was_made_again(pair: Any) -> None:
    ns, _, rival = pair
    make_again(rival)
    txn = ns.begin()
    txn.produce("orders", rows(1))
    with raises(TransactionConflict, match="'orders' was dropped and created again"):
        txn.prepare()
    with raises(TransactionHasFailedOperation):
        txn.commit()


def test_transact_begins_again_where_a_topic_was_made_again(pair: Any) -> None:
    ns, _, rival = pair
    make_again(rival, WIDER)
    ns.transact(lambda txn: txn.produce("orders", rows(3)))
    assert read(rival) == [3]


@pytest.mark.clause("P-33", "P-97", "P-217")
def test_rows_that_the_log_took_are_those_of_the_old_topic(pair: Any) -> None:
    ns, _, rival = pair
    txn = ns.begin()
    txn.produce("orders", rows(1))
    txn.flush()
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


@pytest.mark.clause("P-119")
def test_nobody_in_a_transaction_is_refused_for_it_either(pair: Any) -> None:
    ns, _, rival = pair
    make_again(rival, WIDER)
    with ns.begin() as txn:
        txn.produce("orders", [{"id": 2, "extra": "x"}])
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


# --- numbers --------------------------------------------------------------------------------------------------------


def close_blocks(rival: Namespace, writer: str) -> None:
    """What vacuum will do to a writer that was silent for the grace."""
    blocks = [block.first for block in rival.connection.follower.state.blocks.values() if block.writer == writer]
    rival.connection.follower.refresh()
    rival.connection.appender.call(
        Simple(lambda _draft, _at: [Close(first) for first in blocks], lambda _draft, _at: None)
    )


def _segments_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of segments that are encoded from here on."""
    made: list[int] = []
    make = segment_builder.make

    def counting(*given: Any) -> Any:
        made.append(given[3])
        return make(*given)

    monkeypatch.setattr(segment_builder, "make", counting)
    return made


@pytest.mark.clause("P-41", "P-43")
def test_a_transaction_whose_block_was_closed_is_refused(pair: Any) -> None:
    ns, _, rival = pair
    rival.snapshot()
    txn = ns.begin()
    txn.produce("orders", rows(1))
    close_blocks(rival, ns.connection.appender.writer)
    with raises(CoordinatorFenced):
        txn.commit()
    with raises(CoordinatorFenced):
        txn.commit()
    assert read(rival) == [0]


@pytest.mark.clause("P-41", "P-44")
def test_a_handle_whose_block_was_closed_goes_on_with_another(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, _, rival = pair
    rival.snapshot()
    made = _segments_made(monkeypatch)
    close_blocks(rival, ns.connection.appender.writer)
    with raises(CoordinatorFenced):
        ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert read(ns) == [0, 2]
    assert len(made) <= 4, "numbers of the closed block are not tried one after the other"


@pytest.mark.clause("P-41", "P-44")
def test_files_of_a_closed_block_are_written_again_under_other_numbers(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction's own block is open, that of its files was closed while they were written."""
    ns, store, rival = pair
    txn = ns.begin()
    txn.produce("orders", rows(1))
    opened = ns.begin()  # keeps the first block open, as a transaction that the log shows does
    opened.produce("orders", rows(2))
    opened.flush()
    ns.connection.appender.take_numbers(ns.connection.appender.numbers._left)
    ns.create_topic("more", SCHEMA)  # brings the second block
    second = max(block.first for block in ns.connection.follower.state.blocks.values())
    rival.snapshot()
    made = _segments_made(monkeypatch)

    def close_second() -> None:
        rival.connection.appender.call(Simple(lambda _draft, _at: [Close(second)], lambda _draft, _at: None))

    store.script.append(close_second)
    assert txn.commit().offsets == {("orders", 0): range(1, 2)}
    assert len(made) == 2, "once in vain, once for good"
    assert made[0] >= second
    assert made[1] > made[0]
    opened.commit()
    assert read(ns) == read(rival) == [0, 1, 2]


@pytest.mark.clause("P-57")
def test_a_number_that_was_used_up_from_outside_before_it_was_handed_out_fails_nobody(pair: Any) -> None:
    """An administrator who mistypes a TxnID hits a number that its writer has in stock: it would be the next file's."""
    ns, _, rival = pair
    first, second = ns.begin(), ns.begin()
    for txn in (first, second):
        txn.produce("orders", rows(txn.id.number))
    rival.abort(second.id.number + 1, by="ada", why="a typing error")
    first.commit()
    rival.abort(second.id.number + 10, by="ada", why="another")
    second.commit()
    assert second.id.number + 10 not in [ns.begin().id.number for _ in range(20)]
    assert sorted(read(rival)) == [0, first.id.number, second.id.number]


@pytest.mark.clause("P-41")
def test_a_block_closed_between_data_and_entry_refuses_those_files(pair: Any) -> None:
    ns, store, rival = pair
    rival.snapshot()
    store.script.append(lambda: close_blocks(rival, ns.connection.appender.writer))
    with raises(CoordinatorFenced):
        ns.produce("orders", rows(1))
    ns.produce("orders", rows(2))
    assert read(ns) == read(rival) == [0, 2]


@pytest.mark.clause("P-40", "P-42", "P-44")
def test_numbers_run_out_and_come_again(pair: Any) -> None:
    ns, _, _ = pair
    taken = [number for _ in range(40) for number in ns.connection.appender.take_numbers(300)]
    assert len(set(taken)) == len(taken) == 12_000
    assert {ns.begin().id for _ in range(10)}.isdisjoint(taken)


@pytest.mark.clause("P-40")
def test_threads_never_get_one_number_twice(pair: Any) -> None:
    ns, _, _ = pair
    found = run_threads(*[lambda: [ns.connection.appender.take_numbers(7) for _ in range(60)] for _ in range(8)])
    numbers = [number for batches in found for batch in batches for number in batch]  # type: ignore[attr-defined]
    assert len(set(numbers)) == len(numbers) == 8 * 60 * 7


def test_a_block_for_a_job_is_its_own(pair: Any) -> None:
    ns, _, rival = pair
    blocks = [ns.connection.reserve_block(1), rival.connection.reserve_block(1000), ns.connection.reserve_block(256)]
    assert [len(block) for block in blocks] == [256, 1024, 256]
    numbers = [number for block in blocks for number in block]
    assert len(set(numbers)) == len(numbers)
    with raises(InvalidInputError):
        ns.connection.reserve_block(0)


# --- size of entries ------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-13")
def test_a_group_too_big_for_one_entry_takes_several(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, store, _ = pair
    transactions = [ns.begin() for _ in range(8)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number + 1))
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 900)
    results = [future.result(30) for future in together(ns, store, *(txn.commit_async for txn in transactions))]
    assert len({result.version for result in results}) > 1
    assert read(ns) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.clause("P-13")
def test_one_too_big_for_any_entry_fails_alone(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, store, _ = pair
    small, big, last = ns.begin(), ns.begin(), ns.begin()
    small.produce("orders", rows(1))
    last.produce("orders", rows(3))
    from txnlog.actions import StreamBatch

    big.produce("orders", rows(2))
    big.set_stream(StreamBatch("q" * 200, "q" * 1000, 1, ""))
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 1200)
    one, two, three = together(ns, store, small.commit_async, big.commit_async, last.commit_async)
    one.result(30)
    assert isinstance(two.exception(30), LimitExceeded)
    three.result(30)
    assert sorted(read(ns)) == [0, 1, 3]


def test_one_of_a_split_group_that_stays_in_doubt_does_not_speak_for_the_rest(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store, _ = pair
    transactions = [ns.begin() for _ in range(4)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", rows(number + 1))
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 900)
    futures: list[Any] = []
    store.script.extend([lambda: futures.extend(txn.commit_async() for txn in transactions), "ok", *["dropped"] * 12])
    ns.produce("audit", rows(5))
    for future in futures:
        future.exception(30)
    for txn in transactions:
        txn.commit()
    assert sorted(read(ns)) == [0, 1, 2, 3, 4]


def test_the_rows_of_a_group_are_bounded(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What gathers while an entry is under way may be more than memory should hold as files at once."""
    ns, store, _ = pair
    monkeypatch.setattr(appender, "BUFFER_BYTES", 40_000)
    transactions = [ns.begin() for _ in range(6)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", pa.table({"id": [number + 1] * 1_000, "name": ["x" * 10] * 1_000}))
    results = [future.result(30) for future in together(ns, store, *(txn.commit_async for txn in transactions))]
    assert 2 <= len({result.version for result in results}) < 6


# --- rivals with another mind ---------------------------------------------------------------------------------------


@pytest.mark.clause("P-135")
def test_a_feature_enabled_meanwhile_stops_the_writer(pair: Any) -> None:
    ns, _, rival = pair
    _force(rival, Protocol(1, 1, (), ("teleport",)))
    with raises(UnsupportedFeature, match="teleport"):
        ns.produce("orders", rows(1))
    assert read(ns) == [0], "reading goes on"


@pytest.mark.clause("P-134")
def test_a_reader_feature_enabled_meanwhile_stops_everybody(pair: Any) -> None:
    ns, _, rival = pair
    _force(rival, Protocol(1, 1, ("teleport",), ("teleport",)))
    for call in (lambda: ns.produce("orders", rows(1)), ns.snapshot):
        with raises(UnsupportedFeature, match="teleport"):
            call()


def _force(ns: Namespace, *actions: Any) -> None:
    """Put an entry that this client would not write itself."""
    head = ns.connection.follower.state.head
    header = Header(head.version + 1, "f" * 32, head.timestamp_ms, head.digest)
    ns.connection.store.put(
        entry_key(header.version), encode_entry(header, [encode_action(action) for action in actions])
    )


@pytest.mark.clause("P-25")
def test_a_damaged_winner_stops_the_loser(pair: Any) -> None:
    ns, store, rival = pair
    key = entry_key(ns.snapshot().version + 1)
    store.script.append(lambda: rival.connection.store.put(key, b"no entry\n"))
    with raises(OutcomeUnknown, match=f"cannot be read.*entry {ns.snapshot().version + 1}", durable=Durable.MAYBE):
        ns.produce("orders", rows(1))
    with raises(CorruptionError):
        ns.snapshot()


def test_two_clients_make_one_topic(pair: Any) -> None:
    ns, store, rival = pair
    store.script.append(lambda: rival.create_topic("new", SCHEMA))
    with raises(TopicExists):
        ns.create_topic("new", SCHEMA)
    store.script.append(lambda: rival.create_topic("newer", SCHEMA))
    assert ns.create_topic("newer", SCHEMA, if_not_exists=True).id == rival.topic("newer").id


# --- riders ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-64")
def test_an_overdue_transaction_is_ended_by_whoever_appends_next(memory: Place, clock: ManualClock) -> None:
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    other.snapshot()
    clock.advance(5_999)
    other.produce("orders", rows(2))
    assert other.transaction(txn.id).state == "OPEN", "the grace is not over"
    clock.advance(1_001)
    other.produce("orders", rows(3))
    assert (other.transaction(txn.id).state, other.transaction(txn.id).reason) == ("ABORTED", "timeout")


@pytest.mark.clause("P-205")
def test_who_appends_all_the_time_ends_what_is_overdue_too(memory: Place, clock: ManualClock) -> None:
    """Not every entry looks for it; what counts is the time since the last look, not since the last entry."""
    ns, other = memory.open(clock=clock), memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    txn = other.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    for number in range(14):
        ns.produce("orders", rows(number))
        clock.advance(500)
    assert (ns.transaction(txn.id).state, ns.transaction(txn.id).reason) == ("ABORTED", "timeout")


@pytest.mark.clause("P-64")
def test_the_end_of_an_overdue_transaction_survives_a_lost_race(memory: Place, clock: ManualClock) -> None:
    ns, store = memory.faulty(clock=clock)
    rival = memory.open(clock=ManualClock(0))
    ns.create_topic("orders", SCHEMA)
    txn = rival.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    ns.snapshot()
    clock.advance(10_000)
    store.script.append(lambda: rival.produce("orders", rows(7)))
    ns.produce("orders", rows(2))
    assert ns.transaction(txn.id).state == "ABORTED"


def test_an_answer_that_rests_on_an_overdue_end_is_in_the_log(memory: Place, clock: ManualClock) -> None:
    """Asking for the end of an overdue transaction logs it; the version that is told exists."""
    ns = memory.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    other = memory.open(clock=clock)
    txn = ns.begin(timeout_ms=1_000)
    txn.produce("orders", rows(1))
    txn.flush()
    clock.advance(10_000)
    info = other.abort(txn.id)
    assert info.version <= other.snapshot().version
    assert other.transaction(txn.id).state == memory.open().transaction(txn.id).state == "ABORTED"
    assert memory.open().connection.follower.state.outcomes[txn.id.number].version == info.version


# --- threads --------------------------------------------------------------------------------------------------------


def test_a_caller_that_has_its_answer_does_not_wait_for_the_next_entry(pair: Any) -> None:
    """The leader of the next entry may take long: whoever rode along with this one goes at once."""
    ns, store, _ = pair
    begun, ended, next_one = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def hold_first() -> None:
        begun.set()
        assert ended.wait(20)

    def hold_third() -> None:
        next_one.set()
        assert rider_done.wait(20), "the rider waits for an entry that is not its own"

    rider_done = threading.Event()
    store.script.extend([hold_first, "ok", "ok", hold_third, "ok"])

    def first() -> None:
        ns.produce("orders", rows(1))
        order.append("first")

    def rider() -> None:
        begun.wait(20)
        ns.produce("orders", rows(2))
        rider_done.set()

    def late() -> None:
        begun.wait(20)
        while len(ns.connection.appender._queue) < 1:
            pass
        ended.set()
        while not ns.snapshot().read("orders").num_rows >= 3:
            pass
        ns.produce("orders", rows(3))

    assert run_threads(first, rider, late, seconds=40) == [None, None, None]
    assert sorted(read(ns)) == [0, 1, 2, 3]
