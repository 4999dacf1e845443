"""Acknowledging outside of any transaction: one entry takes messages off their subscriptions.

It has no turn among the calls of its consumer. Its messages are claimed from the moment of the call on, and the order
of the entries decides the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from txnlog.client.acknowledgement_conflicts import check_conflicts, claim_in, ledgers_of
from txnlog.client.ledger import Receipt
from txnlog.errors import TransactionConflict, TxnLogError
from txnlog.format.actions import Acknowledgement
from txnlog.log.transaction_commands import AcknowledgeCommand
from txnlog.replies import Replying, reworded
from txnlog.sentences import Call, Words

if TYPE_CHECKING:
    from txnlog.client.connection import Connection


def acknowledge_plain(
    connection: Connection, wanted: Sequence[Acknowledgement], receipt: Receipt | None = None
) -> None:
    """Take messages off subscriptions outside of any transaction; durable on return. A repetition is fine.

    Args:
        connection: the namespace.
        wanted: what to log.
        receipt: how they were received, where a consumer received them.

    Raises:
        TransactionConflict: a message is pending in an open transaction, or has still to be delivered.
        ConsumerFenced: a subscription has another epoch by now.
        SubscriptionNotFound: it was dropped.
        TransactionAborted: somebody aborted the acknowledgement itself while it was under way.
    """
    number = connection.appender.take_numbers(1)[0]

    command = AcknowledgeCommand(number, tuple(wanted))
    ledgers = ledgers_of(connection, wanted, receipt)

    def claim(rest: Sequence[Acknowledgement]) -> None:
        claim_in(ledgers, number, rest, None, connection.may_land, plain=True)  # for as long as it takes: see below

    appender = connection.appender

    async def acknowledge() -> None:
        try:
            # Claimed while its entry is under way: nobody receives it meanwhile, and no transaction takes it.
            await check_conflicts(connection, number, wanted, receipt, claim, rest_of=command.left)
            await appender.carry_out(command)
        finally:
            for ledger in ledgers:  # acknowledged by now, or as before: a refusal changes nothing of what was delivered
                ledger.restore(number, None)

    with connection.naming_dropped(), Replying(_without_transaction):
        appender.run(acknowledge, (number,))


def _without_transaction(error: TxnLogError) -> TxnLogError:
    """Advise something else than to abort and begin anew: the caller has no transaction."""
    if isinstance(error, TransactionConflict) and error.advice == TransactionConflict._default_advice:
        ends = Words("try again when that transaction has ended; ", Call("abort", "txn_id"), " ends it")
        return reworded(error, advice=ends)
    return error


__all__ = ["acknowledge_plain"]
