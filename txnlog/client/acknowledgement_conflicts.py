"""What acknowledgements conflict with, by what this client knows: the log, and other claims of the same messages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from txnlog.client.ledger import Claim, Ledger, Receipt, acknowledged_offsets, check_claim
from txnlog.common import ranges
from txnlog.errors import OutcomeUnknown, TransactionConflict, TxnLogError
from txnlog.fold.overdue import overdue
from txnlog.fold.state import Draft, State
from txnlog.format.actions import Acknowledgement
from txnlog.log.commands import Answer, Simple

if TYPE_CHECKING:
    from txnlog.client.session_owner import SessionOwner


async def check_conflicts(
    connection: SessionOwner,
    txn: int,
    wanted: Sequence[Acknowledgement],
    receipt: Receipt | None,
    claim: Callable[[Sequence[Acknowledgement]], None],
    *,
    rest_of: Callable[[Draft], Sequence[Acknowledgement]] | None = None,
) -> None:
    """Raise the conflict of acknowledgements, or claim them. A command of the engine: nothing comes between the two.

    A conflict with the log, with a claim of another transaction of this client, or with what their consumer has
    still to deliver. No request where there is none. What the client knows is looked at again before it says no,
    and what is overdue is ended: its claims are over.

    Args:
        connection: the handle through which they are acknowledged.
        txn: the transaction that acknowledges.
        wanted: what it acknowledges.
        receipt: how it was received, where a consumer did: maybe one of another handle.
        claim: claims them, or what is left of them.
        rest_of: what of them is left to acknowledge, if not all; for an acknowledgement outside of transactions.

    Raises:
        TransactionConflict, ConsumerFenced, SubscriptionNotFound: nothing was claimed.
        StoreError: neither; the log could not be looked at again.
    """
    handles = [connection]
    if receipt is not None and receipt.connection is not connection:
        handles.append(receipt.connection)
    known = [handle.follower.version for handle in handles]
    refusal = _refusal(handles, txn, wanted, receipt, claim, rest_of)
    if refusal is None:
        return
    for handle in handles:
        await handle.follower.refreshing()
        with contextlib.suppress(OutcomeUnknown):  # of its end: the refusal stands then
            await ending_overdue(handle, [item.subscription for item in wanted])
    if len(handles) > 1:
        # Of what the other one ended, which alone may know of its unlogged aborts.
        await connection.follower.refreshing()
    if known != [handle.follower.version for handle in handles]:
        refusal = _refusal(handles, txn, wanted, receipt, claim, rest_of)
    if refusal is not None:
        raise refusal


def _refusal(
    handles: Sequence[SessionOwner],
    txn: int,
    wanted: Sequence[Acknowledgement],
    receipt: Receipt | None,
    claim: Callable[[Sequence[Acknowledgement]], None],
    rest_of: Callable[[Draft], Sequence[Acknowledgement]] | None,
) -> TxnLogError | None:
    """The conflict of acknowledgements by what these handles know; None where they are claimed."""
    rest = wanted
    try:
        for handle in handles:  # a consumer passes over what is claimed in one of them, and must not lose it
            draft = handle.follower.state.draft()
            rest = wanted if rest_of is None else rest_of(draft)
            check_claim(draft, txn, rest, _claims_of(handle, wanted))
        if rest_of is None:
            _check_plain(handles[0], wanted, receipt)
        if receipt is not None:
            receipt.check_delivered()
    except TxnLogError as error:
        return error
    claim(rest)
    return None


def _claims_of(connection: SessionOwner, wanted: Iterable[Acknowledgement]) -> Iterator[tuple[int, Claim]]:
    """What transactions of this client claim of the same subscriptions."""
    for item in wanted:
        ledger = connection.ledger(item.subscription, item.epoch)
        end_claims(connection, ledger)
        for number, claim in ledger.claims().items():
            if not claim.plain:
                yield number, claim


def _check_plain(connection: SessionOwner, wanted: Sequence[Acknowledgement], receipt: Receipt | None) -> None:
    """Raise TransactionConflict for messages that an acknowledgement outside of transactions takes just now.

    Only for those that are named: what lies before the end of a cumulative one may be acknowledged meanwhile. Two
    acknowledgements outside of transactions have no conflict: which the log shows first makes no difference.
    """
    for item in wanted:
        named = acknowledged_offsets(item)
        if receipt is not None:
            ranges.exclude(named, receipt.unnamed)
        for ledger in ledgers_of(connection, [item], receipt):
            for claim in ledger.claims().values():
                claimed = claim.offsets() if claim.plain else {}
                for partition, found in named.items():
                    if ranges.overlaps(found, claimed.get(partition, ())):
                        raise TransactionConflict(
                            f"a message of partition {partition} is pending in an acknowledgement outside of "
                            "transactions, which is under way"
                        )


def ledgers_of(connection: SessionOwner, wanted: Iterable[Acknowledgement], receipt: Receipt | None) -> list[Ledger]:
    """The ledgers for claims of acknowledgements: this handle's, and that of the consumer that received them."""
    found = [connection.ledger(item.subscription, item.epoch) for item in wanted]
    return found if receipt is None or receipt.ledger in found else [*found, receipt.ledger]


def end_claims(connection: SessionOwner, ledger: Ledger) -> None:
    """Abort the claims in a ledger whose transactions are past their deadline, or ended in the log."""
    ledger.abort_those_over(connection.may_have_ended, connection.runtime.now_ms())


def end_overdue(connection: SessionOwner, subscriptions: Sequence[int]) -> None:
    """End transactions that claim messages of subscriptions and are overdue, or whose abort is not logged yet.

    Somebody waits for them. For a handle that writes.
    """
    connection.appender.run(partial(ending_overdue, connection, subscriptions))


async def ending_overdue(connection: SessionOwner, subscriptions: Sequence[int]) -> None:
    """See ``end_overdue``; for commands of the engine. One that reads has none, and ends none."""
    if connection.mode != "rw":
        return
    unlogged_aborts = connection.session.unlogged_aborts
    ending = Simple(
        lambda draft, at: overdue(draft, at.timestamp_ms, unlogged_aborts) or Answer(False),
        lambda _draft, _at: True,
        is_upkeep=True,
    )
    # An entry ends a part of them, and who holds these messages may come last. Where it ends none, the clock was
    # ahead a moment ago: by the time of the log none is overdue.
    while _have_overdue(connection, subscriptions) and await connection.appender.carry_out(ending):
        pass
    _forget_logged_aborts(connection)


def _forget_logged_aborts(connection: SessionOwner) -> None:
    aborts = connection.session.unlogged_aborts
    for txn in [txn for txn in list(aborts) if connection.follower.state.outcomes.get(txn) is not None]:
        aborts.pop(txn, None)


def claim_in(
    ledgers: Iterable[Ledger],
    number: int,
    wanted: Iterable[Acknowledgement],
    deadline_ms: int | None,
    may_land: Callable[[int], bool],
    *,
    plain: bool = False,
) -> None:
    """Note claims in those of the ledgers that are of their subscription and epoch."""
    for item in wanted:
        for ledger in ledgers:
            if (ledger.subscription, ledger.epoch) == (item.subscription, item.epoch):
                ledger.claim(number, item, deadline_ms, may_land, plain=plain)


def _has_claims(state: State, subscription: int) -> bool:
    """Whether the log shows claims of its messages: looked for in its own partitions, for others may be very many."""
    record = state.subscriptions.get(subscription)
    if record is None:
        return False
    cursors = [state.cursors[subscription, item] for item in range(state.topics[record.topic].partitions)]
    return any(cursor.holds or cursor.cumulative is not None for cursor in cursors)


def _have_overdue(connection: SessionOwner, subscriptions: Sequence[int]) -> bool:
    now_ms = connection.runtime.now_ms()

    def look(state: State) -> bool:
        held = any(_has_claims(state, number) for number in subscriptions)
        return held and bool(overdue(state.draft(), now_ms, connection.session.unlogged_aborts))

    return connection.follower.look(look)


__all__ = ["check_conflicts", "claim_in", "end_claims", "end_overdue", "ending_overdue", "ledgers_of"]
