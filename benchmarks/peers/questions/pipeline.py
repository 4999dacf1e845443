"""Consume, process, produce: results and position in one commit."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import P50, P99, ROWS, Case, Picture, Question

_FILL = Load(kind="fill", topic="input", messages=2_000, transactions=200, size=1_000, seconds=60)
_COLUMNS = (ROWS, P50, P99)


def _load(cycle_ms: int, *, transactional: bool = True) -> Load:
    return Load(kind="pipeline", topic="input", size=1_000, seconds=6, cycle_ms=cycle_ms, transactional=transactional)


QUESTION = Question(
    name="pipeline",
    title="Consume, process, produce",
    asked="How many messages a second does a job copy from topic to topic, if results and position are one commit?",
    measured=(
        "400,000 messages of 1 KB lie in a topic of one partition. One client reads them, writes each to another "
        "topic, and commits messages and position together, at the end of each cycle of 100 ms or 1 s. The "
        "latency is that of a cycle, from its begin to the return of its commit. Without transactions the same "
        "client flushes and stores its position at the end of each cycle."
    ),
    unfair=(
        "The message goes through the client's memory in Kafka, Pulsar and txnlog; DuckLake copies inside of its "
        "engine. Clients in Python pay for each message in Kafka, where a client in Java would pay less; txnlog "
        "hands whole batches through. Kafka without fsync has most of its gigabyte still in memory."
    ),
    systems=systems.MAIN,
    cases=(
        Case("a commit each 100 ms", _load(100), _COLUMNS, fill=_FILL, warm_up_s=3),
        Case("a commit each second", _load(1_000), _COLUMNS, fill=_FILL),
        Case("each 100 ms, without transactions", _load(100, transactional=False), _COLUMNS, fill=_FILL),
    ),
    picture=Picture("bars", "Messages of 1 KB copied in a second", ROWS.title, "messages a second"),
)
