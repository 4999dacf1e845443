"""Bringing entries back from a copy: those that the entry behind them names, and no others.

What names an entry is the digest in the header of the next one, which is there: so nobody else's entry can belong into
its slot, whatever a writer that paused may put there. Nothing names the newest entry, nor what stood behind it.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from txnlog.errors import CorruptionError, Durable, InvalidInputError, TxnLogError, UnsupportedFeature
from txnlog.format import keys
from txnlog.format.actions import Adopt
from txnlog.format.codec import Entry, decode_entry, digest_of
from txnlog.log.log_reader import NO_ENTRIES, Log
from txnlog.maintenance.backup_folder import versions_in_waves
from txnlog.maintenance.fsck.entries import find_slots
from txnlog.maintenance.fsck.findings import PAGE, Findings, all_attempted
from txnlog.maintenance.repair.work import FROM_COPY, Copy, Kept, LeftError, Work
from txnlog.store.base import ObjectNotFound

_COMPARED: Final = 3
"""Entries that are compared with the copy's, to see whether it is of this log: the first one may be damaged there."""


class _Lost(NamedTuple):
    """An entry that the copy has, and the digest by which the next one names it."""

    version: int
    digest: str


def repair_entries(work: Work) -> None:
    """Bring back the entries that are missing or damaged, as far as they are proven.

    Raises InvalidInputError where the copy is of another log, NamespaceNotFound where there is no log.
    """
    log = Log(work.store, work.runtime)
    last = find_slots(log, work.runtime, Findings(None)).version
    if work.copy is None:
        return
    _check_copy(work, work.copy, log, last)
    for version, digest in _lost(work, work.copy, log, last):  # the newest first: each is there when it proves the next
        key = keys.entry_key(version)
        work.attempt("entry", key, FROM_COPY, partial(_bring_back, work, work.copy, log, version, digest))
    _compare_ends(work, work.copy, log, last)


def _compare_ends(work: Work, copy: Copy, log: Log, last: int) -> None:
    """Warn where the copy ends otherwise: nothing in this log says so, and nothing says which of the two is right."""
    newest, behind = _decoded(_got(log, last), last), _decoded(_bytes_in(copy, last + 1), last + 1)
    other = _decoded(_bytes_in(copy, last), last)
    if newest is None or _got(log, last + 1) is not None:
        return
    if other is not None and other.digest != newest.digest:
        version, what, then = last, f"entry {last}, the newest one, is another one in the copy", "this one is damaged"
    elif behind is not None and behind.header.previous == newest.digest and not _is_adopted(behind):
        version, what, then = last + 1, f"the log ends at version {last}, and the copy goes on behind it", "it is lost"
    else:
        return
    work.warn(
        "entry",
        keys.entry_key(version),
        f"{what}: nothing here says which of the two is right",
        f"if nobody has written to the copy by itself, {then} here: see to it that nobody writes, and bring "
        f"{keys.entry_key(version)} from the copy; {PAGE} says more",
    )


def _is_adopted(entry: Entry) -> bool:
    return any(isinstance(action, Adopt) for action in entry.actions)


def _bring_back(work: Work, copy: Copy, log: Log, version: int, digest: str) -> None:
    key = keys.entry_key(version)
    data = copy.take(key, partial(_check_digest, digest))
    kept = work.put_in_place(key, data, partial(_check_named, log, version, digest))
    _warn_of_another(work, version, data, kept)


def _warn_of_another(work: Work, version: int, data: bytes, kept: Kept | None) -> None:
    """Warn where a writer had put an entry of its own into the gap, before the newer entries came back."""
    other, right = None if kept is None else _decoded(kept.data, version), _decoded(data, version)
    if kept is None or other is None or right is None or other.header.writer == right.header.writer:
        return
    work.warn(
        "entry",
        kept.key,
        f"entry {version} was replaced by the one of the log; another client had put its own there after the loss",
        f"if that client reported success, what it wrote is in {kept.key} only, and must be done again",
    )


def _check_named(log: Log, version: int, digest: str) -> None:
    """Raise LeftError where the next entry names another one by now: somebody restored the namespace, for instance."""
    following = _decoded(_got(log, version + 1), version + 1)
    if following is None or following.header.previous != digest:
        raise LeftError("the entry behind it is another one by now, or cannot be read")


def _got(log: Log, version: int) -> bytes | None:
    """What is in a slot; None where there is nothing, or it cannot be read, which the check reports."""
    try:
        return log.get(version)
    except TxnLogError:
        return None


def _check_digest(digest: str, data: bytes) -> None:
    if digest_of(data) != digest:
        raise CorruptionError("its digest is another one")


def _check_copy(work: Work, copy: Copy, log: Log, last: int) -> None:
    """Raise InvalidInputError unless the copy has entries of this log.

    An entry that both have proves all before it. Where the first ones are missing here, the next one names the last of
    them.
    """
    compared = 0
    for wave in versions_in_waves(0, last):
        for version, data in zip(wave, all_attempted(work.runtime, log.reads(wave, NO_ENTRIES)), strict=True):
            entry = _decoded(data, version)
            if entry is None:
                continue
            if _digest_in(copy, version) == entry.digest:
                return
            if version and _digest_in(copy, version - 1) == entry.header.previous:
                return
            compared += 1
            if compared == _COMPARED:
                break
        if compared == _COMPARED:
            break
    why = "its log begins otherwise" if _digest_in(copy, 0) is not None else "it has no first entry of a log"
    raise InvalidInputError(
        f"the source {copy.url} is no copy of this namespace: {why}",
        advice="name the folder of a backup of this namespace, or another copy of it",
        durable=Durable.NOTHING,
    )


def _digest_in(copy: Copy, version: int) -> str | None:
    data = _bytes_in(copy, version)
    return None if data is None else digest_of(data)


def _bytes_in(copy: Copy, version: int) -> bytes | None:
    try:
        return copy.store.get(keys.entry_key(version))
    except (ObjectNotFound, TxnLogError):
        return None  # another one of the copy may prove as much; an entry that is needed is asked for again


def _lost(work: Work, copy: Copy, log: Log, last: int) -> list[_Lost]:
    """The entries to bring back, newest first: the next one of each is whole, or is to be brought back itself."""
    found: list[_Lost] = []
    named = ""
    waves = list(versions_in_waves(0, last))
    for done, wave in enumerate(reversed(waves)):
        read = all_attempted(work.runtime, log.reads(wave, NO_ENTRIES))
        for version, data in reversed(list(zip(wave, read, strict=True))):
            named = _named_below(work, copy, version, data, named, found)
        work.show("entry", min(last + 1, (done + 1) * len(waves[0])), last + 1)
    return found


def _named_below(
    work: Work,
    copy: Copy,
    version: int,
    data: bytes | TxnLogError | ObjectNotFound | None,
    named: str,
    found: list[_Lost],
) -> str:
    """Judge what is in a slot by the digest that the next entry names; "" for none. Returns the one named below."""
    entry = _decoded(data, version)
    if isinstance(data, bytes) and named == digest_of(data):
        return "" if entry is None else entry.header.previous
    key = keys.entry_key(version)
    if not named:
        if entry is None:
            work.leave(key, "nothing that is left here names it, so it is not brought back from the copy")
            return ""
        return entry.header.previous
    try:
        proven = _decoded(copy.take(key, partial(_check_digest, named)), version)
    except LeftError as error:
        work.leave(key, str(error))
        return "" if entry is None else entry.header.previous
    found.append(_Lost(version, named))
    return "" if proven is None else proven.header.previous


def _decoded(data: object, version: int) -> Entry | None:
    """The entry in a slot; None where there is none, or none that can be read."""
    try:
        return decode_entry(data, version) if isinstance(data, bytes) else None
    except (CorruptionError, UnsupportedFeature):
        return None


__all__ = ["repair_entries"]
