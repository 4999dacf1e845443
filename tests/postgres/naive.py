"""The orders of steps that people write first. Each of them is wrong, and the tests of the right ones must see it."""

from __future__ import annotations

from typing import Any

import psycopg

import txnlog
from examples.postgres.payments import DECIDE, FOUND, PAY
from examples.postgres.totals import ADD


def values(messages: txnlog.Messages) -> tuple[list[str], list[int]]:
    """What the statements take."""
    return messages.table["customer"].to_pylist(), messages.table["cents"].to_pylist()


def count_first(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """The database, then the acknowledgement: a death between them counts twice."""
    consumer = ns.consumer("orders", subscription="totals")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with pg.transaction():
            pg.execute(ADD, values(messages))
        consumer.acknowledge(messages)
    return 0


def acknowledge_first(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """The acknowledgement, then the database: a death between them counts never."""
    consumer = ns.consumer("orders", subscription="totals")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        consumer.acknowledge(messages)
        with pg.transaction():
            pg.execute(ADD, values(messages))
    return 0


def offsets_unguarded(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """Offsets beside the totals, but written whatever was there: one that hangs counts what another one did."""
    topic = ns.topic("orders").id
    consumer = ns.consumer("orders", subscription="totals")
    found = pg.execute("SELECT part, next_offset FROM progress WHERE (log, topic) = (%s, %s)", (log, topic)).fetchall()
    consumer.seek({**ns.snapshot().start_offsets("orders"), **dict(found)})
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with pg.transaction():
            for part, end in sorted(messages.end_offsets.items()):
                pg.execute(
                    "INSERT INTO progress VALUES (%s, %s, %s, %s) "
                    "ON CONFLICT (log, topic, part) DO UPDATE SET next_offset = excluded.next_offset",
                    (log, topic, part, end),
                )
            pg.execute(ADD, values(messages))
        consumer.acknowledge(messages)
    return 0


def pay_first(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """The database, then one commit of the log: a death between them pays twice."""
    consumer = ns.consumer("orders", subscription="payer")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with pg.transaction():
            pg.execute(PAY, values(messages))
        with ns.begin() as txn:
            txn.produce("paid", messages.table.select(["customer", "cents"]))
            txn.acknowledge(messages)
    return 0


def commit_first(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """One commit of the log, then the database: a death between them says paid, and nothing was."""
    consumer = ns.consumer("orders", subscription="payer")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with ns.begin() as txn:
            txn.produce("paid", messages.table.select(["customer", "cents"]))
            txn.acknowledge(messages)
        with pg.transaction():
            pg.execute(PAY, values(messages))
    return 0


def pay_unasked(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """Prepared, but what is found PREPARED at the start is aborted, whatever the database says."""
    payer = ns.producer("payer")
    for prepared in ns.transactions(state="PREPARED"):
        ns.complete(str(prepared.txn_id), commit=False)
    consumer = ns.consumer("orders", subscription="payer")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with payer.begin() as txn:
            txn.produce("paid", messages.table.select(["customer", "cents"]))
            txn.acknowledge(messages)
            token = txn.prepare()
        with pg.transaction():
            pg.execute(PAY, values(messages))
        ns.complete(token, commit=True)
    return 0


def pay_by_looking(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """As it should be, but what is undecided is aborted without a word to the table: its owner may pay afterwards."""
    payer = ns.producer("payer")
    for prepared in ns.transactions(state="PREPARED"):
        token = str(prepared.txn_id)
        ns.complete(token, commit=pg.execute(FOUND, (log, token)).fetchone() is not None)
    consumer = ns.consumer("orders", subscription="payer")
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        with payer.begin() as txn:
            txn.produce("paid", messages.table.select(["customer", "cents"]))
            txn.acknowledge(messages)
            token = txn.prepare()
        with pg.transaction():
            pg.execute(DECIDE, (log, token))
            pg.execute(PAY, values(messages))
        ns.complete(token, commit=True)
    return 0
