"""How much is tried: a share in ``make test``, which each push runs, all of it in ``make test-all``.

Which share is decided by the day. All pushes of a day run the same, so what failed in one fails again in the next, and
as many days later as the shares need every case was run. The first lines of a run name the day; ``TXNLOG_DAY`` sets it.

Of most folders a push runs one test in nine (``SHARES``), of what starts Spark one in twelve, and besides as many as it
takes for each promise of docs/guarantees.md to have one of its tests run. Where a test could try for ever it asks
``tries``, ``every`` or ``chosen``: how many, or which of the same kind; what is asked of every one of them stays the
same. Two marks leave out more:

``long``: more of what another test shows already. Only ``make test-all`` runs it.
``some(n)``: of the cases of this test (or, on a class or module, of each test in it) a push runs n, the next n on the
next day. ``some(n, of="place")``, on the values of a parameter, says the same of them: whatever the other parameters
are, n of its values. ``some(one_in=n)``, on a module, says of the module's tests what its folder's share is otherwise.

Whoever asks for tests (a folder, a file, ``file::test``, ``-k``) gets all of them.
"""

from __future__ import annotations

import datetime
import functools
import os
import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

T = TypeVar("T")

LONG: Final = os.environ.get("TXNLOG_TESTS", "") == "long"

DAY: Final = os.environ.setdefault("TXNLOG_DAY", datetime.datetime.now(datetime.UTC).date().isoformat())
"""Decides which cases this run takes. All processes of a run must take the same, also at midnight: they inherit it."""

SHARES: Final[Mapping[str, int]] = {
    "tests/": 9,
    "tests/contract/": 1,
    "tests/mutants/": 1,
    "tests/packaging/": 1,
    "tests/places/": 1,
    "tests/protocol/": 1,
    "tests/spark/": 12,
    "tests/unit/": 3,
}
"""By folder, of how many tests a push runs one; the longest name counts. It runs all of what looks at the project
itself, which a change somewhere else breaks, and one story for each place where Spark runs."""

_PROMISES: Final = Path(__file__).parent.parent / "docs" / "guarantees.md"


def tries(all_of_them: int, some: int) -> int:
    """How many, in this run."""
    return all_of_them if LONG else some


def every(step: int) -> tuple[int, int]:
    """Where to begin and how far to go on, to take one place of so many: the next one each time, in a long run all.

    Each time that a push runs the test: were it each day, one in nine days would always come to the same place of
    three.
    """
    return (0, 1) if LONG else (_number_of_day() // SHARES["tests/"] % step, step)


def chosen(name: str, cases: Sequence[T], count: int) -> list[T]:
    """So many of the cases of a test that each push runs, in their order: others each day, in a long run all."""
    taken = cases if LONG else _of_this_day(name, cases, count)
    return [case for case in cases if case in taken]


_TEST: Final = re.compile(r"`([a-z0-9_/]+\.py::test_\w+)`")


@functools.cache
def shown_by() -> tuple[frozenset[str], ...]:
    """By promise the tests that show it: each push runs one of them at least."""
    page = _PROMISES.read_text(encoding="utf-8")
    promises = [_TEST.findall(text) for text in re.split(r"^\*\*|\n(?=\|)", page, flags=re.MULTILINE)]
    return tuple(frozenset(f"tests/{test}" for test in tests) for tests in promises if tests)


def left_to_test_all(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that a push does not run, of those that were collected."""
    left_out: set[pytest.Item] = set()
    cases: dict[tuple[str, int, int], list[pytest.Item]] = defaultdict(list)
    modules: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    by_test: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test = item.nodeid.partition("[")[0]
        by_test[test].append(item)
        if item.get_closest_marker("long"):
            left_out.add(item)
            continue
        marks = list(item.iter_markers("some"))  # the closest one first
        step = next((mark.kwargs["one_in"] for mark in marks if not mark.args), _share_of(test))
        modules[test.partition("::")[0], step][test] = None
        if counts := [mark for mark in marks if mark.args]:
            cases[_other_parameters(item, test, counts[0]), counts[0].args[0], step].append(item)
    for (name, count, step), several in cases.items():
        left_out.update(several)
        left_out.difference_update(_of_this_day(name, several, count, step))
    for test in _of_other_days(modules, shown_by(), by_test.keys()):
        left_out.update(by_test[test])
    return left_out


def _share_of(test: str) -> int:
    """Of its folder; all of what lies elsewhere."""
    return SHARES[max((folder for folder in SHARES if test.startswith(folder)), key=len, default="tests/contract/")]


def _of_other_days(
    modules: Mapping[tuple[str, int], Iterable[str]], shown: Iterable[Collection[str]], collected: Collection[str]
) -> set[str]:
    """The tests of modules of which one in so many is run, but for what then would not be shown by any other test."""
    others: set[str] = set()
    for (name, step), tests in modules.items():
        # Not the same place in each: else all modules with one test would have it run on the same day.
        first = (_number_of_day() + random.Random(f"day of {name}").randrange(step)) % step
        others.update(test for place, test in enumerate(_shuffled(name, list(tests))) if place % step != first)
    for group in shown:
        there = sorted(test for test in group if test in collected)
        if there and others.issuperset(there):
            others.difference_update(_of_this_day(there[0], there, 1))
    return others


def _other_parameters(item: pytest.Item, test: str, mark: pytest.Mark) -> str:
    """What the cases have in common among which a mark chooses: the test, and its other parameters if it names one."""
    if "of" not in mark.kwargs:
        return test
    call: Any = getattr(item, "callspec")  # noqa: B009 - whatever bears such a mark has parameters
    others = item.nodeid.partition("[")[2].removesuffix("]").split("-")
    others.remove(call.params[mark.kwargs["of"]])
    return f"{test}[{'-'.join(others)}]"


def _of_this_day(name: str, cases: Sequence[T], count: int, step: int = 1) -> list[T]:
    """So many of them, which follow those of the last time; ``step`` days lie in between."""
    order = _shuffled(name, cases)
    first = _number_of_day() // step * count
    return [order[(first + place) % len(order)] for place in range(min(count, len(order)))]


def _shuffled(name: str, of_it: Sequence[T]) -> list[T]:
    """The same order each day: neighbours are too much alike to be taken together."""
    return random.Random(name).sample(of_it, len(of_it))


def _number_of_day() -> int:
    return datetime.date.fromisoformat(DAY).toordinal()


__all__ = ["DAY", "LONG", "chosen", "every", "left_to_test_all", "shown_by", "tries"]
