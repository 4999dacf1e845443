"""How much is tried: a share in ``make test``, which each push runs, all of it in ``make test-all``.

Which share is decided by the day. All pushes of a day run the same, so what failed in one fails again in the next, and
as many days later as the shares need every case was run. The first lines of a run name the day; ``TXNLOG_DAY`` sets it.

Where a test could try for ever it asks ``tries`` or ``every``: how many, or which places of the same kind; what is
asked of every one of them stays the same. Two marks leave out whole tests:

``long``: more of what another test shows already. Only ``make test-all`` runs it.
``some(n)``: of the cases of this test (or, on a class or module, of each test in it) a push runs n, the next n on the
next day.

Whoever asks for tests by name (``file::test``, ``-k``) gets all of them.
"""

from __future__ import annotations

import datetime
import os
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import pytest

LONG: Final = os.environ.get("TXNLOG_TESTS", "") == "long"

DAY: Final = os.environ.setdefault("TXNLOG_DAY", datetime.datetime.now(datetime.UTC).date().isoformat())
"""Decides which cases this run takes. All processes of a run must take the same, also at midnight: they inherit it."""


def tries(all_of_them: int, some: int) -> int:
    """How many, in this run."""
    return all_of_them if LONG else some


def every(step: int) -> tuple[int, int]:
    """Where to begin and how far to go on, to take one place of so many: the next one each day, in a long run all."""
    return (0, 1) if LONG else (_number_of_day() % step, step)


def left_to_test_all(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that a push does not run, of those that were collected."""
    left_out: set[pytest.Item] = set()
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("long"):
            left_out.add(item)
        elif item.get_closest_marker("some"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for name, several in cases.items():
        mark = several[0].get_closest_marker("some")
        assert mark is not None, "they were found by it"
        left_out.update(several)
        left_out.difference_update(_of_this_day(name, several, mark.args[0]))
    return left_out


def _of_this_day(name: str, cases: list[pytest.Item], count: int) -> list[pytest.Item]:
    """So many of them, which follow those of the day before; neighbours are too much alike to be taken together."""
    order = random.Random(name).sample(cases, len(cases))
    first = _number_of_day() * count
    return [order[(first + place) % len(order)] for place in range(min(count, len(order)))]


def _number_of_day() -> int:
    return datetime.date.fromisoformat(DAY).toordinal()


__all__ = ["DAY", "LONG", "every", "left_to_test_all", "tries"]
