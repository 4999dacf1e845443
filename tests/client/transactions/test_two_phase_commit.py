"""Two-phase commit with SQLite, as docs/python.md writes it: exact wherever it dies, or another one takes over."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import txnlog
from tests.effort import every
from tests.lines import FORK, before_line, ended, start
from tests.pages import blocks, page, section
from txnlog.errors import TxnLogError

PAGE = page("docs/python.md")
KILLED, REFUSED, REFUSED_BY_THE_TABLE = 9, 3, 4
ORDERS = [{"customer": name, "amount": 1.0} for name in ("ann", "bob", "cyd")]
ONCE = ["ann", "bob", "cyd"]


class Shop:
    """A lake with three orders to pay, and the page's example that pays them, two at a time."""

    def __init__(self, folder: Path, lake: str = "lake") -> None:
        self.lake, self.bank = str(folder / lake), str(folder / "bank.db")
        found = blocks(PAGE[: PAGE.index("\n## Reading\n")])
        found += blocks(section(PAGE, "Two-phase commit"))[:1]
        code = "\n".join(found).replace('"/tmp/lake-bank.db"', f"{self.bank!r}, timeout=0.05")
        code = code.replace("\nbank.execute(", "\nbank.execute('PRAGMA synchronous = OFF')\nbank.execute(", 1)
        code = code.replace('log = "shop-1"', f"log = {lake!r}")
        self.code = compile(code.replace("/tmp/lake", self.lake), "the page", "exec")
        given: dict[str, Any] = {}
        exec(compile(found[0].replace("/tmp/lake", self.lake), "the setup", "exec"), given)
        given["ns"].produce("orders", ORDERS)
        given["ns"].close()

    def pay(self, line: int = 0, at_line: Callable[[], None] = lambda: None) -> int:
        """Run the example; before that many-th line that is run, do something else. How it ended."""
        try:
            with before_line("the page", line, at_line):
                exec(self.code, {})
        except sqlite3.IntegrityError:
            return REFUSED_BY_THE_TABLE
        except (TxnLogError, sqlite3.OperationalError):  # fenced, or the other one has the table locked
            return REFUSED
        return 0

    def paid(self) -> tuple[list[str], list[str]]:
        """Who paid, here and there."""
        with txnlog.open(self.lake, namespace="shop", mode="r") as ns, closing(sqlite3.connect(self.bank)) as bank:
            assert ns.transactions(state="PREPARED") == ()
            here = ns.snapshot().read("paid").column("customer").to_pylist()
            return sorted(here), sorted(name for (name,) in bank.execute("SELECT customer FROM payments"))


def shops(tmp_path: Path, step: int = 1) -> Iterator[tuple[int, Shop]]:
    """Numbers of lines, and for each a shop to try it in; ``step`` takes one line of so many."""
    first, step = every(step)
    for line in itertools.count(1 + first, step):
        (folder := tmp_path / str(line)).mkdir()
        yield line, Shop(folder)


def killed(shop: Shop, line: int) -> int:
    return shop.pay(line, lambda: os._exit(KILLED))


def test_killed_before_any_line_it_pays_once(tmp_path: Path) -> None:
    for line, shop in shops(tmp_path, step=5):
        ends = {ended(start(killed, shop, line)), ended(start(killed, shop, line))}
        assert ended(start(shop.pay)) == 0
        assert shop.paid() == (ONCE, ONCE), f"killed before line {line} of those that were run"
        if ends == {0}:
            break
        assert ends <= {0, KILLED}
    assert line > 40, "two rounds, each of ten lines or more"


def test_two_lakes_whose_tokens_are_equal_have_a_table_in_common(tmp_path: Path) -> None:
    one, two = Shop(tmp_path, "one"), Shop(tmp_path, "two")
    assert (one.pay(), two.pay()) == (0, 0)
    assert one.paid() == two.paid() == (ONCE, sorted(2 * ONCE))
    with closing(sqlite3.connect(one.bank)) as bank:
        tokens = [token for (token,) in bank.execute("SELECT token FROM decided")]
    assert len(set(tokens)) == len(tokens) / 2, "or this test shows nothing"


def older(shop: Shop, line: int, go: Any, done: Any) -> int:
    def stall() -> None:
        go.set()
        assert done.wait(60)

    return shop.pay(line, stall)


def newer(shop: Shop, go: Any, done: Any) -> int:
    assert go.wait(60)
    end = shop.pay()
    done.set()
    return end


def test_taken_over_before_any_line_by_one_that_recovers_while_it_lives_it_pays_once(tmp_path: Path) -> None:
    ends = set()
    for line, shop in shops(tmp_path, step=3):
        go, done = FORK.Event(), FORK.Event()
        other = start(newer, shop, go, done)
        ends.add(end := ended(start(older, shop, line, go, done)))
        reached = go.is_set()
        go.set()
        assert ended(other) in {0, REFUSED}
        assert ended(start(shop.pay)) == 0
        assert shop.paid() == (ONCE, ONCE), f"taken over before line {line} of those that were run"
        if not reached:
            assert end == 0
            break
    assert line > 40, "two rounds, each of ten lines or more"
    assert ends == {0, REFUSED, REFUSED_BY_THE_TABLE}, "the table refuses whom recovery overtook behind prepare"
