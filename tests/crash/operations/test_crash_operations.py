"""Operations that are killed somewhere and repeated end as if they had never been killed; planted bugs are found.

``make crash-operations`` kills each of them 200 times. Here processes are killed at calls that change something.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.operations.deaths import AFTER, BEFORE, TORN, UNLINKED, UNRENAMED, Made, Place
from tests.crash.operations.operations import OPERATIONS
from tests.crash.operations.planted import BUGS
from tests.crash.operations.run import problems, some_of
from tests.crash.operations.trials import Result
from tests.effort import DAY, tries
from txnlog.store import StoreCall

ROOT = Path(__file__).resolve().parents[3]

OF_EACH = tries(12, 1)
MOST_PLACES = 24
"""Of one operation: a restore has some two hundred."""

_SEED = "1"


def killed(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A run in a process of its own, which has no handles and no threads; its exit code, and what it reports."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.crash.operations.run", "--seed", _SEED, "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [*command, "--report", str(report), *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(report.read_text())


@pytest.mark.timeout(900)
def test_each_operation_that_is_killed_and_repeated_ends_as_if_it_had_never_been_killed(tmp_path: Path) -> None:
    day = datetime.date.fromisoformat(DAY).toordinal()
    code, report = killed(tmp_path, "--some", str(OF_EACH), "--day", str(day))
    print(json.dumps(report["figures"]))
    assert not report["findings"], "\n\n".join(report["findings"])
    assert code == 0
    assert report["figures"].keys() == OPERATIONS.keys()


@pytest.mark.timeout(900)
@pytest.mark.some(1)
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_an_operation_that_is_killed_at_any_change_and_repeated_ends_as_if_it_had_never_been_killed(
    tmp_path: Path, operation: str
) -> None:
    code, report = killed(tmp_path, "--some", str(MOST_PLACES), operation)
    assert not report["findings"], "\n\n".join(report["findings"])
    assert code == 0
    assert report["figures"][operation]["kills"] > 3


@pytest.mark.timeout(900)
@pytest.mark.some(1)
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_kills_find_what_only_they_can_find(tmp_path: Path, bug: str) -> None:
    code, report = killed(tmp_path, "--some", "1000", "--plant", bug, BUGS[bug].operation)
    assert code == 1
    assert "not killed" not in report["findings"][0], "undisturbed, the bug does no harm"


def test_of_the_places_of_an_operation_each_has_its_day() -> None:
    places = [Place(number, BEFORE) for number in range(10)]
    assert [place.call for place in some_of(places, 3, 0)] == [0, 4, 8]
    assert {place for day in range(4) for place in some_of(places, 3, 7 + day)} == {*places}
    assert some_of(places, 1000, 5) == places


def test_a_process_can_die_at_each_moment_of_a_call() -> None:
    assert Made(StoreCall.GET, "key", replaces=False).moments == (BEFORE, AFTER)
    assert Made(StoreCall.CREATE, "key", replaces=False).moments == (BEFORE, TORN, UNLINKED, AFTER)
    assert Made(StoreCall.PUT, "key", replaces=True).moments == (BEFORE, TORN, UNLINKED, UNRENAMED, AFTER)


def test_too_few_kills_and_any_finding_fail_a_run() -> None:
    few, enough, found = Result("a"), Result("b"), Result("c", findings=["what"])
    few.counts["kills"], enough.counts["kills"] = 4, 5
    assert problems([enough], 5) == []
    assert problems([few, enough], 5) == ["a: 4 kills, wanted were 5"]
    assert problems([few, found], 5) == ["what"]
