"""Checking the entries of a log: that none is missing, and that each is the one that the next one continues."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from txnlog.common import ranges
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.common.ranges import Range, Ranges
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, Durable, NamespaceNotFound, TxnLogError, UnsupportedFeature
from txnlog.format import keys
from txnlog.format.codec import Entry, decode_entry, digest_of
from txnlog.log.log_reader import NO_ENTRIES, SLOTS_AT_ONCE, Log
from txnlog.maintenance.fsck.findings import PAGE, Findings, all_attempted
from txnlog.sentences import Argument, Call, Words
from txnlog.store.base import ObjectNotFound

_MOST_CONFIRMED: Final = 1_000
"""Slots that a listing lacks, and that are asked for by name: where more are missing, a whole folder is."""

_CONFIRM_MS: Final = 250
"""A cache of names may be behind for a moment: so long a slot is given before it is asked for again."""

_AHEAD: Final = 2
"""Entries behind one that say whether it, or the one behind it, is damaged."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The newest version of a log, and the slots below it that are free, which were reported."""

    version: int
    missing: Ranges


def find_slots(log: Log, runtime: Runtime, findings: Findings) -> Slots:
    """The newest version of a log, and what is missing below it. Raises NamespaceNotFound where there is no entry."""
    try:
        there = _listed(log, runtime)
    except TxnLogError as error:
        findings.unread("entry", keys.LOG_FOLDER, error)
        return Slots(log.newest()[0], ranges.EMPTY)
    if not there and not log.exists():
        raise NamespaceNotFound(
            f"there is no log in the folder of {log.store.url(keys.entry_key(0))}",
            advice="look whether the folder was removed or moved",
            durable=Durable.NOTHING,
        )
    version = there[-1][1] - 1 if there else 0
    while more := log.get_many(version + 1, SLOTS_AT_ONCE):  # a listing may be behind
        there = ranges.union(there, ((version + 1, version + 1 + len(more)),))
        version += len(more)
        if len(more) < SLOTS_AT_ONCE:
            break
    missing = _confirmed(log, runtime, ranges.subtract(((0, version + 1),), there))
    for first, end in missing:
        _report_missing(findings, first, end)
    try:
        log.check_end(version, whole=True)
    except CorruptionError as error:
        findings.add("damage", "entry", keys.entry_key(version + 1), error.message, error.advice)
    except TxnLogError as error:
        findings.unread("entry", keys.LOG_FOLDER, error)
    findings.looked_at("slot", version + 1)
    return Slots(version, missing)


def _listed(log: Log, runtime: Runtime) -> Ranges:
    """The versions that listings of the log's folders show, up to a folder that is empty."""
    found: list[Range] = []
    first = 0
    while True:
        wave = range(first, first + (PARALLEL_REQUESTS if first else 1))
        folders = runtime.run_all([partial(_listed_in, log, number) for number in wave])
        found += [item for folder in folders for item in folder]
        if not folders[-1]:
            return ranges.normalize(found)
        first = wave.stop


def _listed_in(log: Log, folder: int) -> Ranges:
    parsed = (keys.parse_key(info.key) for info in log.store.list(keys.entries_prefix(folder)))
    return ranges.from_values(key.version for key in parsed if isinstance(key, keys.EntryKey))


def _confirmed(log: Log, runtime: Runtime, missing: Ranges) -> Ranges:
    """Those of some slots that are free also when they are asked for: no listing proves that something is missing."""
    for pause_ms in (0, _CONFIRM_MS):
        if pause_ms and missing:
            runtime.sleep_ms(pause_ms)
        asked = list(islice((version for first, end in missing for version in range(first, end)), _MOST_CONFIRMED))
        found = runtime.run_all(log.reads(asked, NO_ENTRIES))
        there = [version for version, data in zip(asked, found, strict=True) if data is not None]
        missing = ranges.subtract(missing, ranges.from_values(there))
    return missing


def _report_missing(findings: Findings, first: int, end: int) -> None:
    which = f"entry {first} is" if end == first + 1 else f"the entries {first} to {end - 1} are"
    it = keys.entry_key(first) if end == first + 1 else f"{keys.entry_key(first)} to {keys.entry_key(end - 1)}"
    findings.add(
        "damage",
        "entry",
        keys.entry_key(first),
        f"{which} missing below the tail of the log",
        Words("write and delete nothing; ", _restore(it)),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slot:
    """What is in a slot.

    Attributes:
        entry: None where there is none, or it cannot be decoded.
        digest: of its bytes.
        error: why there is no entry; None where the slot is free.
        is_bad: whether it was reported.
    """

    version: int
    entry: Entry | None = None
    digest: str = ""
    error: TxnLogError | None = None
    is_bad: bool = field(default=False)

    @property
    def key(self) -> str:
        return keys.entry_key(self.version)


def judged(
    log: Log, runtime: Runtime, findings: Findings, first: int, last: int, slots: Slots
) -> Iterator[tuple[int, Entry | None]]:
    """The entries from ``first`` to ``last`` in their order; None for one that is missing or damaged, once reported.

    The hash chain shows what still decodes: an entry is damaged if the next one continues another, and is itself the
    one that its own successor continues.
    """
    reads = _read(log, runtime, range(first, min(last + _AHEAD, slots.version) + 1))
    window: deque[_Slot] = deque()
    while True:
        while len(window) <= _AHEAD and (slot := next(reads, None)) is not None:
            window.append(slot)
        if not window or window[0].version > last:
            return
        _judge(list(window), findings, slots.missing)
        slot = window.popleft()
        findings.looked_at("entry", of=slots.version + 1)
        yield slot.version, None if slot.is_bad else slot.entry


def _read(log: Log, runtime: Runtime, versions: Sequence[int]) -> Iterator[_Slot]:
    for start in range(0, len(versions), SLOTS_AT_ONCE):
        wave = versions[start : start + SLOTS_AT_ONCE]
        found = all_attempted(runtime, log.reads(wave, NO_ENTRIES))
        yield from (_decoded(version, data) for version, data in zip(wave, found, strict=True))


def _decoded(version: int, data: bytes | TxnLogError | ObjectNotFound | None) -> _Slot:
    if data is None or isinstance(data, ObjectNotFound):
        return _Slot(version)
    if isinstance(data, TxnLogError):
        return _Slot(version, error=data)
    try:
        entry = decode_entry(data, version)
    except (CorruptionError, UnsupportedFeature) as error:
        return _Slot(version, digest=digest_of(data), error=error)
    return _Slot(version, entry, entry.digest)


def _judge(window: Sequence[_Slot], findings: Findings, missing: Ranges) -> None:
    """Report what is wrong with the first slot, or with the second one where that is why the first seems wrong."""
    one, *behind = window
    if one.is_bad:
        return
    successor = behind[0].entry if behind else None
    if one.entry is None:
        _report_unreadable(one, successor, findings, missing)
        return
    if successor is None or successor.header.previous == one.digest:
        return
    third = behind[1].entry if len(behind) > 1 else None
    if third is not None and third.header.previous == successor.digest:
        _report_damaged(one, f"it is not the one that entry {one.version + 1} continues", findings)
    elif third is not None:
        _report_damaged(
            behind[0],
            f"neither does it continue entry {one.version}, nor entry {third.header.version} continue it",
            findings,
        )
    else:
        # Nothing behind it says which of the two is damaged.
        _report_damaged(
            behind[0],
            f"it does not continue entry {one.version}; one of the two is damaged",
            findings,
            also=f" and {one.key}",
        )
        one.is_bad = True


def _report_unreadable(slot: _Slot, successor: Entry | None, findings: Findings, missing: Ranges) -> None:
    slot.is_bad = True
    error = slot.error
    if error is None:
        if not ranges.contains(missing, slot.version):
            _report_missing(findings, slot.version, slot.version + 1)
    elif isinstance(error, UnsupportedFeature) and (successor is None or successor.header.previous == slot.digest):
        # Only a newer txnlog can say whether it is right.
        findings.unread("entry", slot.key, error)
    elif isinstance(error, CorruptionError | UnsupportedFeature):
        findings.add("damage", "entry", slot.key, error.message, _restore(slot.key))
    else:
        findings.unread("entry", slot.key, error)


def _report_damaged(slot: _Slot, why: str, findings: Findings, also: str = "") -> None:
    slot.is_bad = True
    findings.add("damage", "entry", slot.key, f"entry {slot.version} is damaged: {why}", _restore(f"{slot.key}{also}"))


def _restore(what: str) -> str:
    return Words(
        f"restore {what} from a copy: ",
        Call("repair", Argument("source", ...)),
        f"; {PAGE} says what is affected without one",
    )


__all__ = ["Slots", "find_slots", "judged"]
