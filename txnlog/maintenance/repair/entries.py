"""Bringing entries back from a copy: those that the entry behind them names, and no others.

What names an entry is the digest in the header of the next one, which is there: so nobody else's entry can belong into
its slot, whatever a writer that paused may put there. Nothing names the newest entry, nor what stood behind it.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import msgspec

from txnlog.errors import CorruptionError, Durable, InvalidInputError, TxnLogError, UnsupportedFeature
from txnlog.format import keys
from txnlog.format.actions import Adopt
from txnlog.format.codec import Entry, decode_entry, digest_of
from txnlog.log.log_reader import NO_ENTRIES, Log
from txnlog.maintenance.backup_folder import versions_in_waves
from txnlog.maintenance.fsck.entries import find_slots
from txnlog.maintenance.fsck.findings import PAGE, Findings, all_attempted, attempted
from txnlog.maintenance.repair.work import FROM_COPY, Copy, LeftError, Work
from txnlog.store.base import ObjectNotFound

_COMPARED: Final = 3
"""Entries that are compared with the copy's, to see whether it is of this log: the first one may be damaged there."""


class _Anchor(NamedTuple):
    """An entry that is there: it says by the hash chain what all entries before it were."""

    version: int
    digest: str


class _Lost(NamedTuple):
    """An entry that the copy has, the digest by which the next one names it, and the anchor that proves both."""

    version: int
    digest: str
    anchor: _Anchor


def repair_entries(work: Work) -> None:
    """Bring back the entries that are missing or damaged, as far as they are proven.

    Raises InvalidInputError where the copy is of another log, NamespaceNotFound where there is no log.
    """
    log = Log(work.store, work.runtime)
    last = find_slots(log, work.runtime, Findings(None)).version
    if work.copy is None:
        return
    _check_copy(work, work.copy, log, last)
    for lost in reversed(_lost(work, work.copy, log, last)):
        key = keys.entry_key(lost.version)
        work.attempt("entry", key, FROM_COPY, partial(_bring_back, work, work.copy, log, lost))
    _compare_ends(work, work.copy, log, last)


def report_replaced(work: Work) -> None:
    """Warn of entries that other clients had put where an entry was lost, and that this or an earlier repair replaced.

    By what is kept, so that no answer that was lost, and no process that ended, hides one.
    """
    log = Log(work.store, work.runtime)
    try:
        there = list(work.store.list(keys.REPLACED_FOLDER))
    except TxnLogError as error:
        work.fail("entry", keys.REPLACED_FOLDER, error)
        return
    for info in there:
        key = keys.parse_key(info.key)
        of = keys.parse_key(key.key) if isinstance(key, keys.ReplacedKey) else None
        if not isinstance(of, keys.EntryKey):
            continue
        kept = _decoded(attempted(partial(work.store.get, info.key)), of.version)
        right = _decoded(_got(log, of.version), of.version)
        if kept is not None and right is not None and _is_of_another(kept, right):
            takes = "would take" if work.dry_run else "takes"
            work.warn(
                "entry",
                info.key,
                f"entry {of.version} of the log {takes} the place of one that another client had put there after the "
                f"loss; that one is kept as {info.key}",
                "if that client reported success, what it wrote is in this file only, and must be done again; delete "
                "the file when that is settled",
            )


def _is_of_another(kept: Entry, right: Entry) -> bool:
    """Whether another client wrote it: where all else is the same, a damaged byte of the id is all that differs."""
    same = msgspec.structs.replace(kept.header, writer=right.header.writer) == right.header
    return kept.header.writer != right.header.writer and not (same and kept.actions == right.actions)


def _compare_ends(work: Work, copy: Copy, log: Log, last: int) -> None:
    """Warn where the copy ends otherwise: nothing in this log says so, and nothing says which of the two is right."""
    newest = _decoded(_got(log, last), last)
    if newest is None or _got(log, last + 1) is not None:
        return
    found = [attempted(partial(copy.store.get, keys.entry_key(version))) for version in (last, last + 1)]
    for error in found:
        if isinstance(error, TxnLogError):
            key = keys.entry_key(last)
            work.warn(
                "entry",
                key,
                f"whether the copy has another entry {last}, or goes on behind it, is not known: {error.message}",
                error.advice,
                "unchecked",
            )
            return
    other, behind = _decoded(found[0], last), _decoded(found[1], last + 1)
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


def _bring_back(work: Work, copy: Copy, log: Log, lost: _Lost) -> None:
    key = keys.entry_key(lost.version)
    data = copy.take(key, partial(_check_digest, lost.digest))
    work.put_in_place(key, data, partial(check_of_log, log, *lost.anchor))


def check_of_log(log: Log, version: int, digest: str) -> None:
    """Raise LeftError unless an entry is the one by which something was decided.

    Somebody may have abandoned the folder and restored it meanwhile, for instance.
    """
    data = _got(log, version)
    if data is None or digest_of(data) != digest:
        raise LeftError(f"entry {version}, which says what it was, is another one by now, or cannot be read")


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
    """Raise InvalidInputError unless the copy has entries of this log, or the error for which that is not known.

    An entry that both have proves all before it. Where the first ones are missing here, the next one names the last of
    them.
    """
    compared = 0
    unread: list[TxnLogError] = []

    def digest_in(version: int) -> str | None:
        found = attempted(partial(copy.store.get, keys.entry_key(version)))
        if isinstance(found, TxnLogError):
            unread.append(found)
        return digest_of(found) if isinstance(found, bytes) else None

    for wave in versions_in_waves(0, last):
        for version, data in zip(wave, all_attempted(work.runtime, log.reads(wave, NO_ENTRIES)), strict=True):
            entry = _decoded(data, version)
            if entry is None:
                continue
            if digest_in(version) == entry.digest:
                return
            if version and digest_in(version - 1) == entry.header.previous:
                return
            compared += 1
            if compared == _COMPARED:
                break
        if compared == _COMPARED:
            break
    begins = digest_in(0) is not None
    if unread:
        raise unread[0]
    why = "its log begins otherwise" if begins else "it has no first entry of a log"
    raise InvalidInputError(
        f"the source {copy.url} is no copy of this namespace: {why}",
        advice="name the folder of a backup of this namespace, or another copy of it",
        durable=Durable.NOTHING,
    )


def _lost(work: Work, copy: Copy, log: Log, last: int) -> list[_Lost]:
    """The entries to bring back, newest first: the next one of each is whole, or is to be brought back itself."""
    search = _Search(work, copy)
    waves = list(versions_in_waves(0, last))
    for done, wave in enumerate(reversed(waves)):
        read = all_attempted(work.runtime, log.reads(wave, NO_ENTRIES))
        for version, data in reversed(list(zip(wave, read, strict=True))):
            search.look_at(version, data)
        work.show("entry", min(last + 1, (done + 1) * len(waves[0])), last + 1)
    return search.found


class _Search:
    """Goes through the slots of a log from the newest one down, and judges each by what the next entry names.

    Attributes:
        found: the entries to bring back, newest first.
    """

    def __init__(self, work: Work, copy: Copy) -> None:
        self._work = work
        self._copy = copy
        self._named = ""  # the digest that the entry behind names; none where nothing is known
        self._anchor = _Anchor(-1, "")
        self.found: list[_Lost] = []

    def look_at(self, version: int, data: bytes | TxnLogError | ObjectNotFound | None) -> None:
        """Judge what is in a slot."""
        entry = _decoded(data, version)
        if isinstance(data, bytes) and (digest_of(data) == self._named or not self._named) and entry is not None:
            self._anchor = _Anchor(version, entry.digest)
            self._named = entry.header.previous
        elif isinstance(data, bytes) and digest_of(data) == self._named:
            self._named = ""  # right, and only a newer txnlog can read it
        elif not self._named:
            self._work.leave(keys.entry_key(version), "nothing that is left here names it")
        else:
            self._bring_back(version, entry)

    def _bring_back(self, version: int, entry: Entry | None) -> None:
        key = keys.entry_key(version)
        try:
            proven = _decoded(self._copy.take(key, partial(_check_digest, self._named)), version)
        except LeftError as error:
            self._work.leave(key, str(error))
            self._named = "" if entry is None else entry.header.previous
            if entry is not None:
                self._anchor = _Anchor(version, entry.digest)
            return
        self.found.append(_Lost(version, self._named, self._anchor))
        self._named = "" if proven is None else proven.header.previous


def _decoded(data: object, version: int) -> Entry | None:
    """The entry in a slot; None where there is none, or none that can be read."""
    try:
        return decode_entry(data, version) if isinstance(data, bytes) else None
    except (CorruptionError, UnsupportedFeature):
        return None


__all__ = ["check_of_log", "repair_entries", "report_replaced"]
