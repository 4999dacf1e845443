"""State is bounded by counts: one too many is refused with its limit named, and what is there goes on (P-36)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, raises, read, rows
from txnlog.api.internals import set_stream
from txnlog.common.format_limits import MAX_NUMBER, MAX_PARTITIONS, MAX_TIMEOUT_MS
from txnlog.errors import InvalidInputError, LimitExceeded
from txnlog.fold import producers, sequences, subscriptions, topics, transactions
from txnlog.format.actions import StreamBatch


@pytest.mark.clause("P-31", "P-36")
def test_a_topic_with_too_many_partitions_is_refused_as_a_limit_and_one_with_none_as_a_wrong_call(
    sales: Any, memory: Place
) -> None:
    for many in (MAX_PARTITIONS + 1, 10**6, 10**30):
        with Unchanged(memory), raises(LimitExceeded, match="at most 10,000"):
            sales.create_topic("many", SCHEMA, partitions=many)
    with Unchanged(memory), raises(InvalidInputError, match="at least 1") as caught:
        sales.create_topic("none", SCHEMA, partitions=0)
    assert type(caught.value) is InvalidInputError
    assert sales.create_topic("most", SCHEMA, partitions=MAX_PARTITIONS).partitions == MAX_PARTITIONS


@pytest.mark.clause("P-36")
def test_one_producer_too_many_is_refused_and_a_known_name_is_not(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "MAX_PRODUCERS", 2)
    sales.producer("one")
    sales.producer("two")
    with Unchanged(memory), raises(LimitExceeded, match="2 producers") as caught:
        sales.producer("three")
    assert "one name for all runs" in caught.value.advice
    assert sales.producer("one").epoch == sales.snapshot().version
    sales.produce("orders", rows(1))
    assert read(sales) == [1]


@pytest.mark.clause("P-36")
@pytest.mark.parametrize("flushed", [True, False])
def test_one_application_too_many_is_refused_until_another_is_forgotten(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    monkeypatch.setattr(transactions, "MAX_APPS", 1)
    batch(sales, "nightly", 1, 1).commit()
    txn = batch(sales, "hourly", 1, 2)
    with Unchanged(memory), raises(LimitExceeded, match="1 applications") as caught:
        txn.flush() if flushed else txn.commit()
    assert "forget_app" in caught.value.advice
    batch(sales, "nightly", 2, 3).commit()
    sales.forget_app("nightly")
    txn.commit()
    assert sales.last_txn_version("hourly") == 1
    assert read(sales) == [1, 3, 2]


def batch(ns: Any, app: str, version: int, number: int) -> Any:
    """An open transaction of an application."""
    return begun(ns, number, txn_app_id=app, txn_version=version)


@pytest.mark.clause("P-36", "P-60")
@pytest.mark.parametrize("prepared", [True, False])
def test_what_is_in_the_log_already_is_never_refused_for_a_limit(
    sales: Any, monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    producer = sales.producer("loader")
    txn = begun(producer, 1, partition=0, sequence=0, txn_app_id="nightly", txn_version=1)
    token = txn.prepare() if prepared else txn.flush()
    monkeypatch.setattr(transactions, "MAX_APPS", 0)
    monkeypatch.setattr(sequences, "MAX_SEQUENCES", 0)
    if prepared:
        sales.complete(token, commit=True)
    else:
        txn.commit()
    assert (sales.last_txn_version("nightly"), producer.last_sequence("orders", 0)) == (1, 0)


@pytest.mark.clause("P-50")
def test_a_batch_that_would_use_up_the_sequences_of_its_producer_is_refused(sales: Any, memory: Place) -> None:
    last = MAX_NUMBER - 1
    producer = sales.producer("loader")
    for sequence, count in ((MAX_NUMBER, 1), (last, 2), (last - 1, 3)):
        with Unchanged(memory), raises(LimitExceeded, match=f"sequences end at {last:,}") as caught:
            producer.produce("orders", rows(*range(count)), 0, sequence=sequence)
        assert "from 0 on" in caught.value.advice
    with sales.producer("other").begin() as txn:
        with Unchanged(memory), raises(LimitExceeded, match="sequences end at"):
            txn.produce("orders", rows(1, 2), 0, sequence=last)
        txn.produce("orders", rows(3), 0, sequence=0)  # the refused call added nothing
    assert producer.last_sequence("orders", 0) is None
    producer.produce("orders", rows(4), 0, sequence=7)
    assert (read(sales), producer.last_sequence("orders", 0)) == ([3, 4], 7)


@pytest.mark.clause("P-50")
def test_behind_the_greatest_sequence_an_assigned_one_is_refused_and_a_repeat_is_answered(
    sales: Any, memory: Place
) -> None:
    last = MAX_NUMBER - 1
    producer = sales.producer("loader")
    first = producer.produce("orders", rows(1), 0, sequence=last - 1)
    producer.produce("orders", rows(2), 0)
    with Unchanged(memory), raises(LimitExceeded, match="sequences end at") as caught:
        producer.produce("orders", rows(3), 0)
    assert "another producer name" in caught.value.advice
    sales.checkpoint()
    restarted = memory.open().producer("loader")
    with Unchanged(memory):
        again = restarted.produce("orders", rows(1), 0, sequence=last - 1)
    assert (again.duplicate, again.offsets) == (True, first.offsets)


@pytest.mark.clause("P-50", "P-54")
def test_a_batch_beyond_the_greatest_sequence_of_an_earlier_writer_stays_readable(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(sequences, "MAX_NUMBER", 1 << 70)
        producer = sales.producer("loader")
        first = producer.produce("orders", rows(1, 2), 0, sequence=MAX_NUMBER)
    sales.checkpoint()
    reader = memory.open()
    assert read(reader) == [1, 2]
    loader = reader.producer("loader")
    with raises(LimitExceeded, match="sequences end at"):
        loader.produce("orders", rows(3), 0)
    again = loader.produce("orders", rows(1, 2), 0, sequence=MAX_NUMBER)
    assert (again.duplicate, again.offsets) == (True, first.offsets)


@pytest.mark.clause("P-36")
@pytest.mark.parametrize("call", ["produce", "commit", "flush", "prepare"])
def test_sequences_in_one_partition_too_many_are_refused_and_known_ones_go_on(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(sequences, "MAX_SEQUENCES", 1)
    producer = sales.producer("loader")
    producer.produce("orders", rows(1), partition=0, sequence=0)
    txn = producer.begin()
    if call != "produce":
        txn.produce("audit", rows(2), partition=0, sequence=0)
    with Unchanged(memory), raises(LimitExceeded, match="1 producers and partitions"):
        if call == "produce":
            producer.produce("audit", rows(2), partition=0, sequence=0)
        else:
            getattr(txn, call)()
    producer.produce("orders", rows(2), partition=0, sequence=1)
    sales.produce("audit", rows(3))
    assert (read(sales), read(sales, "audit")) == ([1, 2], [3])


@pytest.mark.clause("P-36")
def test_one_stream_too_many_is_refused_and_a_known_one_goes_on(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MAX_STREAMS", 1)
    streamed(sales, "carriers", 0).commit()
    txn = streamed(sales, "delays", 0)
    with Unchanged(memory), raises(LimitExceeded, match="1 streams"):
        txn.commit()
    txn.abort()
    streamed(sales, "carriers", 1).commit()
    assert read(sales) == [0, 1]


def streamed(ns: Any, identity: str, number: int) -> Any:
    """An open transaction with a micro-batch."""
    txn = begun(ns, number)
    set_stream(txn, StreamBatch(identity, "q", number, "d"))
    return txn


@pytest.mark.clause("P-36")
def test_open_and_prepared_transactions_are_counted_together(
    sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("api.writing", "fold.transactions"):
        monkeypatch.setattr(f"txnlog.{module}.MAX_OPEN_TRANSACTIONS", 2)
    late = memory.open()
    waiting = begun(late, 9)
    first = begun(sales, 1)
    token = first.prepare()
    second = begun(sales, 2, flush=True)
    with Unchanged(memory):
        with raises(LimitExceeded, match="2 open transactions"):
            sales.begin()
        with raises(LimitExceeded, match="2 open transactions"):
            waiting.flush()
    sales.complete(token, commit=False)
    waiting.flush()
    waiting.commit()
    second.commit()
    assert read(sales) == [9, 2]


@pytest.mark.clause("P-36")
def test_topics_and_subscriptions_are_counted(sales: Any, memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "MAX_TOPICS", 2)
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 1)
    sales.create_subscription("orders", "billing")
    with Unchanged(memory):
        with raises(LimitExceeded):
            sales.create_topic("third", SCHEMA)
        with raises(LimitExceeded):
            sales.create_subscription("audit", "billing")
    sales.drop_subscription("orders", "billing")
    sales.create_subscription("audit", "billing")


@pytest.mark.clause("P-58")
@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1, 1.5, "60000", True, float("nan")])
def test_a_timeout_that_makes_no_sense_is_refused_before_anything_runs(
    sales: Any, memory: Place, timeout_ms: Any
) -> None:
    producer = sales.producer("loader")
    with Unchanged(memory):
        for begin in (sales.begin, producer.begin):
            with raises(InvalidInputError, match="timeout_ms"):
                begin(timeout_ms=timeout_ms)
        with raises(InvalidInputError, match="timeout_ms"):
            sales.transact(lambda _txn: 1 // 0, timeout_ms=timeout_ms)
    assert sales.begin(timeout_ms=MAX_TIMEOUT_MS).state == "OPEN"
