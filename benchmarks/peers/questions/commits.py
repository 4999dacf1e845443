"""Small transactions: how long a commit takes, and how many there are in a second."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import P50, P99, RATE, Case, Picture, Question

_SECONDS = 5.0


def _load(producers: int) -> Load:
    return Load(kind="commit", topic="commits", partitions=3, size=100, producers=producers, seconds=_SECONDS)


QUESTION = Question(
    name="commits",
    title="Small transactions",
    asked="How long does the commit of a small transaction take, and how many transactions are committed in a second?",
    measured=(
        "A transaction is one message of 100 bytes to each of three partitions. Its latency is the time from its begin "
        "to the return of its commit. One producer commits one after the other; then 8 transactions, and then 64, are "
        "under way at a time. For Kafka, Pulsar and DuckLake these are threads of one process; a producer of Kafka has "
        "one transaction at a time, so there are as many producers."
    ),
    unfair=(
        "One broker without replicas is faster than a cluster is, and a local disk is faster than object storage. "
        "Other clients of Kafka may wait less between transactions. DuckLake's tables have no partitions; a "
        "transaction inserts three rows. Its threads take turns by a lock: without one, 8 of them made fewer "
        "transactions together. Delta appends three rows through a Spark job, which is made for millions of them."
    ),
    systems=systems.ALL,
    cases=(
        Case("one after the other", _load(1), (RATE, P50, P99), warm_up_s=2.5),
        # Not Delta: jobs of a Spark with two cores only wait for each other.
        Case("8 under way", _load(8), (RATE, P50, P99), warm_up_s=2.5, systems=systems.ALL[:-1]),
        Case("64 under way", _load(64), (RATE, P50, P99), warm_up_s=2.5, systems=systems.ALL[:-1]),
    ),
    picture=Picture("bars", "Small transactions a second", RATE.title, "transactions a second", logarithmic=True),
)
