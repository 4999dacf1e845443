"""Aborted transactions among what is read."""

from __future__ import annotations

from benchmarks.peers import systems
from benchmarks.peers.load import Load
from benchmarks.peers.question import ROWS, Case, Column, Picture, Question

_SECONDS = Column("seconds", lambda outcome: outcome.seconds)


def _case(percent: int) -> Case:
    topic = f"aborted-{percent}"
    fill = Load(kind="fill", topic=topic, messages=1_000, transactions=200, size=100, seconds=30, aborted=percent / 100)
    return Case(
        f"{percent} % aborted", Load(kind="read", topic=topic, size=100, seconds=30), (ROWS, _SECONDS), fill=fill
    )


QUESTION = Question(
    name="aborted",
    title="Aborted data",
    asked="What does a reader of committed messages pay for those that were aborted?",
    measured=(
        "200 transactions of 1,000 messages of 100 bytes, of which a share is aborted after their messages were "
        "written. A new consumer reads what is committed; the rate counts committed messages."
    ),
    unfair="With 90 % aborted only 20,000 messages are left, so the start of the consumer weighs more.",
    systems=systems.FEW,
    cases=tuple(_case(percent) for percent in (0, 50, 90)),
    picture=Picture("bars", "Committed messages read in a second", ROWS.title, "messages a second", logarithmic=True),
)
