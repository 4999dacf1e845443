"""A call that ends without an answer: what the transaction may do next, and what must not come of it.

Each test is one way in which an answer is lost at one moment: what the processes of tests/crash meet by chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

import txnlog
from txnlog.errors import (
    Durable,
    InvalidTransactionState,
    OutcomeUnknown,
    RetriableError,
    StoreError,
    TransactionConflict,
    TransactionTimedOut,
)
from txnlog.store import Call, Created, HookStore, MemoryStore
from txnlog.testing import ManualClock

SCHEMA = pa.schema([pa.field("value", pa.int64())])
unique = itertools.count()


class Faults(HookStore):
    """A store that fails the calls it is told to, before or after they were carried out."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), before=self._before, after=self._after)
        self.dropped: set[tuple[Call, str]] = set()
        self.lost: set[tuple[Call, str]] = set()
        self.interrupt: Call | None = None
        self.unknown = ""

    def create(self, key: str, data: bytes) -> Created:
        if self.unknown and self.unknown in key:
            return Created.UNKNOWN
        return super().create(key, data)

    def _fail(self, faults: set[tuple[Call, str]], call: Call, key: str) -> None:
        if any(call is kind and part in key for kind, part in faults):
            raise StoreError(f"{call.value} of {key}", durable=Durable.MAYBE)

    def _before(self, call: Call, key: str) -> None:
        self._fail(self.dropped, call, key)

    def _after(self, call: Call, key: str, result: object) -> None:
        if call is self.interrupt and "/_log/" in key:
            raise KeyboardInterrupt
        self._fail(self.lost, call, key)

    def lose_answers(self) -> None:
        """Every entry is created, and nobody is told."""
        self.lost = {(Call.CREATE, "/_log/")}
        self.dropped = {(Call.GET, "/_log/")}

    def drop_entries(self) -> None:
        """No entry is created, and nobody is told."""
        self.dropped = {(Call.CREATE, "/_log/"), (Call.GET, "/_log/")}

    def heal(self) -> None:
        """No more faults."""
        self.lost, self.dropped, self.interrupt = set(), set(), None


@pytest.fixture
def store() -> Faults:
    return Faults()


@pytest.fixture
def ns(store: Faults) -> txnlog.Namespace:
    name = f"doubt{next(unique)}"
    ns = txnlog.open("memory://doubts", name, create=True, store=store, clock=ManualClock(1_800_000_000_000))
    ns.appender.create_attempts = 2
    ns.create_topic("orders", SCHEMA)
    ns.create_topic("audit", SCHEMA)
    ns.produce("orders", [{"value": 0}])
    return ns


def values(ns: txnlog.Namespace, topic: str = "orders") -> list[int]:
    return ns.snapshot().read(topic).column("value").to_pylist()


losing = pytest.mark.parametrize("lose", [Faults.lose_answers, Faults.drop_entries], ids=["applied", "dropped"])
Lose = Callable[[Faults], None]


@losing
def test_a_commit_in_doubt_repeated_commits_once(ns, store, lose: Lose):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    lose(store)
    with pytest.raises(OutcomeUnknown) as raised:
        txn.commit()
    assert raised.value.txn_ids == (str(txn.id),)
    store.heal()
    assert txn.commit() == txn.commit()
    assert values(ns) == [0, 1]


@losing
def test_an_abort_of_a_commit_in_doubt_tells_its_true_outcome(ns, store, lose: Lose):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    # The entry that was sent goes to its slot again before anything else does: with the commit in it.
    with pytest.raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert txn.state == ns.transaction(txn.id).state == ns.abort(txn.id).state == "COMMITTED"
    assert values(ns) == [0, 1]


def test_an_entry_that_may_not_survive_a_power_cut_is_in_doubt(ns, store):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    store.lost = {(Call.CREATE, "/_log/")}
    store.dropped = {(Call.SYNC, "/_log/")}
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    with pytest.raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert txn.state == "COMMITTED"


def test_a_commit_that_only_a_checkpoint_remembers_is_answered(ns, store):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    store.lose_answers()
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    ns.produce("orders", [{"value": 2}])
    ns.checkpoint()
    result = txn.commit()
    assert result.offsets == {("orders", 0): range(1, 2)}
    assert result.txn_id == txn.id
    assert values(ns) == [0, 1, 2]


def test_an_abort_that_only_a_checkpoint_remembers_is_answered(ns, store):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    store.lose_answers()
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.heal()
    ns.produce("orders", [{"value": 2}])
    ns.checkpoint()
    with pytest.raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert txn.state == "COMMITTED"
    assert values(ns) == [0, 1, 2]


@losing
def test_a_commit_after_a_flush_in_doubt_brings_every_row_once(ns, store, lose: Lose):
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(consumer.receive())
    txn.produce("audit", [{"value": 1}])
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    txn.commit()
    assert values(ns, "audit") == [1]
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


@losing
def test_a_flush_in_doubt_repeated_with_more_rows_brings_every_row_once(ns, store, lose: Lose):
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(consumer.receive(), cumulative=True)
    txn.produce("audit", [{"value": 1}])
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    txn.produce("audit", [{"value": 2}])
    txn.flush()
    txn.commit()
    assert values(ns, "audit") == [1, 2]
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


@losing
def test_a_flush_of_acknowledgements_in_doubt_does_not_conflict_with_itself(ns, store, lose: Lose):
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(consumer.receive())
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    txn.flush()
    txn.commit()
    assert ns.subscription("orders", "billing").cursors[0].cursor == 1


@losing
def test_an_acknowledgement_on_a_shared_subscription_in_doubt_may_be_repeated(ns, store, lose: Lose):
    ns.create_subscription("orders", "pool", type="shared")
    messages = ns.consumer("orders", "pool").receive()
    txn = ns.begin()
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.acknowledge(messages)
    store.heal()
    txn.acknowledge(messages)
    with pytest.raises(TransactionConflict):
        txn.acknowledge(messages)
    txn.abort()
    with ns.begin() as other:
        other.acknowledge(ns.consumer("orders", "pool").receive())
    assert ns.subscription("orders", "pool").cursors[0].cursor == 1


@losing
def test_an_abort_after_a_flush_in_doubt_is_in_the_log(ns, store, lose: Lose):
    consumer = ns.consumer("orders", "billing")
    txn = ns.begin()
    txn.acknowledge(consumer.receive())
    lose(store)
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    txn.abort()
    assert ns.transaction(txn.id).state == "ABORTED"
    assert len(consumer.receive()) == 1


def test_an_interrupted_commit_is_in_doubt(ns, store):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    store.interrupt = Call.CREATE
    with pytest.raises(KeyboardInterrupt):
        txn.commit()
    store.heal()
    with pytest.raises(InvalidTransactionState, match="was committed"):
        txn.abort()
    assert txn.state == "COMMITTED"
    assert values(ns) == [0, 1]


def test_a_checkpoint_whose_answer_is_lost_is_found(ns, store):
    store.lost = {(Call.CREATE, "/checkpoints/")}
    assert ns.checkpoint() == ns.snapshot().version


def test_a_checkpoint_that_does_not_arrive_is_made_again(ns, store):
    store.dropped = {(Call.CREATE, "/checkpoints/")}
    with pytest.raises(OutcomeUnknown, match="checkpoints/"):
        ns.checkpoint()
    store.heal()
    assert ns.checkpoint() == ns.snapshot().version


def test_a_manifest_that_may_not_exist_is_no_checkpoint(ns, store):
    store.unknown = "/checkpoints/"
    with pytest.raises(RetriableError) as raised:
        ns.checkpoint()
    assert raised.value.durable is Durable.MAYBE
    store.unknown = ""
    assert ns.checkpoint() == ns.snapshot().version


@pytest.mark.parametrize("again", [txnlog.Transaction.flush, txnlog.Transaction.commit], ids=["flush", "commit"])
def test_rows_whose_files_were_written_half_way_are_not_written_twice(ns, store, again):
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    txn.produce("audit", [{"value": 2}])
    store.dropped = {(Call.PUT, "/audit/")}
    with pytest.raises(StoreError):
        txn.flush()
    store.heal()
    again(txn)
    txn.commit()
    assert values(ns) == [0, 1]
    assert values(ns, "audit") == [2]


@pytest.mark.parametrize("what", ["work", "abort", "commit"])
def test_after_a_flush_in_doubt_and_a_night_in_which_its_block_was_closed_it_is_too_late(store: Faults, what: str):
    clock = ManualClock(1_800_000_000_000)
    place = ("memory://doubts", f"doubt{next(unique)}")
    ns = txnlog.open(*place, create=True, store=store, clock=clock)
    ns.appender.create_attempts = 2
    ns.create_topic("orders", SCHEMA)
    txn = ns.begin()
    txn.produce("orders", [{"value": 1}])
    store.drop_entries()
    with pytest.raises(OutcomeUnknown):
        txn.flush()
    store.heal()
    clock.advance(2 * 3_600_000)
    assert txnlog.open(*place, store=store, clock=clock).vacuum(grace_ms=3_600_000).closed_blocks == 1
    if what == "abort":
        txn.abort()
    else:
        for _ in range(2):
            with pytest.raises(TransactionTimedOut):
                txn.commit() if what == "commit" else txn.produce("orders", [{"value": 2}])
    assert txn.state == "ABORTED"
    assert values(ns) == []
