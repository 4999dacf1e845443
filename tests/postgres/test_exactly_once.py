"""The two ways into PostgreSQL, as examples/postgres has them: exact wherever they die, or another one takes over.

Each is killed by SIGKILL before every line that it runs, twice in a row; it hangs before every line while another one
does all the work; and it dies while the server is committing. The orders of steps that people write first go through
the same, and are wrong.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.postgres import payments, totals
from tests.effort import LONG
from tests.lines import start
from tests.postgres import naive
from tests.postgres.lives import (
    DONE,
    KILLED,
    PATIENCE_S,
    REFUSED,
    SUMS,
    Shop,
    Work,
    ended,
    shops,
    taken_over,
)
from tools.postgres import Server


def counted(shop: Shop) -> bool:
    """Whether every order was counted once."""
    return shop.counted() == SUMS


def paid(shop: Shop) -> bool:
    """Whether every order was paid once, in both systems."""
    return shop.paid() == (SUMS, SUMS)


RIGHT = [(totals.count, counted), (payments.pay, paid)]
BY_NAME = pytest.mark.parametrize(("work", "exact"), RIGHT, ids=["totals", "payments"])


@BY_NAME
def test_killed_before_any_line_it_is_exact(tmp_path: Path, server: Server, work: Work, exact: Any) -> None:
    for line, shop in shops(tmp_path, server, work, step=9):
        ends = {ended(start(shop.killed_at, line)), ended(start(shop.killed_at, line))}
        assert ended(start(shop.run)) == DONE
        assert exact(shop), f"killed before line {line} of those that were run: {shop.counted()}, {shop.paid()}"
        if ends == {DONE}:
            break
        assert ends <= {DONE, KILLED}
    assert line > 30, "several batches, each of ten lines or so"


@BY_NAME
def test_overtaken_before_any_line_while_it_lives_it_is_exact(
    tmp_path: Path, server: Server, work: Work, exact: Any
) -> None:
    ends = set()
    for line, shop in shops(tmp_path, server, work, step=9):
        end, other, reached = taken_over(shop, line)
        ends.add(end)
        assert other in {DONE, REFUSED}
        assert ended(start(shop.run)) == DONE
        assert exact(shop), f"taken over before line {line} of those that were run: {shop.counted()}, {shop.paid()}"
        if not reached:
            assert end == DONE
            break
    assert line > 30, "several batches, each of ten lines or so"
    assert ends == {DONE, REFUSED}


# --- what the server commits after its client is dead -----------------------------------------------------------------

SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON progress DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow();
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON decided DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (new.done) EXECUTE FUNCTION slow();
"""
COMMITTING = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"


@BY_NAME
def test_killed_while_the_server_commits_it_is_exact(tmp_path: Path, server: Server, work: Work, exact: Any) -> None:
    shop = Shop(tmp_path, server, work, batch=5)
    with psycopg.connect(shop.url, autocommit=True) as pg:
        pg.execute(SLOW)
        first = start(shop.run)
        _wait_until(lambda: pg.execute(COMMITTING).fetchone() == (1,))
        os.kill(first.pid, signal.SIGKILL)
        assert ended(first) == KILLED
        assert pg.execute(COMMITTING).fetchone() == (1,), "or this test shows nothing"
        ended(start(shop.run))  # at once: what it finds is about to change
    assert ended(start(shop.run)) == DONE
    assert exact(shop), (shop.counted(), shop.paid())


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the database from a backup ---------------------------------------------------------------------------------------


def test_totals_restored_from_a_backup_are_counted_up_to_now(tmp_path: Path, server: Server) -> None:
    shop = Shop(tmp_path, server, totals.count)
    assert ended(start(shop.run)) == DONE
    with psycopg.connect(shop.url, autocommit=True) as pg:
        pg.execute("TRUNCATE totals, progress")
    assert shop.counted() == {}
    assert ended(start(shop.run)) == DONE
    assert counted(shop), "although the subscription's cursor is at the end"


# --- the control: what people write first -----------------------------------------------------------------------------


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("work", "sums", "wrong"),
    [
        (naive.count_first, Shop.counted, "doubled"),
        (naive.acknowledge_first, Shop.counted, "lost"),
        (naive.pay_first, lambda shop: shop.paid()[1], "doubled"),
        (naive.commit_first, lambda shop: shop.paid()[1], "lost"),
        (naive.pay_unasked, lambda shop: shop.paid()[1], "doubled"),
    ],
    ids=lambda item: getattr(item, "__name__", None),
)
def test_killed_somewhere_the_obvious_order_is_wrong(
    tmp_path: Path, server: Server, work: Work, sums: Callable[[Shop], Any], wrong: str
) -> None:
    seen = set()
    for line, shop in shops(tmp_path, server, work):
        end = ended(start(shop.killed_at, line))
        assert ended(start(shop.run)) == DONE
        difference = sum(sums(shop).values()) - sum(SUMS.values())
        seen.add("doubled" if difference > 0 else "lost" if difference < 0 else "exact")
        if end == DONE or (not LONG and seen == {"exact", wrong}):
            break
    assert seen == {"exact", wrong}
    (folder := tmp_path / "unharmed").mkdir()
    unharmed = Shop(folder, server, work)
    assert ended(start(unharmed.run)) == DONE
    assert sums(unharmed) == SUMS, "with nobody killed"


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("work", "sums"),
    [(naive.offsets_unguarded, Shop.counted), (naive.pay_by_looking, lambda shop: shop.paid()[1])],
    ids=lambda item: getattr(item, "__name__", None),
)
def test_overtaken_somewhere_one_that_compares_nothing_counts_twice(
    tmp_path: Path, server: Server, work: Work, sums: Callable[[Shop], Any]
) -> None:
    seen = set()
    for line, shop in shops(tmp_path, server, work):
        _, _, reached = taken_over(shop, line)
        assert reached, "the last line is behind it, and no harm was done"
        ended(start(shop.run))
        seen.add(sum(sums(shop).values()) > sum(SUMS.values()))
        if seen == {False, True}:
            break
