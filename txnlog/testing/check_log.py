"""The log by itself: offsets, versions, values, sequences, and the order in which calls were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise

from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding, first_of
from txnlog.testing.facts import Facts, Place, Run, Unit, asked, goes_to
from txnlog.testing.history import Operation


def check(facts: Facts) -> Iterator[Finding]:
    """Findings in what the end of the history shows."""
    seen = (facts.final,) if facts.final is not None else ()
    for place, rows in facts.log.items():
        yield from check_offsets(place, rows, seen)
        versions = [row.version for row in rows]
        if versions != sorted(versions):
            at = next(earlier for earlier, later in pairwise(rows) if later.version < earlier.version)
            text = f"{_name(place)}: version {at.version} of offset {at.offset} is above that of the next offset"
            yield Finding(Anomaly.OFFSETS_AGAINST_VERSIONS, text, seen)
    yield from _check_duplicates(facts)
    for run in facts.strange:
        values = first_of(row.value for row in run.rows)
        text = f"{_name(run.place)}: nobody produced {values} (transaction {run.rows[0].txn})"
        yield Finding(Anomaly.GARBAGE, text, seen)
    yield from _check_sequences(facts)
    yield from _check_sends(facts)


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def check_offsets(
    place: Place, rows: tuple[parts.Row, ...], seen: tuple[Operation, ...], first: int = 0
) -> Iterator[Finding]:
    """Offsets are 0, 1, 2, …, from the ``first`` one on: no gap, and none twice."""
    offsets = [row.offset for row in rows]
    if offsets == list(range(first, first + len(offsets))):
        return
    expected = first
    for offset in offsets:
        if offset > expected:
            yield Finding(Anomaly.OFFSET_GAP, f"{_name(place)}: offset {offset} follows {expected - 1}", seen)
        elif offset < expected:
            yield Finding(Anomaly.OFFSET_OVERLAP, f"{_name(place)}: offset {offset} follows {expected - 1}", seen)
        expected = offset + 1


def _check_duplicates(facts: Facts) -> Iterator[Finding]:
    """A value is visible once, however often it was sent."""
    values = Counter(chain.from_iterable([row.value for row in rows] for rows in facts.log.values()))
    if len(values) == values.total():
        return
    for value, count in values.items():
        if count > 1:
            at = [
                f"{_name(place)}@{row.offset}"
                for place, rows in facts.log.items()
                for row in rows
                if row.value == value
            ]
            produced = tuple(op for unit in facts.owners.get(value, ()) for op in unit.produces)
            yield Finding(Anomaly.DUPLICATE, f"{value} is visible at {first_of(at)}", produced)


def _sent(run: Run, unit: Unit) -> list[tuple[int, Operation]]:
    """The calls whose first value is in a run, by offset."""
    offsets = {row.value: row.offset for row in run.rows}
    calls: list[tuple[int, Operation]] = []
    known: set[tuple[int, ...]] = set()
    for op in unit.produces:
        item = asked(op, of.Produce)
        if goes_to(item, run.place) and item.values and item.values not in known:
            known.add(item.values)
            if item.values[0] in offsets:
                calls.append((offsets[item.values[0]], op))
    calls.sort(key=lambda call: call[0])
    return calls


def _check_sequences(facts: Facts) -> Iterator[Finding]:
    """A producer's sequences follow each other in every partition, over its epochs, transactions and plain calls."""
    if not any(asked(op, of.Produce).sequence is not None for op in facts.ops("produce")):
        return
    for place, runs in facts.runs.items():
        after: dict[str, int | None] = {}
        for run in runs:
            unit = facts.owner(run.rows[0])
            if unit is None or unit.producer is None:
                continue
            for _, op in _sent(run, unit):
                item = asked(op, of.Produce)
                expected = after.get(unit.producer)
                if item.sequence is None:
                    if unit.plain:  # the producer assigned one by itself, which is not in the history: begin anew
                        after[unit.producer] = None
                    continue
                after[unit.producer] = item.sequence + len(item.values)
                if expected is None or item.sequence == expected:
                    continue
                gap = item.sequence > expected
                text = f"{unit.producer} in {_name(place)}: {item.sequence} where {expected} follows"
                yield Finding(Anomaly.SEQUENCE_GAP if gap else Anomaly.SEQUENCE_REPEATED, text, (op,))


def _check_sends(facts: Facts) -> Iterator[Finding]:
    """The values of a call are neighbours in their order; of two calls of a transaction the earlier one is first."""
    for runs in facts.runs.values():
        for run in runs:
            unit = facts.owner(run.rows[0])
            if unit is None:
                continue
            shown = tuple([row.value for row in run.rows])
            if len(unit.produces) == 1 and asked(unit.produces[0], of.Produce).values == shown:
                continue
            calls = _sent(run, unit)
            for at, op in calls:
                values = asked(op, of.Produce).values
                start = at - run.rows[0].offset
                found = shown[start : start + len(values)]
                if found != values and set(values) <= set(shown):
                    text = f"{_name(run.place)}: {first_of(found)} from offset {at}, sent was {first_of(values)}"
                    yield Finding(Anomaly.NON_MONOTONIC_SEND, text, (op,))
            for (_, first), (_, second) in pairwise(calls):
                if second.completed is not None and second.completed < first.invoked:
                    text = f"{_name(run.place)}: operation {first.number} before {second.number}, sent later"
                    yield Finding(Anomaly.NON_MONOTONIC_SEND, text, (second, first))


__all__ = ["check", "check_offsets"]
