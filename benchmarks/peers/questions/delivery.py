"""From a commit to a consumer."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import P50, P99, RATE, Case, Picture, Question

QUESTION = Question(
    name="delivery",
    title="From commit to consumer",
    asked="How long after a message was produced in a transaction does a consumer have it?",
    measured=(
        "A transaction with one message of 100 bytes is begun each 20 ms. The message carries the time just "
        "before it is produced; so produce, commit and delivery count. The consumer reads only what is committed, "
        "and waits as its client waits: Kafka and Pulsar push or hold the request, txnlog looks at the log after "
        "growing pauses, DuckLake has no consumer, so a thread asks for the newest snapshot each 5 ms."
    ),
    unfair=(
        "txnlog's consumer is another process, Kafka's and Pulsar's another thread of the client; DuckLake's is "
        "another connection of the same process. On an object store a look costs a request."
    ),
    systems=systems.MAIN,
    cases=(
        Case(
            "50 transactions a second",
            Load(kind="deliver", topic="delivery", size=100, seconds=8, cycle_ms=20),
            (P50, P99, RATE),
            warm_up_s=3,
        ),
    ),
    picture=Picture("curves", "From produce to the hands of a consumer", P50.title, "ms", logarithmic=True),
)
