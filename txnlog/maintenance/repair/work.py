"""What all steps of a repair have in common: the store, the copy to take objects from, and what was done so far."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final

from txnlog.common.validation import shortened
from txnlog.engine.log_lines import LogLines
from txnlog.engine.runtime import Runtime
from txnlog.errors import (
    CorruptionError,
    Durable,
    InvalidInputError,
    OutcomeUnknown,
    TxnLogError,
    UnsupportedFeature,
)
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.log.slots import occupy
from txnlog.maintenance.fsck.findings import Progress, attempted
from txnlog.replies import note_written
from txnlog.results import FsckReport, Repaired, RepairedObject, RepairKind, Severity
from txnlog.store.base import ObjectNotFound, Store

_logger = LogLines("txnlog.repair")

FROM_COPY: Final = "brought back from the copy"

_CHECKED: Final[frozenset[RepairKind]] = frozenset({"entry", "segment", "checkpoint"})
"""What a check finds out about, where nobody knows whether it was put."""

_ORDER: Final[tuple[Severity | None, ...]] = ("damage", "unchecked", "warning", None)


class LeftError(Exception):
    """An object stays as it is; the text says why, such as that the copy does not have what is wanted."""


class Copy:
    """A copy of the namespace: the folder of a backup, or any other folder with the same keys. It is only read."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def address(self) -> str:
        """The folder's address."""
        return _address(self.store)

    @property
    def url(self) -> str:
        """The same for a message."""
        return shortened(self.address)

    def check_apart(self, store: Store) -> None:
        """Raise InvalidInputError where it is the namespace itself."""
        if self.address == _address(store):
            raise InvalidInputError(
                f"the source {self.url} is the namespace itself",
                advice="name a copy of it: the folder of a backup, or another copy",
                durable=Durable.NOTHING,
            )

    def take(self, key: str, check: Callable[[bytes], object]) -> bytes:
        """The bytes of an object, once ``check`` accepts them: it raises CorruptionError for others.

        Raises LeftError.
        """
        try:
            data = self.store.get(key)
            check(data)
        except ObjectNotFound:
            raise LeftError("the copy does not have it") from None
        except (CorruptionError, UnsupportedFeature) as error:
            raise LeftError(f"what the copy has is not what the log names: {error.message}") from None
        except TxnLogError as error:
            raise LeftError(f"the copy could not be read: {error.message}") from None
        return data


def _address(store: Store) -> str:
    key = keys.entry_key(0)
    url = store.url(key)
    return (url if "://" in url else os.path.realpath(url)).removesuffix(f"/{key}")


class Work:
    """One repair.

    Attributes:
        store: the objects of the namespace; of a repair that is only foreseen, as they would be.
        runtime: of whoever repairs.
        copy: where objects may come from; None for nowhere.
        dry_run: whether the repair is only foreseen.
    """

    def __init__(
        self, store: Store, runtime: Runtime, copy: Copy | None, progress: Progress | None, *, dry_run: bool
    ) -> None:
        self.store = store
        self.runtime = runtime
        self.copy = copy
        self.dry_run = dry_run
        self._progress = progress
        self._done: dict[str, RepairedObject] = {}
        self._why: dict[str, str] = {}
        self._left: dict[str, RepairedObject] = {}
        self._unknown: set[str] = set()
        """Objects of which nobody knows whether they were put: a check behind it finds out."""

    @property
    def has_written(self) -> bool:
        """Whether anything was put, or may have been."""
        return bool(self._done or self._unknown)

    def show(self, what: str, done: int, known: int) -> None:
        """Show how far it has come."""
        if self._progress is not None:
            self._progress(what, done, known)

    def begin_writing(self) -> None:
        """Note for the caller that something is about to be written. Where threads do it, before they begin."""
        if not self.dry_run:
            note_written()

    def attempt(self, kind: RepairKind, key: str, done: str, step: Callable[[], object]) -> bool:
        """Carry out what repairs one object, and note that it was done, or why not: others are repaired all the same.

        A step raises LeftError where the object stays as it is. Returns whether it was repaired.
        """
        self.begin_writing()
        try:
            step()
        except LeftError as error:
            self.leave(key, str(error))
        except TxnLogError as error:
            if error.durable is not Durable.NOTHING and kind in _CHECKED:
                self._unknown.add(key)
            self.fail(kind, key, error)
        else:
            self.note(kind, key, done)
            return True
        return False

    def note(self, kind: RepairKind, key: str, done: str) -> None:
        """Note that an object was repaired."""
        self._done[key] = RepairedObject(kind, key, done, "", None, "")

    def fail(self, kind: RepairKind, key: str, error: TxnLogError) -> None:
        """Note why an object could not be repaired."""
        _logger.warning("%s was not repaired: %s", key, error.message)
        severity: Severity = "damage" if isinstance(error, CorruptionError) else "unchecked"
        self.warn(kind, key, f"{key} could not be repaired: {error.message}", error.advice, severity)

    def warn(self, kind: RepairKind, key: str, left: str, advice: str, severity: Severity = "warning") -> None:
        """Note what is left of an object, and what no check can find."""
        self._left[key] = RepairedObject(kind, key, "", left, severity, advice)

    def leave(self, key: str, why: str) -> None:
        """Note why an object stays as it is."""
        self._why[key] = why

    def take_back(self, kind: RepairKind, key: str, why: str) -> None:
        """Delete what was put: it turned out that nobody wants it any more."""
        self._done.pop(key, None)
        try:
            self.store.delete(key)
        except TxnLogError as error:
            self.fail(kind, key, error)
        else:
            self.leave(key, why)

    def put_in_place(self, key: str, data: bytes, check: Callable[[], object]) -> None:
        """Put an object of the log where it is missing, or in place of other bytes, which are kept if they can be read.

        The slot is never free in between: a put replaces an object as a whole. ``check`` raises LeftError where it does
        not belong there any more: it is asked right before each put. LeftError also where it is there already.
        """
        if attempted(partial(self.store.get, key)) == data:
            raise LeftError("it is there, and was only not read")
        check()
        try:
            found = occupy(self.store, self.runtime, key, data)
        except OutcomeUnknown:
            _logger.warning("%s is there, and cannot be read: it is replaced, and not kept", key)
        else:
            if found == data:
                return
            occupy(self.store, self.runtime, keys.replaced_key(key, digest_of(found)), found)
        check()
        self.store.put(key, data)

    def result(self, report: FsckReport) -> Repaired:
        """All of it, with what a check found afterwards."""
        reported = {item.key for item in report.findings}
        left = [item for item in self._left.values() if item.key in reported or item.key not in self._unknown]
        found = [*self._done.values(), *left]
        for item in report.findings:
            if item.severity != "note":
                why = f"; {self._why[item.key]}" if item.key in self._why else ""
                found.append(
                    RepairedObject(item.kind, item.key, "", f"{item.message}{why}", item.severity, item.advice)
                )
        found.sort(key=lambda item: _ORDER.index(item.severity))
        return Repaired(report.version, self.dry_run, tuple(found))


__all__ = ["FROM_COPY", "Copy", "LeftError", "Work"]
