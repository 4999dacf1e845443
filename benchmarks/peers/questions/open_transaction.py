"""One transaction that stays open."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import P99, Case, Column, Picture, Question

_LENGTH_S = 9.0


def _stood_still_s(outcome: object) -> float:
    """The longest time in which a reader got nothing."""
    longest, since, last = 0.0, 0.0, 0
    for seconds, _, read in getattr(outcome, "progress", []):
        if read > last:
            longest, since, last = max(longest, seconds - since), seconds, read
    return longest


QUESTION = Question(
    name="open",
    title="One open transaction",
    asked="Does a reader get on while a transaction of somebody else stays open?",
    measured=(
        "A transaction writes one message and stays open for 6 of 9 seconds, then it is committed. Beside it, "
        "another producer commits a transaction with one message to the same partition each 20 ms, and a consumer of "
        "committed messages reads along."
    ),
    unfair=(
        "This is what Kafka and Pulsar promise: readers of committed messages stop at the first open transaction of a "
        "partition, so that the order of offsets holds. txnlog gives offsets at the commit."
    ),
    systems=systems.FEW,
    cases=(
        Case(
            "open for 6 s",
            Load(kind="open", topic="open", size=100, seconds=_LENGTH_S, cycle_ms=20),
            (Column("longest standstill of the reader", _stood_still_s, "s"), P99),
            turns=1,
        ),
    ),
    picture=Picture("progress", "How far a reader is while one transaction stays open", "", "messages read"),
)
