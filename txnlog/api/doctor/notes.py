"""What a doctor writes down: what was seen, and what was found."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Final

from txnlog.results import DoctorFinding, DoctorKind, DoctorSeverity
from txnlog.sentences import Either, Words

MOST_OF_A_KIND: Final = 20
"""Findings of one kind: nobody reads the names of 10,000 topics."""


class Notes:
    """Collects what is seen and found.

    Attributes:
        seen: by what was looked at, what was seen there.
    """

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self._findings: list[DoctorFinding] = []
        self._counts: Counter[DoctorKind] = Counter()

    def warn(self, kind: DoctorKind, about: str, message: str, advice: str, command: str | None = None) -> None:
        """Note that all works, and that something should be done all the same."""
        self._add("warning", kind, about, message, advice, command)

    def complain(self, kind: DoctorKind, about: str, message: str, advice: str, command: str | None = None) -> None:
        """Note that something does not work, or will not."""
        self._add("problem", kind, about, message, advice, command)

    def _add(
        self, severity: DoctorSeverity, kind: DoctorKind, about: str, message: str, advice: str, command: str | None
    ) -> None:
        self._counts[kind] += 1
        if self._counts[kind] <= MOST_OF_A_KIND:
            self._findings.append(DoctorFinding(severity, kind, about, message, advice, command))

    def findings(self) -> tuple[DoctorFinding, ...]:
        """What was found, problems first. Of a kind with too many the last one says how many there are."""
        found = list(self._findings)
        for kind, count in self._counts.items():
            if count > MOST_OF_A_KIND:
                place = max(index for index, item in enumerate(found) if item.kind == kind)
                last = found[place]
                message = f"{last.message}; {count - MOST_OF_A_KIND:,} more are like this"
                found[place] = DoctorFinding(last.severity, kind, last.about, message, last.advice, last.command)
        return tuple(sorted(found, key=lambda item: item.severity != "problem"))


def way(call: str, command: str) -> Either:
    """A call as code, and the command that makes it."""
    return Either(call, f"'{command}'")


def words_of(*words: str) -> str:
    """The words of a command as one types them."""
    return shlex.join(words)


def advice_to(call: str, command: str, before: str = "", after: str = "") -> Words:
    """Advice to make a call of the namespace, in Python or as a command."""
    return Words(before, way(f"ns.{call}", command), after)


__all__ = ["MOST_OF_A_KIND", "Notes", "advice_to", "way", "words_of"]
