"""What a damaged object stops: every kind of object, damaged in four ways, and what is tried on each of these roots."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import deltalake

import catalog
import txnlog
from tests.damage.lake import LEASE_MS, NAME, TOPICS, Lake, SteadyRuntime, Target, steady
from txnlog.errors import ConsumerBusy, CorruptionError, TxnLogError
from txnlog.namespace import Namespace

YES: Final = "yes"
NO: Final = "no"
WRONG: Final = "WRONG"
"""Something else than what was there, and no word about it."""

OLDER_END: Final = "one entry less"
"""The log ends before an entry that nothing says was ever there."""

TRIED: Final = (
    "open r",
    "open rw",
    "read",
    "read older",
    "consume",
    "write",
    "checkpoint",
    "publish",
    "Delta reader",
)


def _deleted(path: Path, _partner: Path) -> None:
    path.unlink()


def _truncated(path: Path, _partner: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _flipped(path: Path, _partner: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def _swapped(path: Path, partner: Path) -> None:
    one, other = path.read_bytes(), partner.read_bytes()
    path.write_bytes(other)
    partner.write_bytes(one)


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
        """All of it, on one root: what only reads comes first."""
        self._try("Delta reader", self._read_delta)
        with self._opened("open r", mode="r") as reader:
            self._try("read", lambda: self._read(reader, None, self._lake.rows), reader)
            self._try("read older", lambda: self._read(reader, self._lake.older, self._lake.older_rows), reader)
        with self._opened("open rw") as ns:
            self._try("consume", lambda: self._consume(ns), ns)
            self._try("write", lambda: self._write(ns), ns)
            self._try("checkpoint", lambda: self._checkpoint(ns), ns)
            self._try("publish", self._publish)

    @contextmanager
    def _opened(self, name: str, **options: Any) -> Iterator[Namespace | None]:
        found: list[Namespace] = []

        def opened() -> str:
            found.append(txnlog.open(self._folder, namespace=NAME, **options))
            return YES

        self._try(name, opened)
        yield found[0] if found else None
        for ns in found:
            ns.close()

    def _try(self, name: str, call: Callable[[], str], ns: Namespace | None | str = "") -> None:
        if ns is None:
            self.cells[name] = NO
            return
        with _warnings() as warnings:
            try:
                self.cells[name] = call()
            except TxnLogError as error:
                self.cells[name] = NO
                self._say(str(error))
        for text in warnings:
            self._say(f"Warning: {text}")

    def _say(self, text: str) -> None:
        text = _plain(text, self._folder)
        if text not in self.said:
            self.said.append(text)

    # --- what is tried ------------------------------------------------------------------------------------------------

    def _read(self, ns: Namespace, version: int | None, expected: dict[str, list[int]]) -> str:
        snapshot = ns.snapshot(version)
        words = {topic: self._topic(lambda t=topic: snapshot.read(t)["id"].to_pylist(), expected[topic]) for topic in TOPICS}  # type: ignore[misc]
        return _in_all(words)

    def _topic(self, read: Callable[[], list[int]], expected: list[int]) -> str:
        try:
            found = read()
        except TxnLogError as error:
            self._say(str(error))
            return NO
        if found == expected:
            return YES
        return OLDER_END if found == expected[: len(found)] and len(found) >= len(expected) - 3 else WRONG

    def _consume(self, ns: Namespace) -> str:
        words: dict[str, str] = {}
        for topic in TOPICS:
            found: list[int] = []
            waited = False
            try:
                words[topic] = self._topic(lambda t=topic, f=found: self._received(ns, t, "billing", f), self._lake.rows[topic])  # type: ignore[misc]
                try:
                    ns.consumer(topic, "audit", name="another").close()
                except ConsumerBusy:
                    ns.connection.runtime.sleep_ms(LEASE_MS + 1)
                    ns.consumer(topic, "audit", name="another").close()
                    waited = True
            except TxnLogError as error:
                self._say(str(error))
                words[topic] = NO
            if words[topic] == NO and found and found == self._lake.rows[topic][: len(found)]:
                words[topic] = "up to it"
            elif words[topic] == YES and waited:
                words[topic] = "after the lease"
        return _in_all(words)

    def _received(self, ns: Namespace, topic: str, subscription: str, found: list[int]) -> list[int]:
        with ns.consumer(topic, subscription, name="matrix") as consumer:
            while len(messages := consumer.receive(2, timeout_ms=0)):
                found += messages.table["id"].to_pylist()
        return found

    def _write(self, ns: Namespace) -> str:
        for topic in TOPICS:
            version = ns.produce(topic, [{"id": 1_000}]).version
            end = ns.snapshot(version).end_offsets(topic)[0]
            if ns.snapshot(version).read(topic, offsets={0: (end - 1, end)})["id"].to_pylist() != [1_000]:
                return WRONG
        return YES

    def _checkpoint(self, ns: Namespace) -> str:
        version = ns.checkpoint()
        with txnlog.open(self._folder, namespace=NAME, mode="r") as fresh:
            return YES if fresh.snapshot().version >= version else WRONG

    def _publish(self) -> str:
        with catalog.open(self._folder) as cat:
            done = cat.publish(NAME)
            repaired = any(item.repaired for item in done)
            return "repairs" if repaired else YES

    def _read_delta(self) -> str:
        try:
            table = deltalake.DeltaTable(str(self._folder / NAME / "orders"))
            found = table.to_pyarrow_table()["id"].to_pylist()
            deltalake.DeltaTable(str(self._folder / NAME / "_delta/segments")).to_pyarrow_table()
        except Exception as error:  # noqa: BLE001 - whatever a foreign engine raises
            self._say(f"deltalake: {str(error).splitlines()[0][:200]}")
            return NO
        if sorted(found) == self._lake.rows["orders"]:
            return YES
        return "older" if set(found) < set(self._lake.rows["orders"]) else WRONG


def _in_all(words: dict[str, str]) -> str:
    """One word for all topics: what stops ``orders`` alone says so."""
    if len(set(words.values())) == 1:
        return words["orders"]
    if words["payments"] == YES:
        return f"{words['orders']} (`payments`: yes)"
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
    return re.sub(r"\b[\d,]+ bytes", "N bytes", text)


def cases(lake: Lake, scratch: Path, wanted: str = "") -> Iterator[Case]:
    """Every object in every state; ``wanted`` is a part of the names of some objects."""
    with steady():
        for target in lake.objects:
            if wanted not in target.name:
                continue
            for damage, apply in DAMAGE.items():
                SteadyRuntime.begin()
                folder = scratch / "root"
                shutil.copytree(lake.folder, folder)
                apply(folder / target.key, folder / target.partner)
                attempt = _Attempt(lake, folder)
                attempt.run()
                shutil.rmtree(folder)
                yield Case(target, damage, attempt.cells, tuple(attempt.said))


__all__ = ["DAMAGE", "NO", "OLDER_END", "TRIED", "WRONG", "YES", "Case", "cases"]
