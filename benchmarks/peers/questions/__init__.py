"""The questions, in the order of the report."""

from benchmarks.peers.question import Question
from benchmarks.peers.questions import (
    aborted,
    amplification,
    commits,
    delivery,
    open_transaction,
    partitions,
    pipeline,
    reading,
)

QUESTIONS: tuple[Question, ...] = (
    commits.QUESTION,
    pipeline.QUESTION,
    delivery.QUESTION,
    reading.QUESTION,
    open_transaction.QUESTION,
    partitions.QUESTION,
    aborted.QUESTION,
    amplification.QUESTION,
)

__all__ = ["QUESTIONS"]
