"""A total per customer in PostgreSQL, each order counted once: the database keeps the offsets beside the totals.

    python -m examples.postgres.totals /tmp/lake "dbname=shop"

Both are written in one transaction of the database, and a new run seeks to what it finds there. So a run may die
anywhere, and may meet one that only hangs: docs/postgres.md says why.
"""

from __future__ import annotations

import argparse
from typing import Any

import psycopg
import pyarrow as pa

import txnlog

ORDERS = pa.schema([("customer", pa.string()), ("cents", pa.int64())])
TABLES = """
CREATE TABLE IF NOT EXISTS totals (customer text PRIMARY KEY, cents bigint NOT NULL);
CREATE TABLE IF NOT EXISTS progress (
    log text, topic bigint, part int, next_offset bigint NOT NULL, PRIMARY KEY (log, topic, part));
"""

NEW = "INSERT INTO progress VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
KNOWN = "SELECT part, next_offset FROM progress WHERE (log, topic) = (%s, %s)"
MOVE = "UPDATE progress SET next_offset = %s WHERE (log, topic, part, next_offset) = (%s, %s, %s, %s)"
ADD = """
INSERT INTO totals SELECT customer, sum(cents) FROM unnest(%s::text[], %s::bigint[]) AS new (customer, cents)
GROUP BY customer ORDER BY customer
ON CONFLICT (customer) DO UPDATE SET cents = totals.cents + excluded.cents
"""


class Overtaken(Exception):
    """Another run counted these messages: stop, or begin again."""


def count(ns: txnlog.Namespace, pg: psycopg.Connection[Any], log: str) -> int:
    """Count all orders that are there. ``log`` is your name of this root and namespace: another one, another name."""
    assert pg.autocommit, "else pg.transaction() is a savepoint, and its end commits nothing"
    topic = ns.topic("orders").id  # a topic that is created again under the name has another id
    consumer = ns.consumer("orders", subscription="totals")  # from here on an older run receives nothing

    with pg.transaction():
        for part, offset in ns.snapshot().start_offsets("orders").items():
            pg.execute(NEW, (log, topic, part, offset))
    known = dict(pg.execute(KNOWN, (log, topic)).fetchall())
    consumer.seek(known)  # the database decides, not the subscription's cursor

    rows = 0
    while len(messages := consumer.receive(max_messages=1000, timeout_ms=0)):
        ends = messages.end_offsets
        with pg.transaction():  # totals and offsets: both, or neither
            for part, end in sorted(ends.items()):
                if pg.execute(MOVE, (end, log, topic, part, known[part])).rowcount != 1:
                    raise Overtaken(f"partition {part} is no longer at {known[part]}")
            pg.execute(ADD, (messages.table["customer"].to_pylist(), messages.table["cents"].to_pylist()))
        known |= ends
        consumer.acknowledge(messages)  # for ns.lag only: the database knows which messages were counted
        rows += len(messages)
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description="Count orders into PostgreSQL, each once.")
    arguments.add_argument("lake", help="a folder or URL; made if it is not there")
    arguments.add_argument("database", help='a libpq connection string, like "host=localhost dbname=shop"')
    given = arguments.parse_args()
    with txnlog.open(given.lake, namespace="shop", create=True) as ns:
        ns.create_topic("orders", ORDERS, partitions=4, key="customer", if_not_exists=True)
        with psycopg.connect(given.database, autocommit=True) as pg:
            pg.execute(TABLES)
            print(f"{count(ns, pg, log='shop-1')} orders counted")
            for customer, cents in pg.execute("SELECT customer, cents FROM totals ORDER BY customer"):
                print(f"{customer}\t{cents / 100:.2f}")


if __name__ == "__main__":
    main()
