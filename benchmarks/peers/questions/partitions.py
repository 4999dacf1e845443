"""Many partitions in one transaction."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import P50, P99, Case, Picture, Question

_NUMBERS = (1, 10, 100, 1_000)

QUESTION = Question(
    name="partitions",
    title="Partitions of a transaction",
    asked="What does a transaction cost that writes to 1, 10, 100 or 1,000 partitions?",
    measured=(
        "One producer commits, one after the other, transactions with one message of 100 bytes to each partition. "
        "The latency is the time from the begin to the return of the commit."
    ),
    unfair=(
        "All partitions are on one broker; a cluster shares the work and adds the network. DuckLake has no partitions: "
        "the number of a row's partition is a column, so for it this is the number of rows."
    ),
    systems=systems.FEW,
    cases=tuple(
        Case(
            f"{number:,}",
            Load(kind="commit", topic=f"partitions-{number}", partitions=number, size=100, seconds=3),
            (P50, P99),
            turns=1,
            warm_up_s=1.5,
        )
        for number in _NUMBERS
    ),
    picture=Picture("steps", "A commit to so many partitions", P50.title, "ms", logarithmic=True),
)
