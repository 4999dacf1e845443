"""Vacuum: what was said to stay readable stays so, and no file is gone that a readable version needs."""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import Facts, asked, result_of


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of deleted files and of versions that cannot be read."""
    vacuums = facts.ops("vacuum")
    done = [op for op in vacuums if op.succeeded]
    for op in done:
        oldest = result_of(op, of.Vacuumed).oldest_readable
        before = [other for other in done if other.completed is not None and other.completed < op.invoked]
        higher = [other for other in before if result_of(other, of.Vacuumed).oldest_readable > oldest]
        if higher:
            text = f"version {oldest} is said to be readable, and was not"
            yield Finding(Anomaly.READABLE_MOVED, text, (*higher, op))
    for op in facts.ops("read"):
        wanted = asked(op, of.Read).version
        if op.error != "VersionNotAvailable" or wanted is None or op.completed is None:
            continue
        begun = [other for other in vacuums if other.invoked < op.completed]
        if wanted <= facts.newest.before(op.invoked) and all(
            isinstance(other.result, of.Vacuumed) and other.result.oldest_readable <= wanted for other in begun
        ):
            text = f"version {wanted} cannot be read, and nobody took it away"
            yield Finding(Anomaly.READABLE_MOVED, text, (*begun, op))
    if facts.final is not None:
        oldest = max((result_of(op, of.Vacuumed).oldest_readable for op in done), default=0)
        for file in result_of(facts.final, of.FinalState).missing:
            if file.until is None or file.until > oldest:
                text = f"{file.file} is gone, and a version from {oldest} on needs it"
                yield Finding(Anomaly.MISSING_FILE, text, (*vacuums, facts.final))


__all__ = ["check"]
