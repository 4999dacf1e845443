"""What the handler of a signal raises, as a time limit does, while the main thread waits for a request of a store."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.interrupts import hearing_signal
from txnlog.engine import main_thread
from txnlog.errors import RetriableError
from txnlog.store import Created, FsspecStore, LocalStore, ObjectNotFound, Store, posix
from txnlog.store.fsspec_store import Backend
from txnlog.store.identity import make_identity

KEY = "a/key"
CALLS: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("a/new", b"x"),
    "put": lambda store: store.put(KEY, b"x"),
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 1),
    "info": lambda store: store.info(KEY),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete(KEY),
    "sync": lambda store: store.sync(KEY),
}


class Limit:
    """A time limit, which is over as soon as a request is under way, and raises what looks like an answer."""

    def __init__(self) -> None:
        self.is_set = False
        self._heard = threading.Event()

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        self._heard.set()
        raise FileNotFoundError(2, "No such file or directory", "what the handler looks for")

    def come(self, *_of_request: object, **_options: object) -> None:
        """To be called in a request: the handler is called in the main thread, and the request goes on."""
        if self.is_set:
            self.is_set = False
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGUSR1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            assert self._heard.wait(20)

    def __call__(self, call: Callable[[], object]) -> None:
        self.is_set = True
        with pytest.raises(FileNotFoundError, match="what the handler looks for"):
            call()
        assert not self.is_set


@pytest.fixture
def limit() -> Iterator[Limit]:
    """A limit that is not set yet."""
    found = Limit()
    with hearing_signal(found.handle):
        yield found


@pytest.mark.parametrize("call", CALLS)
def test_what_a_handler_raises_is_no_answer_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: Limit, call: str
) -> None:
    """REFUSED: a failed fsync, after which the store refused every write; or an object that was not there."""
    store = LocalStore(tmp_path / "root")
    store.put(KEY, b"bytes")

    def coming(real: Callable[..., object]) -> Callable[..., object]:
        def come(*arguments: object, **options: object) -> object:
            limit.come()
            return real(*arguments, **options)

        return come

    for name in ("fsync", "unlink"):
        monkeypatch.setattr(os, name, coming(getattr(os, name)))
    for name in ("read_all", "read_range", "status_of_file", "entries_of"):
        monkeypatch.setattr(posix, name, coming(getattr(posix, name)))
    limit(lambda: CALLS[call](store))
    assert store.create("b", b"x") is Created.CREATED


@pytest.mark.parametrize("call", [call for call in CALLS if call != "sync"])
def test_what_a_handler_raises_is_no_answer_of_a_service(limit: Limit, call: str) -> None:
    """SWALLOWED: a create whose outcome is unknown, or another error of the store."""

    class Slow:
        pipe_file = cat_file = info = find = rm_file = limit.come

    store = FsspecStore(Backend(Slow, "bucket/root", "s3://bucket/root", make_identity("s3", "", "bucket")))
    limit(lambda: CALLS[call](store))


def test_what_a_handler_raises_that_is_not_installed_any_more_is_no_answer_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPORTED: a disk with an input/output error, where a time limit was over: its handler put back that of before."""
    store = LocalStore(tmp_path / "root")
    store.put(KEY, b"bytes")
    read_all = posix.read_all

    def once(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise TimeoutError("the time limit")

    def interrupted(file: int) -> bytes:
        signal.raise_signal(signal.SIGUSR1)
        return read_all(file)

    monkeypatch.setattr(posix, "read_all", interrupted)
    with hearing_signal(once), pytest.raises(TimeoutError, match="the time limit"):
        store.get(KEY)


def test_where_no_thread_can_be_started_the_main_thread_makes_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: object) -> None:
        raise RetriableError("no thread")

    monkeypatch.setattr(main_thread, "_by_service", {})
    monkeypatch.setattr("txnlog.engine.worker.start_thread", refuse)
    store = LocalStore(tmp_path / "root")
    store.put(KEY, b"bytes")
    assert store.get(KEY) == b"bytes"
    with pytest.raises(ObjectNotFound):
        store.get("b")
