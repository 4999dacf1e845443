"""The stores under test, each behind the same face, and the count of what ran on which."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import S3Server, s3_server
from tests.stores.accounting import Accounts
from txnlog.store import CountingStore, HookStore, LocalStore, MemoryStore, PrefixStore, Store, open_store

_unique = itertools.count()
_accounts = pytest.StashKey[Accounts]()


@dataclass(frozen=True)
class Subject:
    """One store under test.

    Attributes:
        name: as in the test's id.
        open: a new handle on the same root.
        rounds: races to run; a server is asked fewer times than a dict.
    """

    name: str
    open: Callable[[], Store]
    rounds: int

    @property
    def store(self) -> Store:
        """A handle."""
        return self.open()


def _memory(folder: Path, server: Callable[[], S3Server]) -> Subject:
    name = f"conformance-{next(_unique)}"
    return Subject("memory", lambda: open_store(f"memory://{name}"), 200)


def _local(folder: Path, server: Callable[[], S3Server]) -> Subject:
    return Subject("local", lambda: open_store(folder / "root"), 200)


def _local_fallback(folder: Path, server: Callable[[], S3Server]) -> Subject:
    return Subject("local-fallback", lambda: LocalStore(folder / "root", use_tmpfile=False), 200)


def _s3(folder: Path, server: Callable[[], S3Server]) -> Subject:
    running, root = server(), f"conformance-{next(_unique)}"
    return Subject("s3", lambda: open_store(running.url(root), running.storage_options), 20)


def _wrapped(folder: Path, server: Callable[[], S3Server]) -> Subject:
    inner = MemoryStore()
    return Subject("wrapped", lambda: CountingStore(HookStore(PrefixStore(inner, "sales"))), 200)


SUBJECTS = {"memory": _memory, "local": _local, "local-fallback": _local_fallback, "s3": _s3, "wrapped": _wrapped}


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server that honours create-if-absent."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    """Each store of the conformance suite in turn, with an empty root."""
    # The server is started by the first test that needs it.
    return SUBJECTS[request.param](tmp_path, lambda: request.getfixturevalue("s3"))


@pytest.fixture
def store(subject: Subject) -> Store:
    """A handle on the subject."""
    return subject.store


# --- the count ------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Begin counting."""
    config.stash[_accounts] = Accounts()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a passed test of the suite for its store."""
    report = yield
    parameters = getattr(item, "callspec", None)
    if report.when == "call" and report.passed and parameters and "subject" in parameters.params:
        others = sorted((name, ascii(value)) for name, value in parameters.params.items() if name != "subject")
        name = f"{item.location[2].partition('[')[0]} {others}"
        item.config.stash.setdefault(_accounts, Accounts()).add(str(parameters.params["subject"]), name)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests of the suite passed on each store."""
    accounts = config.stash.get(_accounts, Accounts())
    if accounts.passed:
        terminalreporter.section("store conformance")
        for line in accounts.lines(SUBJECTS):
            terminalreporter.line(line)
        if fault := _fault(config):
            terminalreporter.line(f"NOT EQUAL: {fault}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run whose counts differ."""
    if session.exitstatus == pytest.ExitCode.OK and _fault(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _fault(config: pytest.Config) -> str | None:
    """What is wrong with the counts; nothing is where somebody asked for a part of the suite."""
    partial = config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args)
    accounts = config.stash.get(_accounts, Accounts())
    return None if partial or not accounts.passed else accounts.fault(SUBJECTS)
