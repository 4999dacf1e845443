"""For all tests: nothing may be skipped where it counts, and every store passes the same tests.

A skipped test proves nothing. With ``CI=true`` or ``TXNLOG_NO_SKIP=1`` a test that was skipped or
expected to fail is a failure, and so is a module that skips itself while it is collected. On a developer's machine both
stay what they are.

Tests may run in several processes (pytest-xdist): what is counted travels with the reports.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest

from tests import effort
from tests.stores.accounting import Accounts
from tests.stores.subjects import SUBJECTS

_PROPERTY = "conformance"


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


# --- what a push leaves to test-all -----------------------------------------------------------------------------------


def _asked_for(config: pytest.Config) -> bool:
    """Whether somebody asked for tests by name, or for a part of them: then all that they mean are run."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    return bool(config.option.keyword or config.option.markexpr or named)


def pytest_report_header(config: pytest.Config) -> str:
    """Say how much this run tries, and how to have the same choice again."""
    if effort.LONG or _asked_for(config):
        return "tests: all that are asked for"
    return f"tests: a push's share of the day, TXNLOG_DAY={effort.DAY} (make test-all runs all)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``make test-all`` what is more of the same: it is not collected, so nothing of it counts as skipped."""
    if effort.LONG or _asked_for(config):
        return
    left_out = effort.left_to_test_all(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Spare the garbage collector what is there for good: ten thousand tests, of which it would look at each whenever.

    What a test makes, and lets go, it still finds.
    """
    gc.collect()
    gc.freeze()


# --- conformance, by store --------------------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the report of a test of the suite say which store it looked at."""
    parameters = getattr(item, "callspec", None)
    if parameters and "subject" in parameters.params:
        others = sorted((name, ascii(value)) for name, value in parameters.params.items() if name != "subject")
        name = f"{item.location[2].partition('[')[0]} {others}"
        item.user_properties.append((_PROPERTY, (str(parameters.params["subject"]), name)))


class _Counter:
    """Counts reports, wherever their tests ran."""

    def __init__(self, config: pytest.Config) -> None:
        self.accounts = Accounts()
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a passed test of the suite for its store."""
        if report.when == "call" and report.passed:
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    store, test = cast("tuple[str, str]", value)
                    self.accounts.add(store, test)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many tests of the suite passed on each store."""
        if self.accounts.passed:
            terminalreporter.section("store conformance")
            for line in self.accounts.lines(SUBJECTS):
                terminalreporter.line(line)
            if fault := self._fault():
                terminalreporter.line(f"NOT EQUAL: {fault}", red=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run whose counts differ."""
        if session.exitstatus == pytest.ExitCode.OK and self._fault():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _fault(self) -> str | None:
        """What is wrong with the counts; nothing is where somebody asked for a part of the suite."""
        partial = _asked_for(self._config)
        return None if partial or not self.accounts.passed else self.accounts.fault(SUBJECTS)


@pytest.fixture(scope="session", autouse=True)
def _the_machine_goes_on() -> Iterator[None]:
    """Nothing waits for a disk: in tests processes die, the machine does not. ``tests/stores`` does without this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give out whole files in an order of our own."""
    from tests.distribution import Distribution

    return Distribution(config, log) if config.getvalue("dist") == "loadfile" else None


# --- counting ---------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Begin counting, in the process that sees every report."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Counter(config))
