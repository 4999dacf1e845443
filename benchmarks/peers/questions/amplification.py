"""Bytes towards the disk for each byte of a message."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load, Outcome
from benchmarks.peers.question import Case, Column, Picture, Question


def _factor(outcome: Outcome) -> float:
    return outcome.written_bytes / (outcome.rows * outcome.size)


def _each(outcome: Outcome) -> float:
    return outcome.written_bytes / outcome.transactions / 1e3


_FACTOR = Column("bytes written for a byte of messages", _factor)
_COLUMNS = (_FACTOR, Column("for a transaction", _each, "kB"))


def _case(messages: int, transactions: int) -> Case:
    topic = f"amplification-{messages}"
    load = Load(kind="fill", topic=topic, messages=messages, transactions=transactions, size=100, seconds=10)
    return Case(f"{messages:,} messages each", load, _COLUMNS, turns=1)


QUESTION = Question(
    name="amplification",
    title="Bytes written",
    asked="How many bytes go towards the disk for each byte of a message?",
    measured=(
        "Transactions of 1, 100 and 10,000 random messages of 100 bytes, one after the other. The operating system "
        "counts, for each process of the system and for its client, what they send towards the disk (`write_bytes`), "
        "in whole pages; a second passes after the load."
    ),
    unfair=(
        "A system without fsync writes a page once where one with fsync writes it for each transaction in it. "
        "Replicas, compactions, retention and checkpoints of a longer run are not in it."
    ),
    systems=systems.FEW,
    cases=(_case(1, 300), _case(100, 300), _case(10_000, 30)),
    picture=Picture("bars", "Bytes written for a byte of messages", _FACTOR.title, "times", logarithmic=True),
)
