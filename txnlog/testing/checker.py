"""Judges a history: did all answers that clients got agree with everything that anybody saw?

No search is needed: the log is the version order. Every check is one pass over the operations or the rows, or over a
graph of them; the same history gives the same findings in the same order. ``txnlog.testing.anomalies`` says what each
anomaly means and why it cannot be legitimate.

Legitimate, and no finding: a commit whose outcome is unknown (or that never returned) is visible or not, but whole and
the same for everybody; so is a plain produce. A repeated sequenced batch is answered as a duplicate. Aborted messages
are delivered again. After a seek everything may be. What was dropped is gone. A transaction that consumes does not
validate what it did not receive: cycles of rw edges between such transactions are allowed.
"""

from __future__ import annotations

from txnlog.testing import (
    check_compacted,
    check_cursors,
    check_cycles,
    check_expired,
    check_files,
    check_log,
    check_polls,
    check_prepared,
    check_reads,
    check_restored,
    check_shared,
    check_transactions,
    check_truncated,
)
from txnlog.testing.anomalies import Finding
from txnlog.testing.facts import Facts
from txnlog.testing.history import History


def check(history: History) -> list[Finding]:
    """All findings of a history; none is the only good answer.

    A history should end with ``final``: only with it can lost writes and what became of cursors be judged.
    """
    facts = Facts(history)
    return [
        *check_log.check(facts),
        *check_transactions.check(facts),
        *check_prepared.check(facts),
        *check_reads.check(facts),
        *check_cycles.check(facts),
        *check_polls.check(facts),
        *check_shared.check(facts),
        *check_cursors.check(facts),
        *check_files.check(facts),
        *check_expired.check(facts),
        *check_compacted.check(facts),
        *check_truncated.check(facts),
        *check_restored.check(facts),
    ]


__all__ = ["check"]
