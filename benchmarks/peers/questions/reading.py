"""Reading back what was committed."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import ROWS, Case, Column, Picture, Question

_LARGE = Load(kind="fill", topic="large", messages=1_000, transactions=1_000, size=100, seconds=90)
_SMALL = Load(kind="fill", topic="small", partitions=3, transactions=3_000, producers=8, size=100, seconds=40)
_SECONDS = Column("seconds", lambda outcome: outcome.seconds)

QUESTION = Question(
    name="reading",
    title="Reading back",
    asked="How fast does a new consumer read a topic from the beginning, after large and after small transactions?",
    measured=(
        "First a million messages of 100 bytes in 1,000 transactions of 1,000, in one partition; then 3,000 "
        "transactions of three messages, one to each of three partitions, written 8 at a time (a system that "
        "needs more than 40 s for them has fewer). The time runs from making the consumer (of txnlog, from opening "
        "the namespace) to the last message, in a process that has imported its client; the bytes are counted."
    ),
    unfair=(
        "All of it is in the memory of the operating system. txnlog and DuckLake hand over batches of columns, "
        "Kafka and Pulsar one message after the other; Kafka's client here is Python on C."
    ),
    systems=systems.FEW,
    cases=(
        Case(
            "1,000 transactions of 1,000 messages",
            Load(kind="read", topic="large", size=100, seconds=60),
            (ROWS, _SECONDS),
            fill=_LARGE,
            warm_up_s=20,
        ),
        Case(
            "3,000 transactions of three messages",
            Load(kind="read", topic="small", partitions=3, size=100, seconds=60),
            (ROWS, _SECONDS),
            fill=_SMALL,
        ),
    ),
    picture=Picture("bars", "Messages read in a second", ROWS.title, "messages a second", logarithmic=True),
)
