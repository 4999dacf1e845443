"""The stores that the suite of stores runs on, each behind the same face."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.effort import tries
from tools.servers import S3Server
from txnlog.store import CountingStore, HookStore, LocalStore, MemoryStore, PrefixStore, Store, open_store

T = TypeVar("T")

_unique = itertools.count()

RACERS = 16
"""How many do something at the same moment."""

ROUNDS = tries(200, 30)
"""Races on a store that costs little."""


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
    return Subject("memory", lambda: open_store(f"memory://{name}"), ROUNDS)


def _local(folder: Path, server: Callable[[], S3Server]) -> Subject:
    return Subject("local", lambda: open_store(folder / "root"), ROUNDS)


def _local_fallback(folder: Path, server: Callable[[], S3Server]) -> Subject:
    return Subject("local-fallback", lambda: LocalStore(folder / "root", use_tmpfile=False), ROUNDS)


def _s3(folder: Path, server: Callable[[], S3Server]) -> Subject:
    running, root = server(), f"conformance-{next(_unique)}"
    return Subject("s3", lambda: open_store(running.url(root), running.storage_options), 20)


def _wrapped(folder: Path, server: Callable[[], S3Server]) -> Subject:
    inner = MemoryStore()
    return Subject("wrapped", lambda: CountingStore(HookStore(PrefixStore(inner, "sales"))), ROUNDS)


SUBJECTS = {"memory": _memory, "local": _local, "local-fallback": _local_fallback, "s3": _s3, "wrapped": _wrapped}


def run_together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Start all calls at the same moment; their results in order."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        start.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
