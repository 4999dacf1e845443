"""What one client does with the messages of one subscription in one epoch: the only place that says it.

Of one consumer, a message is in one of these states, or in none of them, which is FREE:

    | here                                                 | in the log meanwhile                          |
    |------------------------------------------------------|-----------------------------------------------|
    | PREFETCHED: still to be delivered                    | leased to the consumer (Shared alone)         |
    | DELIVERED                                            | free, or leased to the consumer (Shared)      |
    | RETURNED: delivered before, and to be released there | leased to the consumer (Shared alone)         |

Besides, transactions have CLAIMED messages, which the log shows as pending from a flush on. What is claimed stays in
its state: it is DELIVERED yet where the claim ends by a refusal, and FREE or RETURNED where that ends by an abort. What
the log shows as acknowledged, or as another's, is forgotten here.

All of it happens in the engine. Every transition is one assignment: an error in it leaves the state before it. An epoch
has a ledger of its own: what a seek or a newer consumer ended cannot come back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from txnlog.common import ranges
from txnlog.common.ranges import EMPTY, Ranges
from txnlog.errors import TxnLogError
from txnlog.fold.acknowledgements import hold, not_held
from txnlog.fold.state import Draft
from txnlog.format.actions import Acknowledgement, PartitionRanges

if TYPE_CHECKING:
    from txnlog.engine.runtime import Runtime

Offsets = Mapping[int, Ranges]
"""By partition."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one transaction acknowledges of the subscription, logged or not.

    Attributes:
        deadline_ms: when it is over at the latest; None for one that is prepared, or that has no clock yet.
        plain: it is an acknowledgement outside of transactions, whose entry is under way.
        releases: by partition what is delivered again where it is aborted: what it acknowledges, and what it was
            refused, but for what was delivered again since.
        may_land: whether the transaction was sent, and may be in the log yet, as its own handle knows: its deadline
            says nothing then.
    """

    acknowledgement: Acknowledgement
    deadline_ms: int | None
    plain: bool
    releases: Offsets
    may_land: Callable[[int], bool]

    def offsets(self) -> dict[int, Ranges]:
        """The offsets that it claims, by partition."""
        return acknowledged_offsets(self.acknowledgement)


def acknowledged_offsets(acknowledgement: Acknowledgement) -> dict[int, Ranges]:
    """The offsets that an acknowledgement takes, by partition."""
    found: dict[int, Ranges] = {}
    for own in acknowledgement.ranges:
        found[own.partition] = ranges.union(found.get(own.partition, EMPTY), own.ranges)
    for partition, end in acknowledgement.cumulative:
        found[partition] = ranges.union(found.get(partition, EMPTY), ((0, end),))
    return found


class _State(NamedTuple):
    """What is prefetched, delivered, returned, by consumer, and the claims, by the number of their transactions."""

    prefetched: Mapping[str, Offsets]
    delivered: Mapping[str, Offsets]
    returned: Mapping[str, Offsets]
    claims: Mapping[int, Claim]


class Delivery:
    """What one call of ``receive`` got. To be read, and changed by the ledger, in the engine.

    Attributes:
        ledger: of the epoch in which it did.
        consumer: who received.
        offsets: which of the messages nobody of this consumer received later. Whoever did has those.
    """

    __slots__ = ("__weakref__", "consumer", "ledger", "offsets")

    def __init__(self, ledger: Ledger, consumer: str, offsets: Offsets) -> None:
        self.ledger = ledger
        self.consumer = consumer
        self.offsets = offsets


class Ledger:
    """The ledger of a subscription in an epoch.

    Attributes:
        leased: of a Shared subscription: who delivered messages has them leased. What nobody received is PREFETCHED
            again; what an abort takes from its user is RETURNED: to be released in the log, which counts it.
    """

    def __init__(self, subscription: int, epoch: int) -> None:
        self.subscription = subscription
        self.epoch = epoch
        self.leased = False
        self._state = _State({}, {}, {}, {})
        self._deliveries: list[weakref.ref[Delivery]] = []  # a WeakSet takes ten times the space, for each consumer

    # --- what it says -----------------------------------------------------------------------------------------------

    def prefetched(self, consumer: str) -> Offsets:
        """What is leased to a consumer and was not delivered."""
        return self._state.prefetched.get(consumer, {})

    def delivered(self, consumer: str) -> Offsets:
        """What was delivered to a consumer and is not known to be acknowledged."""
        return self._state.delivered.get(consumer, {})

    def returned(self, consumer: str) -> Offsets:
        """What was delivered to a consumer, and is to be released in the log, as far as that shows it leased still."""
        return self._state.returned.get(consumer, {})

    def claims(self) -> Mapping[int, Claim]:
        """The claims, by the numbers of their transactions."""
        return self._state.claims

    def unavailable(self, consumer: str, *, plain: bool = True) -> dict[int, Ranges]:
        """What a consumer is not to be delivered now, whatever the log says: delivered to it, or claimed.

        Without ``plain`` acknowledgements outside of transactions do not count: what only these claim is delivered
        again where they fail, so that no other acknowledgement may pass over it.
        """
        state = self._state
        found = dict(state.delivered.get(consumer, {}))
        for claim in state.claims.values():
            if plain or not claim.plain:
                ranges.include(found, claim.offsets())
        return found

    # --- transitions ------------------------------------------------------------------------------------------------

    def _change(self, transition: Callable[[_State], _State]) -> None:
        self._state = transition(self._state)

    def prefetch(self, consumer: str, offsets: Offsets) -> None:
        """FREE to PREFETCHED: the log shows them leased to the consumer; of what it was delivered before, once more."""
        self._change(
            lambda state: state._replace(
                prefetched=_with(state.prefetched, consumer, offsets),
                delivered=_without(state.delivered, consumer, offsets),
                returned=_without(state.returned, consumer, offsets),
            )
        )

    def renew(self, consumer: str, offsets: Offsets) -> None:
        """FREE to PREFETCHED: a lease of what was PREFETCHED is renewed. What is DELIVERED or RETURNED since stays."""

        def renewed(state: _State) -> _State:
            left = dict(offsets)
            for since in (state.delivered.get(consumer, {}), state.returned.get(consumer, {})):
                left = {p: ranges.subtract(found, since.get(p, EMPTY)) for p, found in left.items()}
            return state._replace(prefetched=_with(state.prefetched, consumer, left))

        self._change(renewed)

    def deliver(self, consumer: str, offsets: Offsets) -> Delivery:
        """FREE or PREFETCHED to DELIVERED. No earlier delivery and no earlier claim of them releases them any more."""
        self._end_deliveries(consumer, offsets)
        made = Delivery(self, consumer, offsets)
        self._deliveries = [known for known in self._deliveries if known() is not None]
        self._deliveries.append(weakref.ref(made))
        self._change(
            lambda state: state._replace(
                prefetched=_without(state.prefetched, consumer, offsets),
                delivered=_with(state.delivered, consumer, offsets),
                returned=_without(state.returned, consumer, offsets),
                claims=_released_no_more(state.claims, offsets),
            )
        )
        return made

    def _end_deliveries(self, consumer: str, offsets: Offsets) -> None:
        for reference in self._deliveries:
            known = reference()
            if known is not None and known.consumer == consumer:
                known.offsets = {p: ranges.subtract(had, offsets.get(p, EMPTY)) for p, had in known.offsets.items()}

    def withdraw(self, consumer: str, offsets: Offsets) -> None:
        """DELIVERED to what it was before: the call was interrupted, and its caller has received nothing."""
        self._end_deliveries(consumer, offsets)

        def withdrawn(state: _State) -> _State:
            delivered = state.delivered.get(consumer, {})
            mine = {p: ranges.intersect(found, delivered.get(p, EMPTY)) for p, found in offsets.items()}
            return state._replace(
                prefetched=_with(state.prefetched, consumer, mine) if self.leased else state.prefetched,
                delivered=_without(state.delivered, consumer, mine),
            )

        self._change(withdrawn)

    def redeliver(self, consumer: str, offsets: Offsets) -> None:
        """DELIVERED to FREE: released by the caller. A claim of them stays."""
        self.forget_delivered(consumer, offsets)

    def forget_delivered(self, consumer: str, offsets: Offsets) -> None:
        """DELIVERED no more: the log shows them acknowledged, or as another's. A claim of them stays."""
        self._change(lambda state: state._replace(delivered=_without(state.delivered, consumer, offsets)))

    def return_delivered(self, consumer: str, offsets: Offsets) -> None:
        """DELIVERED to RETURNED: its user failed. A claim of them stays."""

        def returned(state: _State) -> _State:
            delivered = state.delivered.get(consumer, {})
            mine = {p: ranges.intersect(found, delivered.get(p, EMPTY)) for p, found in offsets.items()}
            return state._replace(
                returned=_with(state.returned, consumer, mine),
                delivered=_without(state.delivered, consumer, mine),
            )

        self._change(returned)

    def forget_returned(self, consumer: str, offsets: Offsets) -> None:
        """RETURNED to FREE: the log shows them released, by whatever."""
        self._change(lambda state: state._replace(returned=_without(state.returned, consumer, offsets)))

    def redeliver_all(self, consumer: str) -> None:
        """DELIVERED to FREE for all that was delivered to a consumer. A claim of it stays."""
        self._change(
            lambda state: state._replace(delivered={k: v for k, v in state.delivered.items() if k != consumer})
        )

    def release(self, consumer: str, offsets: Offsets) -> None:
        """PREFETCHED to FREE."""
        self._change(lambda state: state._replace(prefetched=_without(state.prefetched, consumer, offsets)))

    def claim(
        self,
        txn: int,
        acknowledgement: Acknowledgement,
        deadline_ms: int | None,
        may_land: Callable[[int], bool],
        *,
        plain: bool = False,
    ) -> None:
        """CLAIMED as well: a transaction acknowledges them, and keeps what it claims already. Arguments as of Claim."""
        more = acknowledged_offsets(acknowledgement)
        claim = Claim(acknowledgement, deadline_ms, plain, more, may_land)
        self._change(lambda state: _claimed(state, txn, claim))

    def intend(
        self, txn: int, acknowledgement: Acknowledgement, deadline_ms: int | None, may_land: Callable[[int], bool]
    ) -> None:
        """The transaction is about to claim them: they stay DELIVERED, and are delivered again where it is aborted.

        So it is, too, with what it is refused, and where the call is interrupted.
        """
        nothing = Acknowledgement(self.subscription, self.epoch)
        claim = Claim(
            nothing, deadline_ms, plain=False, releases=acknowledged_offsets(acknowledgement), may_land=may_land
        )
        self._change(lambda state: _claimed(state, txn, claim))

    def note_deadline(self, txn: int, deadline_ms: int | None) -> None:
        """Note the deadline of a transaction, as the log knows it by now."""

        def noted(state: _State) -> _State:
            known = state.claims.get(txn)
            if known is None:
                return state
            return state._replace(claims={**state.claims, txn: replace(known, deadline_ms=deadline_ms)})

        self._change(noted)

    def restore(self, txn: int, claim: Claim | None) -> None:
        """Restore an earlier claim of a transaction; None for nothing. What it claims no more stays DELIVERED.

        So ends the claim of a transaction that was committed, and of an acknowledgement that was refused.
        """

        def restored(state: _State) -> _State:
            claims = {number: item for number, item in state.claims.items() if number != txn}
            return state._replace(claims=claims if claim is None else {**claims, txn: claim})

        self._change(restored)

    def abort(self, txn: int) -> None:
        """CLAIMED no more: it was aborted, or the log alone decides about its claim from here on.

        DELIVERED to FREE or RETURNED, for what it releases.
        """

        def aborted(state: _State) -> _State:
            claim = state.claims.get(txn)
            if claim is None:
                return state
            returned, delivered = state.returned, state.delivered
            for consumer, own in state.delivered.items():
                mine = {p: ranges.intersect(own.get(p, EMPTY), found) for p, found in claim.releases.items()}
                delivered = _without(delivered, consumer, mine)
                returned = _with(returned, consumer, mine) if self.leased else returned
            claims = {number: item for number, item in state.claims.items() if number != txn}
            return state._replace(returned=returned, delivered=delivered, claims=claims)

        self._change(aborted)

    def abort_those_over(self, ended: Callable[[int], bool], now_ms: int) -> None:
        """Abort the claims whose transaction is past its deadline, or was ended in the log, by whomever.

        So a transaction that its owner forgot claims nothing for ever.

        Args:
            ended: whether the log shows the end of a transaction.
            now_ms: the time.
        """
        for txn, claim in self._state.claims.items():
            is_late = claim.deadline_ms is not None and claim.deadline_ms <= now_ms
            if ended(txn) or (is_late and not claim.may_land(txn)):
                self.abort(txn)


class Receipt(Protocol):
    """How messages that are acknowledged were received, as the look for conflicts needs it."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the epoch in which they were delivered."""

    @property
    def unnamed(self) -> Offsets:
        """What a cumulative acknowledgement takes in addition, because it lies before them."""

    @property
    def connection(self) -> Any:
        """The handle of their consumer. Of any type: a handle has ledgers, and asks only which one it is."""

    def check_delivered(self) -> None:
        """Raise TransactionConflict where a cumulative acknowledgement would take what is still to be delivered."""


class Ledgers:
    """The ledgers of one handle: each lives as long as a consumer or a transaction refers to it. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: weakref.WeakValueDictionary[tuple[int, int], Ledger] = weakref.WeakValueDictionary()

    def of(self, subscription: int, epoch: int) -> Ledger:
        """The ledger of a subscription in an epoch; the first who asks for it has the engine make it."""
        found = self._known.get((subscription, epoch))
        return found or self._runtime.engine.look(partial(self._of, subscription, epoch))

    def _of(self, subscription: int, epoch: int) -> Ledger:
        found = self._known.get((subscription, epoch))
        if found is None:
            found = self._known[subscription, epoch] = Ledger(subscription, epoch)
        return found


def check_claim(draft: Draft, txn: int, wanted: Sequence[Acknowledgement], claims: Iterable[tuple[int, Claim]]) -> None:
    """Raise the conflict of acknowledgements with the log, or with other claims of the client. Changes the draft.

    Args:
        draft: of the newest state that the client knows.
        txn: the transaction that acknowledges.
        wanted: what it acknowledges.
        claims: by transaction what the client's transactions claim of the same subscriptions.
    """
    for number, claim in claims:
        for part in not_held(draft, number, claim.acknowledgement):
            mark = draft.savepoint()
            try:
                hold(draft, number, part)
            except TxnLogError:
                draft.rollback(mark)  # lost already: no obstacle of its own
    for item in wanted:
        hold(draft, txn, item)


def joined(acknowledgements: Iterable[Acknowledgement]) -> dict[tuple[int, int], Acknowledgement]:
    """Acknowledgements joined to one for each subscription and epoch: many small ones cost as much as one."""
    individual: dict[tuple[int, int], dict[int, Ranges]] = {}
    cumulative: dict[tuple[int, int], dict[int, int]] = {}
    for item in acknowledgements:
        key = (item.subscription, item.epoch)
        mine = individual.setdefault(key, {})
        for own in item.ranges:
            mine[own.partition] = ranges.union(mine.get(own.partition, EMPTY), own.ranges)
        ends = cumulative.setdefault(key, {})
        for partition, end in item.cumulative:
            ends[partition] = max(end, ends.get(partition, 0))
    return {
        key: Acknowledgement(
            *key,
            tuple(PartitionRanges(partition, found) for partition, found in sorted(individual[key].items())),
            tuple(sorted(cumulative[key].items())),
        )
        for key in individual
    }


def _claimed(state: _State, txn: int, claim: Claim) -> _State:
    known = state.claims.get(txn)
    releases = {} if known is None else dict(known.releases)
    ranges.include(releases, claim.releases)
    whole = claim.acknowledgement if known is None else _both(known.acknowledgement, claim.acknowledgement)
    return state._replace(claims={**state.claims, txn: replace(claim, acknowledgement=whole, releases=releases)})


def _released_no_more(claims: Mapping[int, Claim], offsets: Offsets) -> Mapping[int, Claim]:
    """The claims, of which none releases these messages any more."""
    changed: dict[int, Claim] = {}
    for txn, claim in claims.items():
        left = {p: ranges.subtract(found, offsets.get(p, EMPTY)) for p, found in claim.releases.items()}
        if left != claim.releases:
            changed[txn] = replace(claim, releases={p: found for p, found in left.items() if found})
    return {**claims, **changed} if changed else claims


def _both(one: Acknowledgement, other: Acknowledgement) -> Acknowledgement:
    (found,) = joined([one, other]).values()
    return found


def _with(state: Mapping[str, Offsets], consumer: str, more: Offsets) -> dict[str, Offsets]:
    mine = dict(state.get(consumer, {}))
    ranges.include(mine, more)
    return {**state, consumer: {partition: found for partition, found in mine.items() if found}}


def _without(state: Mapping[str, Offsets], consumer: str, less: Offsets) -> Mapping[str, Offsets]:
    mine = state.get(consumer)
    if not mine:
        return state
    left = dict(mine)
    for partition in left.keys() & less.keys():
        left[partition] = ranges.subtract(left[partition], less[partition])
    return {**state, consumer: {partition: found for partition, found in left.items() if found}}


__all__ = [
    "Claim",
    "Delivery",
    "Ledger",
    "Ledgers",
    "Offsets",
    "Receipt",
    "acknowledged_offsets",
    "check_claim",
    "joined",
]
