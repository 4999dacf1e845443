"""Orders are paid in PostgreSQL and marked as paid in a topic: one decision for both, kept in a row of the database.

    python -m examples.postgres.payments /tmp/lake "dbname=shop"

For work whose results lie in both systems. Where all of them lie in the database, ``totals.py`` is simpler.
docs/postgres.md says why these steps are in this order.
"""

from __future__ import annotations

import argparse
from typing import Any

import psycopg
import pyarrow as pa

import txnlog

ORDERS = pa.schema([("customer", pa.string()), ("cents", pa.int64())])
TABLES = """
CREATE TABLE IF NOT EXISTS payments (customer text NOT NULL, cents bigint NOT NULL);
CREATE TABLE IF NOT EXISTS decided (log text, token text, done boolean NOT NULL, PRIMARY KEY (log, token));
"""

REFUSE = "INSERT INTO decided VALUES (%s, %s, false) ON CONFLICT DO NOTHING"
FOUND = "SELECT done FROM decided WHERE (log, token) = (%s, %s)"
DECIDE = "INSERT INTO decided VALUES (%s, %s, true)"
PAY = "INSERT INTO payments SELECT * FROM unnest(%s::text[], %s::bigint[])"


def pay(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """Pay all orders that are there. ``log`` is your name of this root and namespace: another one, another name."""
    assert pg.autocommit, "else pg.transaction() is a savepoint, and its end commits nothing"
    payer = ns.producer("payer")  # from here on no older run can prepare
    settle(ns, pg, log)
    consumer = ns.consumer("orders", subscription="payer")
    rows = 0
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        orders = messages.table.select(["customer", "cents"])
        with payer.begin() as txn:
            txn.produce("paid", orders)
            txn.acknowledge(messages)
            token = txn.prepare()  # 1. durable, and visible to nobody
        with pg.transaction():  # 2. decided here: payments and token, both or neither
            pg.execute(DECIDE, (log, token))
            pg.execute(PAY, (orders["customer"].to_pylist(), orders["cents"].to_pylist()))
        ns.complete(token, commit=True)  # 3. can be repeated, by any process
        rows += len(messages)
    return rows


def settle(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> None:
    """Complete what older runs prepared. Undecided: abort, and the primary key then refuses the owner's decision."""
    for prepared in ns.transactions(state="PREPARED"):
        if prepared.producer == "payer":  # others are decided elsewhere
            token = str(prepared.txn_id)
            pg.execute(REFUSE, (log, token))  # waits for an owner that is just committing
            found = pg.execute(FOUND, (log, token)).fetchone()
            assert found is not None, "it was there, or is since the line before"
            ns.complete(token, commit=found[0])


def main() -> None:
    arguments = argparse.ArgumentParser(description="Pay orders in PostgreSQL, each once.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("database", help='a libpq connection string, like "host=localhost dbname=shop"')
    given = arguments.parse_args()
    with txnlog.open(given.lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", ORDERS, partitions=4, key="customer", if_not_exists=True)
        ns.create_topic("paid", ORDERS, if_not_exists=True)
        with psycopg.connect(given.database, autocommit=True) as pg:
            pg.execute(TABLES)
            print(f"{pay(ns, pg, log='shop-1')} orders paid")


if __name__ == "__main__":
    main()
