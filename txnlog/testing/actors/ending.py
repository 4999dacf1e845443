"""What several kinds of actors do with transactions: fill them, and end them in one of many ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from txnlog.errors import (
    AbortableError,
    InvalidTransactionState,
    OutcomeUnknown,
    StoreError,
)
from txnlog.testing.client import Client, reported_commit, reported_outcome
from txnlog.testing.keyed import keyed_table_of
from txnlog.testing.world import (
    SCHEMA,
)

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.api.transaction import Transaction
    from txnlog.results import Committed

TIMEOUTS_MS: Final = (400, 5_000, 60_000)


def table_of(values: Sequence[int]) -> pa.Table:
    """Rows of these values."""
    return pa.Table.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


def messages_of(client: Client, topic: str, values: Sequence[int]) -> pa.Table:
    """Rows of these values for a topic, which has a key or not."""
    return keyed_table_of(values) if topic in client.world.keyed else table_of(values)


def produce_in(client: Client, txn: Transaction, topic: str, partition: int, count: int, **identity: Any) -> None:
    """Rows of a transaction."""
    values = client.world.values(count)
    client.produce(
        lambda: txn.produce(topic, messages_of(client, topic, values), partition),
        txn=str(txn.id),
        topic=topic,
        partition=partition,
        values=values,
        **identity,
    )


def end(client: Client, ns: Namespace, txn: Transaction) -> None:
    """Commit (mostly), abort, or forget a transaction; an unknown outcome is asked for in one of several ways."""
    drawn = client.chance.random()
    if drawn < 0.1:
        client.scheduler.label("a transaction was left open")
        return
    if drawn < 0.2:
        client.call("abort", txn.abort, txn=str(txn.id))
        return
    for _ in range(3):
        try:
            commit(client, txn)
        except AbortableError:
            if client.hits(0.3):
                client.scheduler.label("commit again after an abortable error")
                commit(client, txn)
            raise
        except (OutcomeUnknown, StoreError):
            drawn = client.chance.random()
            if drawn < 0.3:
                ask(client, ns, str(txn.id))
                return
            if drawn < 0.5:
                client.call("outcome", lambda: ns.transaction(txn.id), reported_outcome, txn=str(txn.id))
            client.scheduler.label("commit again after an unknown outcome")
        else:
            if client.hits(0.9):
                return
            client.scheduler.label("commit again after success")


def commit(client: Client, txn: Transaction) -> None:
    """Ask for the commit."""
    result = client.call("commit", txn.commit, lambda result: reported_commit(client, result), txn=str(txn.id))
    if result.skipped:
        client.scheduler.label("a batch was skipped")


def end_somehow(client: Client, ns: Namespace, txn: Transaction) -> None:
    """End a transaction by its own hand, or let an outside system decide about it."""
    if client.hits(0.2):
        prepare(client, ns, txn)
    else:
        end(client, ns, txn)


def prepare(client: Client, ns: Namespace, txn: Transaction) -> None:
    """Prepare, have it decided outside, and perhaps carry the decision out; else somebody else has to."""
    for _ in range(3):
        try:
            client.call("prepare", txn.prepare, txn=str(txn.id))
        except (OutcomeUnknown, StoreError):
            if client.hits(0.2):
                client.call("abort", txn.abort, txn=str(txn.id))
                return
        else:
            break
    else:
        return
    if client.hits(0.2):
        client.scheduler.label("prepared, and nobody heard of it")
        return
    client.world.decisions.setdefault(str(txn.id), client.hits(0.7))
    if client.hits(0.6):
        complete(client, ns, str(txn.id))


def complete(client: Client, ns: Namespace, token: str) -> None:
    """Carry out what was decided about a prepared transaction; perhaps again, perhaps the other way, too."""
    decision = client.world.decisions.setdefault(token, False)
    client.scheduler.label(f"completed: {decision}")
    report_decision(client, ns, token, commit=decision)
    if client.hits(0.2):
        report_decision(client, ns, token, commit=decision)
    if client.hits(0.2):
        try:
            report_decision(client, ns, token, commit=not decision)
        except InvalidTransactionState:
            client.scheduler.label("the opposite decision was refused")


def report_decision(client: Client, ns: Namespace, token: str, *, commit: bool) -> None:
    """Call complete()."""

    def result(done: Committed | None) -> dict[str, Any]:
        if done is None:
            return {}
        # Another client may have produced the rows: which incarnation of a topic took them, the log says.
        offsets = {
            (ns._connection.topic_record(topic, done.version).folder, partition): found
            for (topic, partition), found in (done.offsets or {}).items()
        }
        if done.dropped:
            client.scheduler.label("completed without what was dropped")
        return {"version": done.version, "offsets": offsets, "dropped": done.dropped}

    client.call("complete", lambda: ns.complete(token, commit=commit), result, txn=token, commit=commit)


def ask(client: Client, ns: Namespace, txn: str, *, force: bool = False) -> None:
    """Make an outcome definite; ``force``: also that of a prepared transaction."""
    if force:
        client.world.forced.add(txn)
    info = client.call(
        "outcome",
        lambda: ns.abort(txn, by="simulation", why="asked", force=force),
        reported_outcome,
        txn=txn,
        forced=force,
    )
    client.scheduler.label(f"{'forced' if force else 'asked for'} an outcome: {info.state}")


__all__ = ["TIMEOUTS_MS", "ask", "complete", "end", "end_somehow", "messages_of", "produce_in", "table_of"]
