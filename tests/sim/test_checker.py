"""The checker finds every anomaly in a history made by hand, and nothing in the good histories near it.

Every function of ``stories`` tells a story. ``@bad`` names all that the checker must report of it, and nothing else;
``@good`` stories must pass. Together they say what a pipeline may see, and what it never may.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tests.sim.story import Story
from txnlog.testing.anomalies import Anomaly
from txnlog.testing.checker import check
from txnlog.testing.history import History

MODULES = [
    importlib.import_module(f"tests.sim.stories.{file.stem}")
    for file in sorted(Path(__file__).with_name("stories").glob("*.py"))
]
STORIES: list[Any] = [told for module in MODULES for told in vars(module).values() if hasattr(told, "anomalies")]
GOOD = [pytest.param(told, id=told.__name__) for told in STORIES if not told.anomalies]
BAD = [pytest.param(told, id=told.__name__) for told in STORIES if told.anomalies]


def found(told: Any) -> list[str]:
    story = Story()
    told(story)
    history = story.history()
    findings = check(history)
    assert check(History.from_lines(history.to_lines())) == findings, "what was written down gives the same findings"
    return [str(finding) for finding in findings]


@pytest.mark.parametrize("told", GOOD)
def test_a_good_history_has_no_findings(told):
    assert found(told) == []


@pytest.mark.parametrize("told", BAD)
def test_a_bad_history_is_found_and_called_by_its_name(told):
    findings = found(told)
    assert {finding.partition(":")[0] for finding in findings} == told.anomalies, findings


def test_there_is_a_bad_history_of_every_anomaly():
    assert {anomaly.value for anomaly in Anomaly} == {anomaly for told in STORIES for anomaly in told.anomalies}


def test_every_anomaly_says_what_it_means():
    assert all(len(anomaly.meaning) > 20 for anomaly in Anomaly)


def test_a_history_in_which_nothing_happened_has_no_findings():
    assert check(History(())) == []
