"""What a damaged file affects: every kind of object, damaged in four ways, and what is tried on each of these roots."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import deltalake

import catalog
import txnlog
from tests.damage.lake import LEASE_MS, NAME, TOPICS, Lake, SteadyRuntime, Target, steady
from txnlog.api.namespace import Namespace
from txnlog.api.snapshot import Snapshot
from txnlog.errors import ConsumerBusy, TxnLogError

_logger = logging.getLogger("tests.damage")

YES: Final = "yes"
NO: Final = "no"
WRONG: Final = "WRONG"
"""Something else than what was there, and no word about it."""

OLDER_END: Final = "one entry less"
"""The log ends before an entry that nothing says was ever there."""

OTHER: Final = "other rows"
"""What a reader of Delta is shown of a table that is not what txnlog wrote: it has nothing to compare it with."""

OLDER: Final = "older rows"
AFTER_LEASE: Final = "after the lease"
UP_TO_IT: Final = "up to it"

TRIED: Final = {
    "Delta": "deltalake reads the published topic and the table of segments",
    "open": 'the namespace is opened, with `mode="r"` and `"rw"`',
    "read": "every topic is read at the newest version",
    "older": "every topic is read at an older version, before segments were merged",
    "ask": "the outcome of an old transaction is asked for",
    "consume": "a subscription of every topic is received from start to end, and another one taken over",
    "write": "messages are produced to every topic",
    "repeat": "an old batch of a named producer is repeated",
    "checkpoint": "a checkpoint is made, and the namespace opened from it",
    "publish": "all Delta tables are published",
    "repair": "all Delta tables are repaired, and deltalake reads them",
}
"""What is tried, in this order: what only reads comes first."""


def _deleted(path: Path, _partner: Path) -> None:
    path.unlink()


def _truncated(path: Path, _partner: Path) -> None:
    data = path.read_bytes()
    _put(path, data[: len(data) // 2])


def _flipped(path: Path, _partner: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    _put(path, bytes(data))


def _swapped(path: Path, partner: Path) -> None:
    one, other = path.read_bytes(), partner.read_bytes()
    _put(path, other)
    _put(partner, one)


def _put(path: Path, data: bytes) -> None:
    path.unlink()  # the file itself is the undamaged root's as well
    path.write_bytes(data)


DAMAGE: Final[dict[str, Callable[[Path, Path], None]]] = {
    "deleted": _deleted,
    "truncated": _truncated,
    "a bit flipped": _flipped,
    "swapped": _swapped,
}


@dataclass(frozen=True)
class Case:
    """One object in one state: by what was tried a word, and what was said."""

    target: Target
    damage: str
    cells: dict[str, str]
    said: tuple[str, ...]


class _Attempt:
    """Tries everything on one damaged root, and keeps what is said."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self._lake = lake
        self._folder = folder
        self.cells: dict[str, str] = {}
        self.said: list[str] = []

    def run(self) -> None:
        """All of it, one after the other."""
        self._try("Delta", self._read_delta)
        with self._opened(mode="r") as reader:
            self._try("read", lambda: self._read(reader, None, self._lake.rows))
            self._try("older", lambda: self._read(reader, self._lake.older, self._lake.older_rows))
            self._try("ask", lambda: self._ask(reader))
        with self._opened() as ns:
            self._try("consume", lambda: self._consume(ns))
            self._try("write", lambda: self._write(ns))
            self._try("repeat", lambda: self._repeat(ns))
            self._try("checkpoint", lambda: self._checkpoint(ns))
        self._try("publish", self._publish)
        self._try("repair", self._repair)

    @contextmanager
    def _opened(self, **options: Any) -> Iterator[Namespace | None]:
        found: list[Namespace] = []

        def opened() -> str:
            found.append(txnlog.open(self._folder, namespace=NAME, **options))
            return YES

        before = self.cells.get("open", YES)
        self._try("open", opened)
        if self.cells["open"] != before and "mode" not in options:
            self.cells["open"] = "to read only" if before == YES else "to write only"
        yield found[0] if found else None
        for ns in found:
            ns.close()

    def _try(self, name: str, call: Callable[[], str]) -> None:
        with _warnings() as warnings:
            try:
                self.cells[name] = call()
            except TxnLogError as error:
                self.cells[name] = NO
                self._say(str(error))
            except _NotOpenError:
                self.cells[name] = NO
        for text in warnings:
            self._say(f"Warning: {text}")

    def _say(self, text: str) -> None:
        text = _plain(text, self._folder)
        if text not in self.said:
            self.said.append(text)

    # --- what is tried ------------------------------------------------------------------------------------------------

    def _read(self, ns: Namespace | None, version: int | None, expected: dict[str, list[int]]) -> str:
        snapshot = _open(ns).snapshot(version)
        return _in_all({topic: self._topic(partial(_ids_of, snapshot, topic), expected[topic]) for topic in TOPICS})

    def _topic(self, read: Callable[[], list[int]], expected: list[int]) -> str:
        try:
            found = read()
        except TxnLogError as error:
            self._say(str(error))
            return NO
        if found == expected:
            return YES
        return OLDER_END if found == expected[:-3] else WRONG

    def _ask(self, ns: Namespace | None) -> str:
        found = _open(ns).transaction(self._lake.first_txn)
        return YES if (found.state, found.version) == ("COMMITTED", self._lake.first_version) else WRONG

    def _consume(self, ns: Namespace | None) -> str:
        return _in_all({topic: self._consume_topic(_open(ns), topic) for topic in TOPICS})

    def _consume_topic(self, ns: Namespace, topic: str) -> str:
        found: list[int] = []
        expected = self._lake.rows[topic]
        word = self._topic(partial(_received, ns, topic, found), expected)
        if word == NO and found and found == expected[: len(found)]:
            word = UP_TO_IT
        try:
            ns.consumer(topic, "audit", name="another").close()
        except ConsumerBusy:
            ns._connection.runtime.sleep_ms(LEASE_MS + 1)
            ns.consumer(topic, "audit", name="another").close()
            word = AFTER_LEASE if word == YES else f"{word}, {AFTER_LEASE}"
        return word

    def _write(self, ns: Namespace | None) -> str:
        for topic in TOPICS:
            before = _open(ns).snapshot().end_offsets(topic)[0]
            version = _open(ns).produce(topic, [{"id": 1_000}]).version
            if _open(ns).snapshot(version).end_offsets(topic)[0] != before + 1:
                return WRONG
        return YES

    def _repeat(self, ns: Namespace | None) -> str:
        again = _open(ns).producer("cashier").produce("orders", [{"id": 0}], partition=0, sequence=0)
        return YES if again.duplicate and again.offsets else WRONG

    def _checkpoint(self, ns: Namespace | None) -> str:
        version = _open(ns).checkpoint()
        with txnlog.open(self._folder, namespace=NAME, mode="r") as fresh:
            return YES if fresh.snapshot().version >= version else WRONG

    def _publish(self) -> str:
        with catalog.open(self._folder) as cat:
            return "repairs" if any(item.repaired for item in cat.publish(NAME)) else YES

    def _repair(self) -> str:
        with catalog.open(self._folder) as cat:
            cat.repair(NAME)
        return self._read_delta(written=self.cells["write"] == YES)

    def _read_delta(self, *, written: bool = False) -> str:
        expected = [*self._lake.rows["orders"], *([1_000] if written else [])]
        try:
            found = deltalake.DeltaTable(str(self._folder / NAME / "orders")).to_pyarrow_table()["id"].to_pylist()
            segments = deltalake.DeltaTable(str(self._folder / NAME / "_delta/segments")).to_pyarrow_table()
        except Exception as error:  # noqa: BLE001 - whatever a foreign engine raises
            _logger.info("deltalake: %s", error)
            return NO
        numbers = sorted(segments["segment"].to_pylist())
        if sorted(found) != expected:
            return OLDER if set(found) < set(expected) else OTHER
        if written or numbers == list(self._lake.segments):
            return YES
        return OLDER if set(numbers) < set(self._lake.segments) else OTHER


class _NotOpenError(Exception):
    """There is no handle to try anything with."""


def _open(ns: Namespace | None) -> Namespace:
    if ns is None:
        raise _NotOpenError
    return ns


def _ids_of(snapshot: Snapshot, topic: str) -> list[int]:
    found: list[int] = snapshot.read(topic)["id"].to_pylist()
    return found


def _received(ns: Namespace, topic: str, found: list[int]) -> list[int]:
    """All messages of a subscription, into a list that keeps them where an error ends it."""
    with ns.consumer(topic, "billing", name="matrix") as consumer:
        while len(messages := consumer.receive(2, timeout_ms=0)):
            found += messages.table["id"].to_pylist()
    return found


def _in_all(words: dict[str, str]) -> str:
    """One word for all topics: what stops ``orders`` alone says so."""
    if len(set(words.values())) == 1:
        return words["orders"]
    return ", ".join(f"`{topic}`: {word}" for topic, word in words.items())


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """What the loggers of txnlog warn of inside."""
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                found.append(record.getMessage())

    logger, handler = logging.getLogger("txnlog"), Keep()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def _plain(text: str, folder: Path) -> str:
    """A message without what differs from run to run, in one line."""
    text = " ".join(text.replace(str(folder), "ROOT").split())
    text = re.sub(r"[0-9a-f]{32}", "…", text)
    text = re.sub(r"'[^' ]{32}'", "'…'", text)  # a digest with a flipped bit
    return re.sub(r"\b[\d,]+ bytes", "N bytes", text)


def cases(lake: Lake, scratch: Path, wanted: Iterable[Target]) -> Iterator[Case]:
    """Some of its objects, each in every state."""
    with steady():
        for target in wanted:
            for damage, apply in DAMAGE.items():
                SteadyRuntime.begin()
                folder = scratch / "root"
                shutil.copytree(lake.folder, folder, copy_function=os.link)  # a store never writes into a file
                apply(folder / target.key, folder / target.partner)
                attempt = _Attempt(lake, folder)
                attempt.run()
                shutil.rmtree(folder)
                yield Case(target, damage, attempt.cells, tuple(attempt.said))


__all__ = ["DAMAGE", "NO", "OLDER_END", "TRIED", "WRONG", "YES", "Case", "cases"]
