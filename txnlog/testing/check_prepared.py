"""Prepared transactions: from there on the decision from outside counts, and nothing else ends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import Facts, Unit, asked, result_of
from txnlog.testing.history import Operation

_REFUSALS: Final = frozenset(
    {
        "ConsumerFenced",
        "InvalidTransactionState",
        "OutOfOrderSequence",
        "ProducerFenced",
        "TransactionAborted",
        "TransactionConflict",
        "TransactionNotFound",
        "TransactionTimedOut",
    }
)
"""Answers that a decision about a prepared transaction never gets, unless the opposite one was there before."""


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of transactions that were prepared."""
    for unit in facts.transactions.values():
        prepared = next((op for op in unit.prepares if op.succeeded), None)
        if prepared is not None:
            yield from _check_decision(facts, unit, prepared)
            yield from _check_refused(unit, prepared)


def _check_decision(facts: Facts, unit: Unit, prepared: Operation) -> Iterator[Finding]:
    """A prepared transaction ends as somebody decided who was asked to."""
    committed = facts.fate(unit) == "committed"
    ended = unit.ended.state if unit.ended is not None else None
    aborted = not committed and (ended == "ABORTED" or bool(unit.answers_of("ABORTED")))
    forced = [op for op in _forced(unit) if not op.succeeded or result_of(op, of.OutcomeShown).state == "ABORTED"]
    decisions = [op for op in (*unit.completes, *forced) if op.possible]
    if (committed or aborted) and all(_commits(op) is not committed for op in decisions):
        word = "committed" if committed else "aborted"
        text = f"{unit.name} was prepared and is {word}, which nobody decided"
        yield Finding(Anomaly.AGAINST_DECISION, text, (prepared, *unit.completes))
    done = [op for op in decisions if op.succeeded]
    if len({_commits(op) for op in done}) > 1:
        yield Finding(Anomaly.AGAINST_DECISION, f"{unit.name} was decided in two ways", tuple(done))


def _check_refused(unit: Unit, prepared: Operation) -> Iterator[Finding]:
    """A prepared transaction can be ended either way, until it is."""
    assert prepared.completed is not None, "it succeeded"
    for op in unit.completes:
        others = [other for other in (*unit.completes, *_forced(unit)) if other.possible]
        opposite = [other for other in others if _commits(other) is not _commits(op)]
        if op.invoked > prepared.completed and op.error in _REFUSALS and not opposite:
            text = f"{unit.name} was prepared, and its decision was refused: {op.error}"
            yield Finding(Anomaly.AGAINST_DECISION, text, (prepared, op))


def _forced(unit: Unit) -> list[Operation]:
    """Aborts by an administrator who heard that it is prepared, and insisted: decisions too."""
    return [op for op in unit.asked if asked(op, of.Outcome).forced]


def _commits(op: Operation) -> bool:
    item = op.arguments
    return isinstance(item, of.Complete) and item.commit


__all__ = ["check"]
