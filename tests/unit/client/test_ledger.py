"""The ledger against a plain model: a message, a consumer, a claim at a time; and transitions that are interrupted."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.effort import tries
from tests.interrupts import interrupted
from tests.lines import before_line
from txnlog.client import ledger as module
from txnlog.client.ledger import Claim, Ledger, Ledgers
from txnlog.common import ranges
from txnlog.format.actions import Acknowledgement, PartitionRanges

PARTITIONS, OFFSETS = 2, 12
Message = tuple[int, int]

messages = st.sets(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(0, OFFSETS - 1)), max_size=8)
consumers = st.sampled_from(["ada", "bob"])
transactions = st.integers(1, 3)


def offsets(of: set[Message]) -> dict[int, Any]:
    return {
        partition: ranges.from_values(sorted(offset for number, offset in of if number == partition))
        for partition in {number for number, _ in of}
    }


def members(found: Any) -> set[Message]:
    return {(partition, n) for partition, own in found.items() for start, end in own for n in range(start, end)}


def claim_of(named: set[Message], up_to: dict[int, int], deadline_ms: int | None) -> Claim:
    named_ranges = tuple(PartitionRanges(partition, own) for partition, own in sorted(offsets(named).items()))
    return Claim(Acknowledgement(7, 1, named_ranges, tuple(sorted(up_to.items()))), deadline_ms)


def claimed(named: set[Message], up_to: dict[int, int]) -> set[Message]:
    return named | {(partition, offset) for partition, end in up_to.items() for offset in range(end)}


class LedgerAndModel(RuleBasedStateMachine):
    """Everything that a ledger can be asked for, in any order."""

    @initialize()
    def begin(self) -> None:
        self.ledger = Ledger(7, 1)
        self.prefetched: dict[str, set[Message]] = {"ada": set(), "bob": set()}
        self.delivered: dict[str, set[Message]] = {"ada": set(), "bob": set()}
        self.claims: dict[int, tuple[set[Message], int | None]] = {}

    @rule(consumer=consumers, found=messages)
    def prefetch(self, consumer: str, found: set[Message]) -> None:
        self.ledger.prefetch(consumer, offsets(found))
        self.prefetched[consumer] |= found
        self.delivered[consumer] -= found

    @rule(consumer=consumers, found=messages)
    def deliver(self, consumer: str, found: set[Message]) -> None:
        self.ledger.deliver(consumer, offsets(found))
        self.delivered[consumer] |= found
        self.prefetched[consumer] -= found

    @rule(consumer=consumers, found=messages, leased=st.booleans())
    def receive_that_is_interrupted(self, consumer: str, found: set[Message], leased: bool) -> None:
        self.ledger.deliver(consumer, offsets(found))
        self.ledger.withdraw(consumer, offsets(found), leased=leased)
        self.delivered[consumer] -= found
        self.prefetched[consumer] = self.prefetched[consumer] | found if leased else self.prefetched[consumer] - found

    @rule(consumer=consumers, found=messages)
    def redeliver(self, consumer: str, found: set[Message]) -> None:
        self.ledger.redeliver(consumer, offsets(found))
        self.delivered[consumer] -= found

    @rule(consumer=consumers)
    def redeliver_all(self, consumer: str) -> None:
        self.ledger.redeliver_all(consumer)
        self.delivered[consumer] = set()

    @rule(consumer=consumers, found=messages)
    def release(self, consumer: str, found: set[Message]) -> None:
        self.ledger.release(consumer, offsets(found))
        self.prefetched[consumer] -= found

    @rule(
        txn=transactions,
        named=messages,
        up_to=st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(1, OFFSETS), max_size=2),
        deadline_ms=st.none() | st.integers(1, 100),
    )
    def claim(self, txn: int, named: set[Message], up_to: dict[int, int], deadline_ms: int | None) -> None:
        self.ledger.claim(txn, claim_of(named, up_to, deadline_ms))
        self.claims[txn] = (claimed(named, up_to), deadline_ms)

    @rule(txn=transactions)
    def commit(self, txn: int) -> None:
        """Also a claim that is refused: nothing but the claim goes."""
        self.ledger.claim(txn, None)
        self.claims.pop(txn, None)

    @rule(txn=transactions)
    def abort(self, txn: int) -> None:
        self.ledger.abort(txn)
        self._abort(txn)

    @rule(now_ms=st.integers(1, 100), ended=st.sets(transactions))
    def abort_those_over(self, now_ms: int, ended: set[int]) -> None:
        self.ledger.abort_those_over(ended.__contains__, now_ms)
        for txn, (_, deadline_ms) in list(self.claims.items()):
            if txn in ended or (deadline_ms is not None and deadline_ms <= now_ms):
                self._abort(txn)

    def _abort(self, txn: int) -> None:
        found, _ = self.claims.pop(txn, (set(), None))
        for consumer in self.delivered:
            self.delivered[consumer] -= found

    @invariant()
    def both_say_the_same(self) -> None:
        everything: set[Message] = set().union(*(found for found, _ in self.claims.values()))
        for consumer in ("ada", "bob"):
            assert members(self.ledger.prefetched(consumer)) == self.prefetched[consumer]
            assert members(self.ledger.delivered(consumer)) == self.delivered[consumer]
            assert members(self.ledger.unavailable(consumer)) == self.delivered[consumer] | everything
        claims = {txn: (members(claim.offsets()), claim.deadline_ms) for txn, claim in self.ledger.claims().items()}
        assert claims == self.claims


LedgerAndModel.TestCase.settings = settings(
    max_examples=tries(400, 60), stateful_step_count=30, deadline=None, derandomize=False
)
TestLedgerAndModel = LedgerAndModel.TestCase


# --- interrupts -------------------------------------------------------------------------------------------------------


def begun() -> Ledger:
    found = Ledger(7, 1)
    found.prefetch("ada", {0: ((0, 6),), 1: ((0, 3),)})
    found.deliver("ada", {0: ((0, 4),)})
    found.claim(1, claim_of({(0, 0), (0, 1)}, {}, 50))
    found.claim(2, claim_of(set(), {0: 3}, None))
    return found


TRANSITIONS: dict[str, Callable[[Ledger], None]] = {
    "prefetch": lambda found: found.prefetch("ada", {0: ((3, 9),)}),
    "deliver": lambda found: found.deliver("ada", {0: ((4, 6),), 1: ((0, 1),)}),
    "withdraw": lambda found: found.withdraw("ada", {0: ((2, 4),)}, leased=True),
    "redeliver": lambda found: found.redeliver("ada", {0: ((0, 2),)}),
    "redeliver_all": lambda found: found.redeliver_all("ada"),
    "release": lambda found: found.release("ada", {1: ((0, 3),)}),
    "claim": lambda found: found.claim(1, claim_of({(0, 2)}, {}, 50)),
    "commit": lambda found: found.claim(1, None),
    "abort": lambda found: found.abort(1),
    "abort_those_over": lambda found: found.abort_those_over(lambda _: False, 50),
}


def seen(found: Ledger) -> Any:
    return copy.deepcopy((dict(found.prefetched("ada")), dict(found.delivered("ada")), dict(found.claims())))


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", TRANSITIONS)
def test_an_interrupted_transition_happened_or_did_not(name: str) -> None:
    """Before each line of it: nobody finds messages that are neither claimed nor to be delivered."""
    whole = begun()
    before = seen(whole)
    TRANSITIONS[name](whole)
    behind = seen(whole)
    assert behind != before
    for line in itertools.count(1):
        found = begun()
        try:
            with before_line(module.__file__, line, interrupt):
                TRANSITIONS[name](found)
        except KeyboardInterrupt:
            assert seen(found) in (before, behind), line
        else:
            break
    assert line > 3


@pytest.mark.parametrize("name", TRANSITIONS)
def test_an_interrupted_transition_keeps_no_lock(name: str) -> None:
    """Wherever Ctrl-C can come."""
    for place in itertools.count(1):
        found = begun()
        going_on = interrupted(partial(TRANSITIONS[name], found), (module,), place)
        assert found._lock.acquire(timeout=1), place
        if not going_on:
            break
    assert place > 2


def test_a_ledger_lives_as_long_as_somebody_refers_to_it() -> None:
    ledgers = Ledgers()
    first = ledgers.of(7, 1)
    first.deliver("ada", {0: ((0, 4),)})
    assert ledgers.of(7, 1) is first
    assert ledgers.of(7, 2) is not first, "an epoch begins anew"
    del first
    assert ledgers.of(7, 1).delivered("ada") == {}
