"""A shop in a lake and in PostgreSQL, and processes that work in it until they die, hang or end."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

import txnlog
from examples.postgres import payments, totals
from tests import lines
from tests.effort import every
from tests.lines import FORK, before_line, start
from tools.postgres import Server
from txnlog.errors import TxnLogError

DONE, REFUSED = 0, 3
KILLED = -signal.SIGKILL
PATIENCE_S = 15

ORDERS = [
    {"customer": "ann", "cents": 100},
    {"customer": "bob", "cents": 20},
    {"customer": "ann", "cents": 3_000},
    {"customer": "cyd", "cents": 4},
    {"customer": "bob", "cents": 50_000},
]
SUMS = {"ann": 3_100, "bob": 50_020, "cyd": 4}

Work = Callable[[txnlog.Namespace, "psycopg.Connection[Any]", str], int]
ended = functools.partial(lines.ended, patience_s=PATIENCE_S)
_numbers = itertools.count(1)


class Shop:
    """Orders in a topic, and tables in a schema of the database that nobody else has.

    Args:
        work: what a process does in it; it is killed before lines of the file that this function is in.
        batch: the most messages that its consumer is handed at once, so that there are several batches.
    """

    def __init__(self, folder: Path, server: Server, work: Work, batch: int = 2) -> None:
        self.lake = str(folder / "lake")
        schema = f"shop_{os.getpid()}_{next(_numbers)}"
        self.url = server.url(schema)
        self.work, self._file, self._batch = work, inspect.getfile(work), batch
        with psycopg.connect(server.url(), autocommit=True) as pg:
            pg.execute(f"CREATE SCHEMA {schema}")
        with psycopg.connect(self.url, autocommit=True) as pg:
            pg.execute(totals.TABLES)
            pg.execute(payments.TABLES)
        with txnlog.open(self.lake, namespace="shop", create=True) as ns:
            ns.create_topic("orders", totals.ORDERS, partitions=2, key="customer")
            ns.create_topic("paid", payments.ORDERS)
            ns.produce("orders", ORDERS)

    def run(self, line: int = 0, at_line: Callable[[], None] = lambda: None) -> int:
        """Do the work; before that many-th line that is run, do something else. How it ended."""
        # One at a time, so that a run has several batches whatever the page says.
        receive = txnlog.Consumer.receive
        txnlog.Consumer.receive = lambda consumer, **given: receive(  # type: ignore[method-assign]
            consumer, **{**given, "max_messages": self._batch}
        )
        try:
            with (
                txnlog.open(self.lake, namespace="shop") as ns,
                psycopg.connect(self.url, autocommit=True) as pg,
                before_line(self._file, line, at_line),
            ):
                self.work(ns, pg, "shop-1")
        except (TxnLogError, psycopg.Error, totals.Overtaken):  # fenced, or refused by the tables
            return REFUSED
        finally:
            txnlog.Consumer.receive = receive  # type: ignore[method-assign]
        return DONE

    def killed_at(self, line: int) -> int:
        """The work, until SIGKILL before that many-th line."""
        return self.run(line, lambda: os.kill(os.getpid(), signal.SIGKILL))

    # --- what became of it ------------------------------------------------------------------------------------------

    def counted(self) -> Mapping[str, int]:
        """The totals in the database."""
        with psycopg.connect(self.url) as pg:
            return dict(pg.execute("SELECT customer, cents FROM totals").fetchall())

    def paid(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Sums of what was paid, in the topic and in the database."""
        with txnlog.open(self.lake, namespace="shop", mode="r") as ns:
            assert ns.transactions(state="PREPARED") == ()
            here = _sums(ns.snapshot().read("paid"))
        with psycopg.connect(self.url) as pg:
            there = pg.execute("SELECT customer, sum(cents)::bigint FROM payments GROUP BY customer").fetchall()
        return here, dict(there)


def _sums(table: pa.Table) -> Mapping[str, int]:
    sums: Counter[str] = Counter()
    for row in table.to_pylist():
        sums[row["customer"]] += row["cents"]
    return dict(sums)


def shops(tmp_path: Path, server: Server, work: Work, step: int = 1) -> Iterator[tuple[int, Shop]]:
    """Numbers of lines, and for each a shop to try it in; ``step`` takes one line of so many."""
    first, step = every(step)
    for line in itertools.count(1 + first, step):
        (folder := tmp_path / f"{getattr(work, '__name__', 'work')}-{line}").mkdir()
        yield line, Shop(folder, server, work)


# --- one that hangs while another one takes over ------------------------------------------------------------------


def older(shop: Shop, line: int, go: Any, done: Any) -> int:
    """The work; before that line it hangs until another one is done."""

    def stall() -> None:
        go.set()
        assert done.wait(PATIENCE_S)

    return shop.run(line, stall)


def newer(shop: Shop, go: Any, done: Any) -> int:
    """The work, once another one hangs."""
    assert go.wait(PATIENCE_S)
    try:
        return shop.run()
    finally:
        done.set()


def taken_over(shop: Shop, line: int) -> tuple[int, int, bool]:
    """How the older and the newer one ended, and whether there was such a line."""
    go, done = FORK.Event(), FORK.Event()
    other = start(newer, shop, go, done)
    end = ended(start(older, shop, line, go, done))
    reached = bool(go.is_set())
    go.set()
    return end, ended(other), reached
