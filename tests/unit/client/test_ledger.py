"""The ledger against a plain model: a message, a consumer, a claim at a time; and transitions that are interrupted."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.effort import tries
from tests.lines import before_line
from txnlog.client import ledger as module
from txnlog.client.ledger import Ledger, Ledgers
from txnlog.common import ranges
from txnlog.engine.runtime import Runtime
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


def acknowledgement(named: set[Message], up_to: dict[int, int] | None = None) -> Acknowledgement:
    named_ranges = tuple(PartitionRanges(partition, own) for partition, own in sorted(offsets(named).items()))
    return Acknowledgement(7, 1, named_ranges, tuple(sorted((up_to or {}).items())))


def claimed(named: set[Message], up_to: dict[int, int]) -> set[Message]:
    return named | {(partition, offset) for partition, end in up_to.items() for offset in range(end)}


@dataclass
class Claimed:
    """A claim of the model: what it takes, and what its abort releases."""

    messages: set[Message] = field(default_factory=set)
    releases: set[Message] = field(default_factory=set)
    deadline_ms: int | None = None
    plain: bool = False


class LedgerAndModel(RuleBasedStateMachine):
    """Everything that a ledger can be asked for, in any order."""

    @initialize(leased=st.booleans())
    def begin(self, leased: bool) -> None:
        self.ledger = Ledger(7, 1)
        self.ledger.leased = self.leased = leased
        self.prefetched: dict[str, set[Message]] = {"ada": set(), "bob": set()}
        self.delivered: dict[str, set[Message]] = {"ada": set(), "bob": set()}
        self.returned: dict[str, set[Message]] = {"ada": set(), "bob": set()}
        self.claims: dict[int, Claimed] = {}
        self.sent: set[int] = set()

    @rule(consumer=consumers, found=messages)
    def prefetch(self, consumer: str, found: set[Message]) -> None:
        self.ledger.prefetch(consumer, offsets(found))
        self.prefetched[consumer] |= found
        self.delivered[consumer] -= found
        self.returned[consumer] -= found

    @rule(consumer=consumers, found=messages, since=st.booleans())
    def renew(self, consumer: str, found: set[Message], since: bool) -> None:
        if since:
            found = found | self.delivered[consumer] | self.returned[consumer]
        self.ledger.renew(consumer, offsets(found))
        self.prefetched[consumer] |= found - self.delivered[consumer] - self.returned[consumer]

    @rule(consumer=consumers, found=messages)
    def deliver(self, consumer: str, found: set[Message]) -> None:
        self.ledger.deliver(consumer, offsets(found))
        self._deliver(consumer, found)

    def _deliver(self, consumer: str, found: set[Message]) -> None:
        self.delivered[consumer] |= found
        self.prefetched[consumer] -= found
        self.returned[consumer] -= found
        for claim in self.claims.values():
            claim.releases -= found

    @rule(consumer=consumers, found=messages)
    def receive_that_is_interrupted(self, consumer: str, found: set[Message]) -> None:
        self.ledger.deliver(consumer, offsets(found))
        self.ledger.withdraw(consumer, offsets(found))
        self._deliver(consumer, found)
        if self.leased:
            self.prefetched[consumer] |= found
        self.delivered[consumer] -= found

    @rule(consumer=consumers, found=messages, everything=st.booleans())
    def return_delivered(self, consumer: str, found: set[Message], everything: bool) -> None:
        if everything:
            found = found | self.delivered[consumer]
        self.ledger.return_delivered(consumer, offsets(found))
        self.returned[consumer] |= found & self.delivered[consumer]
        self.delivered[consumer] -= found

    @rule(consumer=consumers, found=messages)
    def forget_returned(self, consumer: str, found: set[Message]) -> None:
        self.ledger.forget_returned(consumer, offsets(found))
        self.returned[consumer] -= found

    @rule(consumer=consumers, found=messages, released=st.booleans())
    def redeliver(self, consumer: str, found: set[Message], released: bool) -> None:
        (self.ledger.redeliver if released else self.ledger.forget_delivered)(consumer, offsets(found))
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
        plain=st.booleans(),
        refused=st.booleans(),
    )
    def claim(
        self,
        txn: int,
        named: set[Message],
        up_to: dict[int, int],
        deadline_ms: int | None,
        plain: bool,
        refused: bool,
    ) -> None:
        known = self.claims.setdefault(txn, Claimed())
        known.releases |= claimed(named, up_to)
        known.deadline_ms = deadline_ms
        if refused:
            self.ledger.intend(txn, acknowledgement(named, up_to), deadline_ms, self.sent.__contains__)
            known.plain = False
        else:
            self.ledger.claim(txn, acknowledgement(named, up_to), deadline_ms, self.sent.__contains__, plain=plain)
            known.messages |= claimed(named, up_to)
            known.plain = plain

    @rule(txn=transactions, deadline_ms=st.none() | st.integers(1, 100))
    def note_deadline(self, txn: int, deadline_ms: int | None) -> None:
        self.ledger.note_deadline(txn, deadline_ms)
        if txn in self.claims:
            self.claims[txn].deadline_ms = deadline_ms

    @rule(txn=transactions)
    def commit(self, txn: int) -> None:
        """Nothing but the claim goes."""
        self.ledger.restore(txn, None)
        self.claims.pop(txn, None)

    @rule(txn=transactions, named=messages)
    def claim_that_was_never_made(self, txn: int, named: set[Message]) -> None:
        before = self.ledger.claims().get(txn)
        self.ledger.intend(txn, acknowledgement(named), 7, self.sent.__contains__)
        self.ledger.claim(txn, acknowledgement(named), 7, self.sent.__contains__)
        self.ledger.restore(txn, before)

    @rule(txn=transactions)
    def abort(self, txn: int) -> None:
        self.ledger.abort(txn)
        self._abort(txn)

    @rule(now_ms=st.integers(1, 100), ended=st.sets(transactions), sent=st.sets(transactions))
    def abort_those_over(self, now_ms: int, ended: set[int], sent: set[int]) -> None:
        self.sent.clear()
        self.sent.update(sent)
        self.ledger.abort_those_over(ended.__contains__, now_ms)
        for txn, claim in list(self.claims.items()):
            is_late = claim.deadline_ms is not None and claim.deadline_ms <= now_ms
            if txn in ended or (is_late and txn not in sent):
                self._abort(txn)

    def _abort(self, txn: int) -> None:
        claim = self.claims.pop(txn, Claimed())
        for consumer in self.delivered:
            if self.leased:
                self.returned[consumer] |= claim.releases & self.delivered[consumer]
            self.delivered[consumer] -= claim.releases

    @invariant()
    def a_message_is_in_one_state(self) -> None:
        for consumer in ("ada", "bob"):
            found = [self.ledger.prefetched(consumer), self.ledger.delivered(consumer), self.ledger.returned(consumer)]
            assert all(members(one).isdisjoint(members(other)) for one, other in itertools.combinations(found, 2))

    @invariant()
    def both_say_the_same(self) -> None:
        everything: set[Message] = set().union(*(claim.messages for claim in self.claims.values()))
        no_plain: set[Message] = set().union(*(claim.messages for claim in self.claims.values() if not claim.plain))
        for consumer in ("ada", "bob"):
            delivered = self.delivered[consumer]
            assert members(self.ledger.prefetched(consumer)) == self.prefetched[consumer]
            assert members(self.ledger.delivered(consumer)) == delivered
            assert members(self.ledger.returned(consumer)) == self.returned[consumer]
            assert members(self.ledger.unavailable(consumer)) == delivered | everything
            assert members(self.ledger.unavailable(consumer, plain=False)) == delivered | no_plain
        claims = {
            txn: Claimed(members(claim.offsets()), members(claim.releases), claim.deadline_ms, claim.plain)
            for txn, claim in self.ledger.claims().items()
        }
        assert claims == self.claims


LedgerAndModel.TestCase.settings = settings(
    max_examples=tries(400, 60), stateful_step_count=30, deadline=None, derandomize=False
)
TestLedgerAndModel = LedgerAndModel.TestCase


# --- interrupts -------------------------------------------------------------------------------------------------------


def never(_txn: int) -> bool:
    """No transaction was sent, nor has one ended."""
    return False


def begun() -> Ledger:
    found = Ledger(7, 1)
    found.leased = True
    found.prefetch("ada", {0: ((0, 6),), 1: ((0, 3),)})
    found.deliver("ada", {0: ((0, 4),), 1: ((2, 3),)})
    found.return_delivered("ada", {1: ((2, 3),)})
    found.claim(1, acknowledgement({(0, 0), (0, 1)}), 50, never)
    found.claim(2, acknowledgement(set(), {0: 3}), None, never)
    return found


TRANSITIONS: dict[str, Callable[[Ledger], object]] = {
    "prefetch": lambda found: found.prefetch("ada", {0: ((3, 9),)}),
    "renew": lambda found: found.renew("ada", {0: ((3, 9),)}),
    "deliver": lambda found: found.deliver("ada", {0: ((0, 1), (4, 6)), 1: ((0, 1),)}),
    "withdraw": lambda found: found.withdraw("ada", {0: ((2, 4),)}),
    "redeliver": lambda found: found.redeliver("ada", {0: ((0, 2),)}),
    "forget_delivered": lambda found: found.forget_delivered("ada", {0: ((0, 2),)}),
    "return_delivered": lambda found: found.return_delivered("ada", {0: ((2, 4),)}),
    "forget_returned": lambda found: found.forget_returned("ada", {1: ((2, 3),)}),
    "redeliver_all": lambda found: found.redeliver_all("ada"),
    "release": lambda found: found.release("ada", {1: ((0, 3),)}),
    "claim": lambda found: found.claim(1, acknowledgement({(0, 2)}), 50, never),
    "intend": lambda found: found.intend(1, acknowledgement({(0, 2)}), 50, never),
    "note_deadline": lambda found: found.note_deadline(1, 60),
    "commit": lambda found: found.restore(1, None),
    "abort": lambda found: found.abort(1),
    "abort_those_over": lambda found: found.abort_those_over(never, 50),
}


def seen(found: Ledger) -> Any:
    of_ada = [found.prefetched("ada"), found.delivered("ada"), found.returned("ada")]
    return copy.deepcopy(([dict(offsets) for offsets in of_ada], dict(found.claims())))


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


def test_a_ledger_lives_as_long_as_somebody_refers_to_it() -> None:
    ledgers = Ledgers(Runtime())
    first = ledgers.of(7, 1)
    first.deliver("ada", {0: ((0, 4),)})
    assert ledgers.of(7, 1) is first
    assert ledgers.of(7, 2) is not first, "an epoch begins anew"
    del first
    assert ledgers.of(7, 1).delivered("ada") == {}
