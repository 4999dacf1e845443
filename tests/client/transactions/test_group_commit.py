"""Many commands in one entry: who shares it, who falls out of it, what it may hold."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import Place, begun, holding, ids, raises, read, rows, submitted, together
from txnlog.api.internals import set_stream
from txnlog.data import segment_file
from txnlog.errors import (
    Durable,
    InvalidInputError,
    LimitExceeded,
    OutcomeUnknown,
    OutOfOrderSequence,
    SchemaMismatch,
    TopicNotFound,
    TransactionAborted,
    TransactionConflict,
)
from txnlog.fold.state import Draft
from txnlog.format import codec
from txnlog.format.actions import DropTopic, Header
from txnlog.log import append_queue
from txnlog.log.commands import Simple
from txnlog.log.transaction_commands import FlushCommand


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
    wanted = tuple(messages._acknowledgements(ns._connection, cumulative=False))
    command = FlushCommand(bad._opening, (), wanted)
    first, refused = together(ns, store, good.commit_async, lambda: submitted(ns, command))
    first.result(30)
    assert isinstance(refused.exception(30), TransactionConflict)
    fresh = memory.open()
    assert fresh._connection.follower.state.as_tables() == ns._connection.follower.state.as_tables()
    assert ns.transactions(state="OPEN") == ()


def test_a_bug_in_one_command_fails_it_alone(pair: Any) -> None:
    ns, store, _ = pair

    def broken(draft: Draft, at: Header) -> list[Any]:
        raise ZeroDivisionError

    good = begun(ns, 1)
    command = Simple(broken, broken)
    first, refused = together(ns, store, good.commit_async, lambda: submitted(ns, command))
    assert first.result(30).offsets == {("orders", 0): range(1, 2)}
    assert isinstance(refused.exception(30), ZeroDivisionError)
    assert read(ns) == [0, 1]


def test_rows_that_cannot_be_written_fail_their_commit_alone(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, store, _ = pair
    ns.create_topic(
        "places", pa.schema([("id", pa.int64()), ("at", pa.struct([pa.field("city", pa.string(), False)]))])
    )
    monkeypatch.setattr(segment_file, "storable", lambda table: table)
    good, bad, late = begun(ns, 1), begun(ns, 99), ns.begin()
    bad.produce("places", pa.table({"id": [99]}))
    late.produce("places", [{"id": 2, "at": {"city": "Oslo"}}])
    first, refused, last = together(ns, store, good.commit_async, bad.commit_async, late.commit_async)
    assert first.result(30).version == last.result(30).version
    error = refused.exception(30)
    assert type(error) is SchemaMismatch
    assert error.durable is Durable.NOTHING
    assert bad.state == "OPEN"
    bad.abort()
    assert (read(ns), read(ns, "places")) == ([0, 1], [2])


def test_what_fails_all_rows_of_an_entry_together_leaves_each_commit_to_be_made_again(
    pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store, _ = pair
    encode = segment_file.encode

    def short_of_memory(table: pa.Table) -> Any:
        if table.num_rows > 1:
            raise MemoryError
        return encode(table)

    monkeypatch.setattr(segment_file, "encode", short_of_memory)
    transactions = [begun(ns, 1), begun(ns, 2)]
    for future in together(ns, store, *(txn.commit_async for txn in transactions)):
        assert isinstance(future.exception(30), MemoryError)
    for txn in transactions:
        assert txn.state == "OPEN"
        txn.commit()
    assert read(ns) == [0, 1, 2]


@pytest.mark.clause("P-118", "P-119")
def test_an_answer_that_rests_on_another_member_waits_for_the_entry(pair: Any) -> None:
    """Twice the same commit in one entry: the second is not answered before that entry is there."""
    ns, store, _ = pair
    txn = begun(ns, 1)
    command = txn._run(partial(txn._machine._commit_command, in_background=True))
    futures: list[Any] = []
    store.script.extend([lambda: futures.extend(submitted(ns, command) for _ in range(2)), "ok"])
    store.forever = "late"
    ns.produce("audit", rows(5))
    assert [type(future.exception(30)) for future in futures] == [OutcomeUnknown] * 2, "nobody knows yet"
    assert len(store._late) == ns._connection.appender.create_attempts, "they shared the entry that was tried"
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
    second._machine.work.add_acknowledgements(
        first._machine.work.acknowledged
    )  # as if another thread had been here at the same moment
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
    ns.produce("orders", rows(1))
    third, fourth = holding(ns, consumer.receive(timeout_ms=0)), ns.begin()
    fourth._machine.work.add_acknowledgements(third._machine.work.acknowledged)
    one, two = together(ns, store, third.commit_async, fourth.commit_async)
    assert one.result(30).version
    assert isinstance(two.exception(30), TransactionConflict), "the first wins"


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
    txn = begun(ns, 1)
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
    txn = begun(ns, 1)
    txn.produce("audit", rows(2))
    drop = Simple(lambda _draft, _at: [DropTopic(ns.topic("orders").id)], lambda _draft, _at: None)
    _, committed = together(ns, store, lambda: submitted(ns, drop), txn.commit_async)
    result = committed.result(30)
    assert (dict(result.offsets), result.dropped) == ({("audit", 0): range(1, 2)}, ("orders",))
    assert ids(rival.snapshot(version=result.version).read("audit")) == [0, 2]


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
    dropping = lambda: submitted(ns, drop)  # noqa: E731
    futures = together(ns, store, dropping, first.commit_async, second.commit_async)
    assert [future.result(30).skipped for future in futures[1:]] == [False, False]
    assert read(rival, "audit") == [0, 2, 3]


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
    from txnlog.format.actions import StreamBatch

    big.produce("orders", rows(2))
    set_stream(big, StreamBatch("q" * 200, "q" * 1000, 1, ""))
    monkeypatch.setattr(codec, "MAX_ENTRY_BYTES", 1200)
    one, two, three = together(ns, store, small.commit_async, big.commit_async, last.commit_async)
    one.result(30)
    assert isinstance(two.exception(30), LimitExceeded)
    three.result(30)
    assert sorted(read(ns)) == [0, 1, 3]


def test_one_of_a_split_group_that_stays_unknown_does_not_speak_for_the_rest(
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
    monkeypatch.setattr(append_queue, "BUFFER_BYTES", 40_000)
    transactions = [ns.begin() for _ in range(6)]
    for number, txn in enumerate(transactions):
        txn.produce("orders", pa.table({"id": [number + 1] * 1_000, "name": ["x" * 10] * 1_000}))
    results = [future.result(30) for future in together(ns, store, *(txn.commit_async for txn in transactions))]
    assert 2 <= len({result.version for result in results}) < 6
