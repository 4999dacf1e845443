"""Shared subscriptions: every delivery but the first is counted, and what was delivered too often is a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter

from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import Facts, Subscribed, asked, epoch_of, result_of
from txnlog.testing.history import Operation

_Delivery = tuple[Operation, parts.Message]


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of what consumers of Shared subscriptions received, and of dead letters."""
    made: dict[Subscribed, of.CreateSubscription] = {}
    for op in facts.ops("create_subscription"):
        item = asked(op, of.CreateSubscription)
        if item.shared and op.possible:
            made[item.topic, item.subscription] = item
    # A seek begins anew, with an epoch of its own: what came before it is not counted.
    deliveries: dict[tuple[Subscribed, int | None, int, int], list[_Delivery]] = {}
    for op in sorted(facts.ops("receive"), key=attrgetter("invoked")):
        key = asked(op, of.Receive).topic, asked(op, of.Receive).subscription
        if op.succeeded and key in made:
            for message in result_of(op, of.Received).messages:
                place = (key, epoch_of(op), message.partition, message.offset)
                deliveries.setdefault(place, []).append((op, message))
    for (key, _, partition, offset), found in deliveries.items():
        name = f"{key[0]}:{key[1]}/{partition}@{offset}"
        yield from _check_counts(name, found)
        yield from _check_most(name, found, made[key].max_redeliveries)
    if facts.final is not None:
        yield from _check_dead(facts, facts.final, made)


def _check_counts(place: str, found: list[_Delivery]) -> Iterator[Finding]:
    """A delivery that began after another had ended has a higher count."""
    by_end = sorted(found, key=lambda item: item[0].completed or 0)
    at, newest = 0, None
    for op, message in found:
        while at < len(by_end) and (by_end[at][0].completed or 0) < op.invoked:
            if newest is None or by_end[at][1].redeliveries > newest[1].redeliveries:
                newest = by_end[at]
            at += 1
        if newest is None or message.redeliveries > newest[1].redeliveries:
            continue
        before, count = newest[1].redeliveries, message.redeliveries
        if count < before:
            text = f"{place}: came with {count} redeliveries, after {before}"
            yield Finding(Anomaly.COUNT_MOVED_BACK, text, (newest[0], op))
        else:
            text = f"{place}: came again, and nobody counted it: {count} redeliveries"
            yield Finding(Anomaly.UNCOUNTED_REDELIVERY, text, (newest[0], op))


def _check_most(place: str, found: list[_Delivery], most: int | None) -> Iterator[Finding]:
    for op, message in found:
        if most is not None and message.redeliveries > most:
            text = f"{place}: came with {message.redeliveries} redeliveries, where {most} are allowed"
            yield Finding(Anomaly.DELIVERED_TOO_OFTEN, text, (op,))


def _check_dead(facts: Facts, final: Operation, made: dict[Subscribed, of.CreateSubscription]) -> Iterator[Finding]:
    """A dead letter is a message of its source, once (and again after a seek), delivered as often as is allowed."""
    seen: Counter[tuple[str, str, int, int]] = Counter()
    sought = Counter((asked(op, of.Seek).topic, asked(op, of.Seek).subscription) for op in facts.ops("seek"))
    for letter in result_of(final, of.FinalState).dead:
        place = f"{letter.topic}:{letter.subscription}/{letter.partition}@{letter.offset}"
        key = letter[:4]
        row = facts.row((letter.topic, letter.partition), letter.offset)
        subscription = made.get((letter.topic, letter.subscription))
        most = None if subscription is None else subscription.max_redeliveries
        if seen[key] > sought[letter.topic, letter.subscription]:
            yield Finding(Anomaly.DEAD_LETTER, f"{place} is a dead letter {seen[key] + 1} times", (final,))
        elif facts.lives(letter.topic) and (row is None or row.value != letter.value):
            yield Finding(Anomaly.DEAD_LETTER, f"{place} is {row and row.value}, its letter {letter.value}", (final,))
        elif most is None or letter.redeliveries <= most:
            text = f"{place} is a dead letter after {letter.redeliveries} redeliveries; allowed are {most}"
            yield Finding(Anomaly.DEAD_LETTER, text, (final,))
        seen[key] += 1


__all__ = ["check"]
