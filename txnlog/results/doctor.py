"""What ``ns.doctor()`` answers: what was looked at, and what was found."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from txnlog.common.validation import printable
from txnlog.results.shown import Listing

DoctorSeverity = Literal["problem", "warning"]
DoctorKind = Literal[
    "store",
    "rights",
    "clock",
    "versions",
    "format",
    "checkpoint",
    "limit",
    "transaction",
    "subscription",
    "segments",
    "retention",
    "delta",
]


@dataclass(frozen=True)
class DoctorFinding:
    """One thing that somebody should do.

    Attributes:
        severity: ``problem``: something does not work, or will not. ``warning``: all works, and gets slower, bigger or
            older than it should.
        kind: ``store``, ``rights``, ``clock``, ``versions``, ``format``, ``checkpoint``, ``limit``, ``transaction``,
            ``subscription``, ``segments``, ``retention`` or ``delta``.
        about: what it is about: a topic, ``TOPIC/SUBSCRIPTION``, a TxnID, a package.
        message: what was seen.
        advice: what to do.
        command: the command that settles it, as it stands behind ``txnlog ROOT/NAMESPACE``; None where none does.
    """

    severity: DoctorSeverity
    kind: DoctorKind
    about: str
    message: str
    advice: str
    command: str | None = None

    def __str__(self) -> str:
        """A line for people."""
        return f"{self.severity}: {self.about}: {self.message} ({self.advice})"


@dataclass(frozen=True)
class DoctorReport:
    """What was seen of a namespace, of its store, and of this machine.

    Attributes:
        version: the newest version of the namespace when it was looked at.
        seen: by what was looked at, what was seen there; ``"not tried: ..."`` where that would leave a trace.
        findings: what somebody should do, problems first.
        is_healthy: whether there is nothing to do.
        of: the findings of one severity, as ``report.of("problem")``.
    """

    version: int
    seen: Mapping[str, str]
    findings: tuple[DoctorFinding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether there is nothing to do."""
        return not self.findings

    def of(self, severity: DoctorSeverity) -> tuple[DoctorFinding, ...]:
        """The findings of one severity."""
        return tuple(item for item in self.findings if item.severity == severity)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(printable(text))}</td></tr>"
            for name, text in self.seen.items()
        )
        return f"<table><caption>DoctorReport</caption>{rows}</table>{Listing(self.findings)._repr_html_()}"


__all__ = ["DoctorFinding", "DoctorKind", "DoctorReport", "DoctorSeverity"]
