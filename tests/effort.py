"""How much is tried: a share in ``make test``, which each push runs, all of it in ``make test-all``.

Where a test could try for ever it asks ``tries`` or ``every``: each run takes other random choices or other places of
the same kind, and what is asked of every one of them stays the same. Two marks leave out whole tests:

``long``: more of what another test shows already. Only ``make test-all`` runs it.
``some(n)``: of the cases of this test (or, on a class or module, of each test in it) a push runs n, others each time.

Whoever asks for tests by name (``file::test``, ``-k``) gets all of them.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import pytest

LONG: Final = os.environ.get("TXNLOG_TESTS", "") == "long"

SHARE: Final = os.environ.setdefault("TXNLOG_SHARE", str(random.randrange(10**9)))
"""Decides which cases this run takes. All processes of a run must take the same: they inherit it."""


def tries(all_of_them: int, some: int) -> int:
    """How many, in this run."""
    return all_of_them if LONG else some


def every(step: int) -> tuple[int, int]:
    """Where to begin and how far to go on, to take one place of so many: another one in each run, in a long run all."""
    return (0, 1) if LONG else (random.randrange(step), step)


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
        chance = random.Random(f"{SHARE} {name}")
        left_out.update(chance.sample(several, max(0, len(several) - mark.args[0])))
    return left_out


__all__ = ["LONG", "SHARE", "every", "left_to_test_all", "tries"]
