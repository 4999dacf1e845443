"""Truncation: the earlier messages of topics go with the entry that commits a transaction, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.support import SCHEMA, FaultyStore, Place, Unchanged, ids, raises, rows
from tests.client.transactions.truncating import meanwhile, numbers, replace, two_topics
from txnlog.api.namespace import Namespace
from txnlog.common.limits import DEFAULT_GRACE_MS, DEFAULT_RETAIN_MS
from txnlog.errors import (
    InvalidInputError,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    TopicNotFound,
    TransactionConflict,
    UnsupportedFeature,
)
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


@pytest.mark.clause("P-252")
def test_the_content_of_topics_is_replaced_in_one_version(place: Place) -> None:
    ns = two_topics(place)
    before = ns.snapshot().version
    result = replace(ns, 7, 8, topics=("orders", "audit"))
    assert result.version == before + 1, "one entry"
    for client in (ns, place.open(mode="r")):
        assert (numbers(client), numbers(client, "audit")) == ([7, 8], [7, 8])
        assert (numbers(client, version=before), numbers(client, "audit", before)) == (list(range(10)), [100, 101])
        assert client.snapshot().end_offsets("orders") == {0: 7, 1: 5}
    assert result.offsets == {("orders", 0): range(5, 7), ("audit", 0): range(2, 4)}
    assert ns.fsck(level="deep").is_clean


def test_rows_of_the_transaction_stay_wherever_it_produced_them(place: Place) -> None:
    """Before the call or behind it, in a file of their own, by a flush, and in many partitions."""
    ns = two_topics(place)
    with ns.begin() as txn:
        txn.produce("orders", rows(1), partition=0)
        txn.flush()
        txn.produce("orders", rows(2), partition=1)
        txn.truncate("orders")
        txn.produce("orders", rows(*range(1000, 1500)), partition=0)
        txn.flush()
        txn.produce("orders", rows(3))
    assert numbers(ns) == [1, 2, 3, *range(1000, 1500)]
    assert ns.fsck(level="deep").is_clean


def test_again_and_again_leaves_few_files(place: Place) -> None:
    ns = two_topics(place)
    for turn in range(6):
        replace(ns, turn)
        assert numbers(ns) == [turn]
    assert len(ns.snapshot().plan("orders").segments) <= 3, "the rows, and a file a partition for the holes"
    with ns.begin() as txn:
        txn.truncate("orders")
    assert numbers(ns) == []
    with ns.begin() as txn:
        txn.truncate("orders")  # nothing is there: no error
    assert ns.fsck(level="deep").is_clean


def test_an_empty_topic_and_a_partition_that_is_empty(place: Place) -> None:
    ns = place.open()
    ns.enable("holes")
    ns.create_topic("new", SCHEMA, partitions=3)
    with ns.begin() as txn:
        txn.truncate("new")
    assert numbers(ns, "new") == []
    ns.produce("new", rows(1), partition=2)
    with ns.begin() as txn:
        txn.truncate("new")
        txn.produce("new", rows(2), partition=0)
    assert numbers(ns, "new") == [2]


def test_a_vacuum_takes_what_was_truncated(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns = two_topics(memory, clock=clock)
    before = ns.snapshot().version
    replace(ns, 1)
    assert numbers(ns, version=before) == list(range(10))
    clock.advance(max(DEFAULT_RETAIN_MS, DEFAULT_GRACE_MS) + 120_000)
    ns.produce("audit", rows(1))
    assert ns.vacuum().deleted_files
    assert numbers(ns) == [1]
    assert ns.fsck(level="deep").is_clean


# --- what is refused --------------------------------------------------------------------------------------------------


def test_without_the_feature(memory: Place) -> None:
    ns = memory.orders(1)
    txn = ns.begin()
    with Unchanged(memory), raises(UnsupportedFeature, "holes"):
        txn.truncate("orders")
    txn.abort()


def test_an_unknown_topic_an_ended_transaction_and_a_wrong_argument(memory: Place) -> None:
    ns = two_topics(memory)
    txn = ns.begin()
    with raises(TopicNotFound, "order"):
        txn.truncate("order")
    with raises(InvalidInputError, "allow_unacknowledged"):
        txn.truncate("orders", allow_unacknowledged=1)
    txn.abort()
    with raises(InvalidTransactionState):
        txn.truncate("orders")
    assert len(numbers(ns)) == 10


def test_a_transaction_that_truncates_cannot_be_prepared(memory: Place) -> None:
    ns = two_topics(memory)
    txn = ns.begin()
    txn.truncate("orders")
    with raises(InvalidTransactionState, "truncates"):
        txn.prepare()
    txn.commit()
    assert numbers(ns) == []


def test_an_abort_and_a_skipped_batch_truncate_nothing(memory: Place) -> None:
    ns = two_topics(memory)
    txn = ns.begin()
    txn.truncate("orders")
    txn.flush()
    txn.abort()
    assert len(numbers(ns)) == 10
    for _ in range(2):
        with ns.begin(txn_app_id="nightly", txn_version=1) as txn:
            txn.truncate("orders")
            txn.produce("orders", rows(1))
        ns.produce("orders", rows(2))
    assert numbers(ns) == [1, 2, 2], "the second one was skipped"


# --- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_messages_that_a_subscription_needs_are_kept(memory: Place, kind: str) -> None:
    ns = two_topics(memory)
    consumer = ns.consumer("orders", "billing", type=kind)
    received = consumer.receive(max_messages=4)
    consumer.acknowledge(received)
    with Unchanged(memory), raises(InvalidInputError, "'billing' 6"):
        replace(ns, 1)
    assert len(numbers(ns)) == 10
    replace(ns, 1, allow_unacknowledged=True)
    left: list[int] = []
    while messages := consumer.receive(timeout_ms=0):
        left += ids(messages.table)
        consumer.acknowledge(messages)
    assert left[-1:] == [1]
    assert all(item.behind_messages == 0 for item in ns.lag("orders", "billing"))


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("flush", [False, True])
def test_what_the_transaction_acknowledges_itself_is_not_needed(memory: Place, cumulative: bool, flush: bool) -> None:
    ns = two_topics(memory)
    consumer = ns.consumer("orders", "billing")
    messages = consumer.receive(max_messages=100)
    assert len(messages) == 10
    with ns.begin() as txn:
        txn.acknowledge(messages, cumulative=cumulative)
        if flush:
            txn.flush()
        txn.truncate("orders")
        txn.produce("orders", rows(sum(ids(messages.table))))
    assert numbers(ns) == [45]
    assert ids(consumer.receive(timeout_ms=0).table) == [45]


def test_what_another_transaction_acknowledged_and_did_not_commit_is_needed(memory: Place) -> None:
    ns = two_topics(memory)
    consumer = ns.consumer("orders", "billing")
    other = ns.begin()
    other.acknowledge(consumer.receive(max_messages=100))
    other.flush()
    with raises(InvalidInputError, "'billing' 10"):
        replace(ns, 1)
    other.commit()
    replace(ns, 1)
    assert numbers(ns) == [1]


# --- others at the same time ------------------------------------------------------------------------------------------


def test_messages_that_others_commit_before_its_entry_go(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, other = two_topics(memory), memory.open()
    meanwhile(monkeypatch, lambda: other.produce("orders", rows(77), partition=1))
    replace(ns, 1)
    assert numbers(ns) == [1]
    assert ns.fsck(level="deep").is_clean


@pytest.mark.parametrize("act", ["optimize", "checkpoint", "erase", "delete", "truncate", "first messages"])
def test_others_who_change_the_files_meanwhile(memory: Place, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    import pyarrow.compute as pc

    ns, other = two_topics(memory), memory.open()
    calls = {
        "optimize": lambda: other.optimize("orders"),
        "checkpoint": lambda: (other.produce("audit", rows(1)), other.checkpoint(), ns.checkpoint()),
        "erase": lambda: other.erase("orders", pc.field("id") == 3),
        "delete": lambda: other.delete_records("orders", {0: 3, 1: 5}),
        "truncate": lambda: replace(other, 50),
        "first messages": lambda: other.produce("audit", rows(5), partition=1),
    }
    topic = "audit" if act == "first messages" else "orders"
    turns = meanwhile(monkeypatch, calls[act])
    replace(ns, 1, topics=(topic,))
    assert turns
    assert numbers(ns, topic) == [1]
    assert numbers(memory.open(mode="r"), topic) == [1]
    assert ns.fsck(level="deep").is_clean


def test_others_who_are_always_ahead(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with an error, the transaction is open, and its next commit goes through."""
    ns, other = two_topics(memory), memory.open()
    ns.checkpoint()

    def act() -> None:
        other.produce("orders", rows(1), partition=0)
        other.checkpoint()
        ns.checkpoint()

    meanwhile(monkeypatch, act, times=100)
    txn = ns.begin()
    txn.truncate("orders")
    txn.produce("orders", rows(5))
    with raises(RetriableError, "merged"):
        txn.commit()
    monkeypatch.undo()
    txn.commit()
    assert numbers(ns) == [5]


def test_a_topic_that_was_dropped_meanwhile(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, other = two_topics(memory), memory.open()
    meanwhile(monkeypatch, lambda: other.drop_topic("audit"))
    result = replace(ns, 1, topics=("audit", "orders"))
    assert numbers(ns) == [1]
    assert result.dropped == ("audit",)


def test_a_topic_that_was_made_again_meanwhile(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, other = two_topics(memory), memory.open()

    def again() -> None:
        other.drop_topic("audit")
        other.create_topic("audit", SCHEMA)
        other.produce("audit", rows(9))

    meanwhile(monkeypatch, again)
    with raises(TransactionConflict, "created again"), ns.begin() as txn:
        txn.truncate("audit")
    assert numbers(ns, "audit") == [9]


def test_its_entry_is_its_own_and_commits_keep_the_order_of_the_calls(memory: Place) -> None:
    ns = two_topics(memory)
    plain, first, second, late = (ns.begin() for _ in range(4))
    plain.produce("orders", rows(1), partition=0)
    late.produce("orders", rows(4), partition=0)
    for txn, number in ((first, 2), (second, 3)):
        txn.truncate("orders")
        txn.produce("orders", rows(number), partition=0)
    futures = [txn.commit_async() for txn in (plain, first, second, late)]
    versions = [future.result(30).version for future in futures]
    assert versions == sorted(set(versions)), "an entry each"
    assert [numbers(ns, version=version) for version in versions[1:]] == [[2], [3], [3, 4]]
    assert ns.fsck(level="deep").is_clean


# --- lost answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lost", "dropped", "late", "twice", "broken", "broken-after"])
def test_one_bad_answer(memory: Place, fault: str) -> None:
    ns, store = memory.wrapped(FaultyStore)
    two_topics(memory)
    txn = ns.begin()
    txn.truncate("orders")
    txn.produce("orders", rows(1), partition=0)
    store.script.extend([fault])
    txn.commit()
    store.land()
    ns.produce("orders", rows(2), partition=0)
    assert numbers(ns) == [1, 2]
    assert ns.fsck(level="deep").is_clean


@pytest.mark.parametrize("lands", [False, True])
def test_an_unknown_outcome_and_the_same_commit_again(memory: Place, lands: bool) -> None:
    ns, store = memory.wrapped(FaultyStore)
    other = two_topics(memory)
    txn = ns.begin()
    txn.truncate("orders")
    txn.produce("orders", rows(1), partition=0)
    store.script.extend(["late" if lands else "dropped"] * 100)
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    if lands:
        store.land()
    store.heal()
    other.produce("orders", rows(2), partition=1)
    txn.commit()
    assert numbers(ns) == ([1, 2] if lands else [1])
    assert txn.commit() == txn.result


# --- against a plain model --------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, 1), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("truncate"), st.sampled_from([(0,), (1,), (0, 1)]), st.integers(0, 2), st.integers(0, 3)),
    st.tuples(st.sampled_from(["optimize", "checkpoint", "reopen"]), st.integers(0, 1)),
)


class _Model:
    """Topics as lists, next to a namespace."""

    def __init__(self, ns: Namespace) -> None:
        self.ns = ns
        self.shown: dict[str, list[int]] = {name: [] for name in NAMES}
        self._number = 0

    def _fresh(self, count: int) -> list[int]:
        self._number += count
        return list(range(self._number - count, self._number))

    def produce(self, topic: int, partition: int, count: int) -> None:
        fresh = self._fresh(count)
        self.ns.produce(NAMES[topic], rows(*fresh), partition=partition)
        self.shown[NAMES[topic]] = self.shown[NAMES[topic]] + fresh

    def truncate(self, topics: tuple[int, ...], partition: int, count: int) -> None:
        fresh = self._fresh(count)
        with self.ns.begin() as txn:
            for topic in topics:
                txn.truncate(NAMES[topic])
                if fresh:
                    txn.produce(NAMES[topic], rows(*fresh), partition=partition)
                self.shown[NAMES[topic]] = fresh

    def optimize(self, topic: int) -> None:
        self.ns.optimize(NAMES[topic])

    def checkpoint(self, _: int) -> None:
        self.ns.checkpoint()


NAMES = ("a", "b")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=1, max_size=12))
def test_against_a_plain_model(fresh_place: Any, steps: list[Any]) -> None:
    place: Place = fresh_place()
    model = _Model(place.open())
    model.ns.enable("holes")
    for name in NAMES:
        model.ns.create_topic(name, SCHEMA, partitions=3)
    versions: dict[int, dict[str, list[int]]] = {}
    for kind, *arguments in steps:
        if kind == "reopen":
            model.ns = place.open()
        else:
            getattr(model, kind)(*arguments)
        versions[model.ns.snapshot().version] = {name: list(found) for name, found in model.shown.items()}
    for version, found in versions.items():
        for name in NAMES:
            assert numbers(model.ns, name, version) == sorted(found[name])
    assert model.ns.fsck(level="deep").is_clean
    place.close()


def test_a_topic_that_another_client_made_is_found_by_truncate_as_by_produce(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))  # reserves numbers: from here on begin() asks for nothing
    other.create_topic("report", SCHEMA)
    other.produce("report", rows(1))
    with ns.begin() as txn:
        txn.truncate("report")
        txn.produce("report", rows(2))
    assert ns.snapshot().read("report").column("id").to_pylist() == [2]


def test_a_feature_that_another_client_enabled_is_known_to_truncate(memory: Place) -> None:
    ns, other = memory.open(), memory.open()
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    other.enable("holes")
    with ns.begin() as txn:
        txn.truncate("orders")
        txn.produce("orders", rows(2))
    assert ns.snapshot().read("orders").column("id").to_pylist() == [2]
