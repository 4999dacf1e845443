"""What the log of a namespace tells about its transactions, entry by entry: the stuff of the timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from txnlog import Namespace
from txnlog.format.actions import Abort, Acknowledge, Acknowledgement, AnyAction, Begin, Commit, Segment, Subscription
from txnlog.format.codec import Entry
from txnlog.format.keys import SegmentKey, parse_key

State = Literal["OPEN", "COMMITTED", "ABORTED"]


@dataclass(frozen=True)
class LogEntry:
    """One entry: its version, its time, and in a word what it is for."""

    version: int
    at_ms: int
    what: str


@dataclass(frozen=True)
class Work:
    """What one transaction did on one lane.

    Attributes:
        lane: a topic, or the lane of the subscription's cursor.
        first, last: the versions at which the log shows it first, and ended; None while it is open.
        state: how it ended.
        messages: rows written, or messages taken off.
    """

    lane: str
    first: int
    last: int | None
    state: State
    messages: int


@dataclass(frozen=True)
class Leftover:
    """A data file that no entry names: its writer died first. Nobody sees it, and nothing waits for it."""

    lane: str
    at_ms: int


@dataclass(frozen=True)
class History:
    """The part of a log from its first transaction on."""

    lanes: Sequence[str]
    entries: Sequence[LogEntry]
    work: Sequence[Work]
    leftovers: Sequence[Leftover]


CURSOR_LANE: Final = "source cursor"


def read_history(ns: Namespace, source: str, subscription: str, outputs: Sequence[str]) -> History:
    """Read the log: the topic ``source``, the cursor of its ``subscription``, and the topics ``outputs``."""
    newest = ns.snapshot().version
    entries = [ns._connection.follower.log.entry(version) for version in range(newest + 1)]
    names = {ns.topic(name).id: name for name in (source, *outputs)}
    fold = _Fold(names, (ns.topic(source).id, subscription))
    for entry in entries:
        fold.add(entry)
    first = min((item.first for item in fold.work()), default=0)
    return History(
        lanes=(source, CURSOR_LANE, *outputs),
        entries=[_entry(entry) for entry in entries if entry.header.version >= first],
        work=fold.work(),
        leftovers=list(_leftovers(ns, names.values(), fold.segments)),
    )


class _Fold:
    """Transactions by number as they come, and go."""

    def __init__(self, names: dict[int, str], followed: tuple[int, str]) -> None:
        self._names = names
        self._followed = followed
        self._subscription: int | None = None
        self._first: dict[int, int] = {}
        self._messages: dict[int, dict[str, int]] = {}
        self._ended: dict[int, tuple[int, State]] = {}
        self._cursor: dict[int, int] = {}
        self.segments: dict[int, int] = {}

    def add(self, entry: Entry) -> None:
        version = entry.header.version
        for action in entry.actions:
            match action:
                case Subscription() if (action.topic, action.name) == self._followed:
                    self._subscription = version
                case Begin():
                    self._first.setdefault(action.txn, version)
                case Segment():
                    self.segments[action.segment] = action.topic
                    if action.txn is not None:
                        self._note(action.txn, version, self._names.get(action.topic), action.rows)
                case Acknowledge():
                    self._note_taken(action.txn, version, action.acknowledgement)
                case Commit():
                    for share in action.shares:
                        self._note(action.txn, version, self._names.get(self.segments[share.segment]), share.rows)
                    for item in action.acknowledgements:
                        self._note_taken(action.txn, version, item)
                    self._ended[action.txn] = version, "COMMITTED"
                case Abort():
                    self._ended[action.txn] = version, "ABORTED"
                case _:
                    pass

    def _note(self, txn: int, version: int, lane: str | None, messages: int) -> None:
        self._first.setdefault(txn, version)
        if lane is not None:
            lanes = self._messages.setdefault(txn, {})
            lanes[lane] = lanes.get(lane, 0) + messages

    def _note_taken(self, txn: int, version: int, item: Acknowledgement) -> None:
        if item.subscription != self._subscription:
            return
        taken = sum(end - start for part in item.ranges for start, end in part.ranges)
        for partition, end in item.cumulative:  # it takes off whatever the cursor passes
            taken += end - self._cursor.get(partition, 0)
            self._cursor[partition] = end
        self._note(txn, version, CURSOR_LANE, taken)

    def work(self) -> list[Work]:
        """All that is known so far."""
        found: list[Work] = []
        still_open: tuple[None, State] = (None, "OPEN")
        for txn, lanes in self._messages.items():
            last, state = self._ended.get(txn, still_open)
            found.extend(Work(lane, self._first[txn], last, state, count) for lane, count in lanes.items())
        return found


def _entry(entry: Entry) -> LogEntry:
    return LogEntry(entry.header.version, entry.header.timestamp_ms, _what(entry.actions))


def _what(actions: Iterable[AnyAction]) -> str:
    """The action that says most about an entry."""
    kinds = {type(action).__name__.lower() for action in actions}
    for kind in ("commit", "abort", "begin", "consumer", "producer", "topic", "subscription", "reserve"):
        if kind in kinds:
            return kind
    return ", ".join(sorted(kinds))


def _leftovers(ns: Namespace, topics: Iterable[str], named: dict[int, int]) -> Iterable[Leftover]:
    for topic in topics:
        seen: set[int] = set()
        for item in ns._connection.store.list(f"{topic}/"):
            key = parse_key(item.key)
            if isinstance(key, SegmentKey) and key.segment not in named and key.segment not in seen:
                seen.add(key.segment)
                yield Leftover(topic, item.modified_ms)


__all__ = ["CURSOR_LANE", "History", "Leftover", "LogEntry", "State", "Work", "read_history"]
