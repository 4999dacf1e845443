"""For all tests: nothing may be skipped where it counts.

A skipped test proves nothing. With ``CI=true`` or ``TXNLOG_NO_SKIP=1`` a test that was skipped or
expected to fail is a failure, and so is a module that skips itself while it is collected. On a developer's machine both
stay what they are.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


def skips_are_failures() -> bool:
    """Say whether this run must not skip anything."""
    return os.environ.get("CI", "").lower() == "true" or os.environ.get("TXNLOG_NO_SKIP") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test, and one marked xfail whatever became of it, into a failure."""
    report = yield
    expected_to_fail = hasattr(report, "wasxfail")
    if skips_are_failures() and (report.skipped or expected_to_fail):
        if expected_to_fail:
            reason = f"marked xfail: {report.wasxfail or 'no reason'}"
            del report.wasxfail
        else:
            reason = _reason_of(report)
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped in this run, but this test was: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a module that skips itself (importorskip, skip at module level) into a failure."""
    report = yield
    if skips_are_failures() and report.skipped:
        reason = _reason_of(report)
        report.outcome = "failed"
        report.longrepr = f"Nothing may be skipped in this run, but this module was: {reason}"
    return report


def _reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the text that ``pytest.skip`` was given."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
