"""The entries of a log by themselves: the rules of PROTOCOL.md that hold between them, looked at without ``apply``.

The client applies entries with ``txnlog.fold.apply``, and refuses what does not follow. This says the same a second
time and in another way, so that an ``apply`` which lets something through does not vouch for itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from txnlog.format import actions as act
from txnlog.format.actions import Header
from txnlog.format.codec import Entry

_OF_TRANSACTIONS: Final = (act.Begin, act.Commit, act.Abort, act.Prepare, act.Acknowledge)
_OVER: Final = frozenset({"COMMITTED", "ABORTED"})


def check(entries: Iterable[Entry]) -> Iterator[str]:
    """What is wrong with a log, given whole and in order."""
    rules = _Rules()
    for entry in entries:
        for text in rules.entry(entry):
            yield f"entry {entry.header.version}: {text}"


class _Rules:
    """What has to be known of all entries before one."""

    def __init__(self) -> None:
        self._version = -1
        self._digest = ""
        self._time_ms = 0
        self._checkpoint = -1
        self._oldest = 0
        self._next_number = 0
        self._blocks: dict[int, int] = {}
        self._states: dict[int, str] = {}
        self._owners: dict[int, tuple[str, int | None]] = {}
        self._producers: dict[str, int] = {}
        self._subscriptions: dict[int, tuple[str, int]] = {}
        self._holders: dict[int, set[int]] = {}
        self._segments: dict[int, act.Segment] = {}
        self._replaced: set[int] = set()
        self._files: set[str] = set()
        self._starts: dict[tuple[int, int], int] = {}
        self._deleted: dict[tuple[int, int], int] = {}
        """By topic and partition how many rows may yet be left out by a merge: those below the earliest offset."""

    def entry(self, entry: Entry) -> Iterator[str]:
        """Check one more entry."""
        yield from self._header(entry.header)
        for action in entry.actions:
            if isinstance(action, act.Segment):
                yield from self._segment(action)
            elif isinstance(action, _OF_TRANSACTIONS):
                yield from self._transaction(action)
            elif isinstance(action, act.Reserve | act.Close):
                yield from self._block(action)
            elif isinstance(action, act.Replace):
                yield from self._replace(action)
            elif isinstance(action, act.DeleteRecords):
                yield from self._delete(action)
            elif isinstance(action, act.Vacuum):
                if not self._oldest < action.oldest_readable < entry.header.version:
                    yield f"the oldest readable version goes from {self._oldest} to {action.oldest_readable}"
                self._oldest = action.oldest_readable
            else:
                self._owner(action, entry.header.version)
        yield from _check_shares(entry)
        self._version, self._digest = entry.header.version, entry.digest

    def _header(self, header: Header) -> Iterator[str]:
        if header.version != self._version + 1 or header.previous != self._digest:
            yield f"does not continue entry {self._version}"
        if header.timestamp_ms < self._time_ms:
            yield f"time goes back from {self._time_ms} to {header.timestamp_ms}"
        named = -1 if header.checkpoint is None else header.checkpoint
        if not self._checkpoint <= named < header.version:
            yield f"names the checkpoint {named}, after {self._checkpoint}"
        self._time_ms, self._checkpoint = header.timestamp_ms, named

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _block(self, action: act.Reserve | act.Close) -> Iterator[str]:
        if isinstance(action, act.Reserve):
            if action.first != self._next_number:
                yield f"a block begins at {action.first}, the last one ends at {self._next_number}"
            self._blocks[action.first] = self._next_number = action.first + action.count
        elif self._blocks.pop(action.first, None) is None:
            yield f"closes the block at {action.first}, which is not open"

    def _new(self, number: int) -> Iterator[str]:
        if not any(first <= number < end for first, end in self._blocks.items()):
            yield f"the number {number} is new and lies in no open block"

    def _segment(self, action: act.Segment) -> Iterator[str]:
        if action.segment in self._segments or action.file in self._files:
            yield f"segment {action.segment} ({action.file}) was there before"
        yield from self._new(action.segment)
        self._segments[action.segment] = action
        self._files.add(action.file)
        if sum(item.rows for item in action.slices) > action.rows:
            yield f"the slices of segment {action.segment} have more than its {action.rows} rows"
        if action.txn is not None and self._states.get(action.txn) != "OPEN":
            yield f"segment {action.segment} is added to the transaction {action.txn}: {self._states.get(action.txn)}"

    def _replace(self, action: act.Replace) -> Iterator[str]:
        """What comes in has as many rows of each partition as what goes, which goes once, and was visible before."""
        if self._states.get(action.txn) != "OPEN":
            yield f"{action.txn} replaces segments and is {self._states.get(action.txn)}"
        rows: Counter[int] = Counter()
        widths: Counter[int] = Counter()
        for number in action.removed:
            gone = self._segments.get(number)
            if gone is None or number in self._replaced or gone.topic != action.topic:
                yield f"segment {number} is replaced and was not there"
                continue
            owner = gone.txn
            if owner is not None and self._states.get(owner) != "COMMITTED":
                yield f"segment {number} of {owner} is replaced, which is {self._states.get(owner)}"
            for item in gone.slices:
                rows[item.partition] += item.rows
                widths[item.partition] += _width(gone, item)
            self._replaced.add(number)
        has_holes = False
        for segment in self._segments.values():
            if segment.txn == action.txn:
                rows.subtract({item.partition: item.rows for item in segment.slices})
                widths.subtract({item.partition: _width(segment, item) for item in segment.slices})
                has_holes = has_holes or segment.extent is not None
        for partition, left in rows.items():
            if has_holes and left < 0:
                yield f"of partition {partition} {-left} rows more come in than go"
        for partition, left in widths.items():
            deleted = self._deleted.get((action.topic, partition), 0)
            if not 0 <= left <= deleted:
                yield f"of partition {partition} {left} offsets fewer come in than go, of which {deleted} were deleted"
            self._deleted[action.topic, partition] = deleted - left
        self._states[action.txn] = "COMMITTED"

    def _delete(self, action: act.DeleteRecords) -> Iterator[str]:
        """The earliest offsets only grow."""
        for partition, offset in action.before:
            place = (action.topic, partition)
            start = self._starts.get(place, 0)
            if offset <= start:
                yield f"the earliest offset of partition {partition} goes from {start} to {offset}"
            self._deleted[place] = self._deleted.get(place, 0) + offset - start
            self._starts[place] = offset

    # --- transactions -----------------------------------------------------------------------------------------------

    def _transaction(self, action: act.Begin | act.Commit | act.Abort | act.Prepare | act.Acknowledge) -> Iterator[str]:
        number, state = action.txn, self._states.get(action.txn)
        word = type(action).__name__.lower()
        if state in _OVER or (state == "PREPARED" and not isinstance(action, act.Commit | act.Abort)):
            yield f"{word} of the transaction {number}, which is {state}"
        if state == "PREPARED" and isinstance(action, act.Abort) and action.reason not in {"user", "admin"}:
            yield f"the transaction {number} is prepared, and ends by itself: {action.reason}"
        if isinstance(action, act.Begin | act.Commit) and state is None:
            yield from self._new(number)
            if action.producer is not None:
                self._owners[number] = (action.producer, action.epoch)
        elif isinstance(action, act.Begin) or (state is None and not isinstance(action, act.Abort)):
            yield f"{word} of the transaction {number}, which is {state}"
        if state != "PREPARED" and not isinstance(action, act.Abort):
            name, epoch = self._owners.get(number, ("", None))
            if self._producers.get(name) != epoch:
                yield f"{word} of {number} with epoch {epoch} of {name}, which has {self._producers.get(name)}"
            yield from self._acknowledgements(action)
        if not isinstance(action, act.Acknowledge):
            self._states[number] = _STATES[type(action)]

    def _acknowledgements(self, action: act.Begin | act.Commit | act.Prepare | act.Acknowledge) -> Iterator[str]:
        found = action.acknowledgements if isinstance(action, act.Commit) else ()
        if isinstance(action, act.Acknowledge):
            found = (action.acknowledgement,)
            self._holders.setdefault(action.acknowledgement.subscription, set()).add(action.txn)
        for item in found:
            known = self._subscriptions.get(item.subscription)
            if known is not None and known[1] != item.epoch:
                yield f"{action.txn} acknowledges with epoch {item.epoch} of {item.subscription}, which has {known[1]}"

    def _owner(self, action: act.AnyAction, version: int) -> None:
        """Note who has what from here on."""
        if isinstance(action, act.Subscription):
            self._subscriptions[version] = (action.type, version)
        elif isinstance(action, act.DropSubscription):
            self._subscriptions.pop(action.subscription, None)
        elif isinstance(action, act.Producer):
            self._producers[action.name] = version
            self._fence(number for number, (name, _) in self._owners.items() if name == action.name)
        elif isinstance(action, act.Consumer | act.Seek):
            kind, _ = self._subscriptions.get(action.subscription, ("", -1))
            if kind and (kind != "shared" or isinstance(action, act.Seek)):
                self._subscriptions[action.subscription] = (kind, version)
                self._fence(self._holders.pop(action.subscription, ()))

    def _fence(self, numbers: Iterable[int]) -> None:
        """What was open is aborted, and what was prepared stays."""
        for number in list(numbers):
            if self._states.get(number) == "OPEN":
                self._states[number] = "ABORTED"


def _check_shares(entry: Entry) -> Iterator[str]:
    """The commits of an entry claim all rows of its shared segments."""
    left: Counter[tuple[int, int]] = Counter()
    for action in entry.actions:
        if isinstance(action, act.Segment) and action.txn is None:
            for own in action.slices:
                left[action.segment, own.partition] += own.rows
        elif isinstance(action, act.Commit):
            for share in action.shares:
                left[share.segment, share.partition] -= share.rows
    for (segment, partition), rows in left.items():
        if rows:
            yield f"of segment {segment}, partition {partition}, {rows} rows are nobody's"


_STATES: Final[dict[type, str]] = {
    act.Begin: "OPEN",
    act.Commit: "COMMITTED",
    act.Abort: "ABORTED",
    act.Prepare: "PREPARED",
}


def _width(segment: act.Segment, item: act.SliceRows) -> int:
    """How many offsets a slice stands for."""
    return item.rows if segment.extent is None else segment.extent


__all__ = ["check"]
