"""A program's time limits over a service that does not answer, and a namespace on one that does."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

import txnlog
from tests.client.support import SCHEMA, ids, rows
from tests.interrupts import hearing_signal
from txnlog.store.fsspec_store import Backend, FsspecStore
from txnlog.store.identity import make_identity


class TimeLimit(Exception):
    """The limit of a program for one call."""


class _Service(LocalFileSystem):  # type: ignore[misc]
    """Objects of a service, which answers while ``answers`` is set."""

    cachable = False

    def __init__(self) -> None:
        super().__init__(auto_mkdir=True)
        self.answers = threading.Event()
        self.answers.set()

    def _wait(self) -> None:
        self.answers.wait(60)

    def cat_file(self, path: str, **options: Any) -> Any:
        self._wait()
        return super().cat_file(path, **options)

    def find(self, path: str, prefix: str = "", **options: Any) -> Any:
        self._wait()
        return super().find(path, **options)

    def info(self, path: str, **options: Any) -> Any:
        self._wait()
        return super().info(path, **options)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and self.exists(path):
            raise FileExistsError(path)
        self.makedirs(path.rpartition("/")[0], exist_ok=True)
        Path(path).write_bytes(value)


def _opened(service: _Service, folder: Path) -> Any:
    root = str(folder)
    backend = Backend(lambda: service, root, f"s3:/{root}", make_identity("s3", "here", folder.name))
    ns = txnlog.open(f"s3:/{root}", namespace="sales", create=True, store=FsspecStore(backend))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    return ns


@pytest.mark.parametrize("limits", [15, 16])
def test_calls_that_a_time_limit_ended_hold_up_no_other_namespace(tmp_path: Path, limits: int) -> None:
    """HANG: a monitor reads two namespaces, on services of two regions, with a time limit of its own for each call.

    One service stops answering. Each limit ends a call and leaves its request to one of the sixteen threads that make
    them for the main thread. Where these were those of all services, no call of the main thread came through from the
    sixteenth limit on, also of a namespace on a service that answers at once.
    """
    away, well = _Service(), _Service()
    first, second = _opened(away, tmp_path / "first"), _opened(well, tmp_path / "second")
    assert ids(second.snapshot().read("orders")) == [1]

    def handle(*_: object) -> None:
        raise TimeLimit

    def limited(call: Any, seconds: float) -> Any:
        timer = threading.Timer(seconds, interrupt)
        timer.start()
        try:
            return call()
        finally:
            timer.cancel()

    with hearing_signal(handle) as interrupt:
        away.answers.clear()
        try:
            for _ in range(limits):
                with pytest.raises(TimeLimit):
                    limited(first.snapshot, 0.05)
            began = time.monotonic()
            assert ids(limited(lambda: second.snapshot().read("orders"), 5)) == [1]
            assert time.monotonic() - began < 4
        finally:
            away.answers.set()
    first.close()
    second.close()
