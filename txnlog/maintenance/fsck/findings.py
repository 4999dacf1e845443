"""What a check has found so far, and how much it has looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from txnlog.engine.runtime import Runtime
from txnlog.errors import TxnLogError
from txnlog.results import CheckLevel, Finding, FindingKind, FsckReport, Severity
from txnlog.store.base import ObjectNotFound

T = TypeVar("T")

Progress = Callable[[str, int, int], object]
"""Called with the kind of objects at work, those looked at so far, and those there are, as far as is known."""

PAGE: Final = "docs/operations/damage.md"
"""The page that says of each kind of damage what it affects, and what to do."""

_MOST_FINDINGS: Final = 100
"""Findings of one severity and kind that are kept: of a folder that was moved away every file is missing."""

_ORDER: Final[tuple[Severity, ...]] = ("damage", "unchecked", "warning", "note")


class Findings:
    """What was found, each object once for a severity, and counts of what was looked at."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._found: dict[tuple[Severity, FindingKind, str], Finding] = {}
        self._counts: Counter[tuple[Severity, FindingKind]] = Counter()
        self._checked: Counter[str] = Counter()

    def add(self, severity: Severity, kind: FindingKind, key: str, message: str, advice: str) -> None:
        """Add a finding; ``key`` names the object, of a transaction its TxnID."""
        if (severity, kind, key) in self._found:
            return
        self._counts[severity, kind] += 1
        if self._counts[severity, kind] <= _MOST_FINDINGS:
            self._found[severity, kind, key] = Finding(severity, kind, key, message, advice)

    def unread(self, kind: FindingKind, key: str, error: TxnLogError) -> None:
        """Add that nothing is known of an object, because the store did not return it."""
        self.add("unchecked", kind, key, f"{key} could not be checked: {error.message}", error.advice)

    def looked_at(self, kind: str, count: int = 1, of: int | None = None) -> None:
        """Count objects that were looked at; ``of``: how many there are."""
        self._checked[kind] += count
        if self._progress is not None and of is not None:
            self._progress(kind, self._checked[kind], of)

    def report(self, version: int, level: CheckLevel) -> FsckReport:
        """All of it: what is worst comes first."""
        found = list(self._found.values())
        for (severity, kind), count in self._counts.items():
            if count > _MOST_FINDINGS:
                more = f"{count - _MOST_FINDINGS:,} more findings of this kind are not listed"
                found.append(Finding(severity, kind, "", more, "see to the listed ones first, then check again"))
        found.sort(key=lambda item: _ORDER.index(item.severity))
        return FsckReport(version, level, dict(self._checked), tuple(found))


def attempted(call: Callable[[], T]) -> T | TxnLogError | ObjectNotFound:
    """What a call returns, or the error of the store, or of what it read, that it raised."""
    try:
        return call()
    except (TxnLogError, ObjectNotFound) as error:
        return error


def all_attempted(runtime: Runtime, calls: Sequence[Callable[[], T]]) -> list[T | TxnLogError | ObjectNotFound]:
    """``attempted`` for independent requests, side by side: none of them ends the others."""
    return runtime.run_all([partial(attempted, call) for call in calls])


__all__ = ["PAGE", "Findings", "Progress", "all_attempted", "attempted"]
