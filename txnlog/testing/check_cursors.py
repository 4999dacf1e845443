"""Subscriptions at the end: each message acknowledged once, and cursors that show all that was committed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from txnlog.common import ranges
from txnlog.common.ranges import Ranges
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.check_polls import Sets, reach, remove, shown_cursors
from txnlog.testing.facts import Facts, Subscribed, Unit, asked, result_of
from txnlog.testing.history import Operation
from txnlog.testing.operation_parts import Before


@dataclass(slots=True)
class _Acknowledged:
    """All acknowledgements and seeks of a subscription, by what became of them."""

    sure: list[tuple[int, Operation, Unit | None]] = field(default_factory=list)
    """With the version that shows it; -1 for plain ones that did not say."""
    possible: list[tuple[Operation, Unit | None]] = field(default_factory=list)
    refused: list[tuple[Operation, Unit | None]] = field(default_factory=list)
    seeks: list[tuple[int, Operation]] = field(default_factory=list)
    dead: list[tuple[int, int, int]] = field(default_factory=list)
    """Dead letters: the version that took each off, its partition and offset."""
    expired: list[tuple[int, int, Ranges]] = field(default_factory=list)
    """Of what expired the version that acknowledged it, and the partition."""
    unknown_outcome: bool = False
    """A seek whose place in the log is not known: nothing can be said."""


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of what was acknowledged, in the order of versions."""
    shown = shown_cursors(result_of(facts.final, of.FinalState).cursors) if facts.final is not None else {}
    torn: dict[Unit, list[bool]] = {}
    collected = _collect(facts)
    for key in sorted(collected.keys() | shown.keys()):
        taken = collected.get(key) or _Acknowledged()
        if taken.unknown_outcome:
            continue
        wanted, findings = _take(key, taken)
        yield from findings
        yield from _check_dead(key, taken)
        if key in shown and facts.lives(key[0]):
            yield from _Compared(facts, key, taken, wanted, shown[key]).check(torn)
    yield from _check_deleted(facts, shown)
    for unit, flags in torn.items():
        if len(set(flags)) > 1:
            text = f"{unit.name} is acknowledged on one subscription or partition, and not on another"
            yield Finding(Anomaly.TORN_COMMIT, text, tuple(unit.acknowledges))


def _check_deleted(facts: Facts, shown: Mapping[Subscribed, Sets]) -> Iterator[Finding]:
    """What was deleted by calls that keep what subscriptions need was acknowledged, as nobody sought back."""
    final = None if facts.final is None else result_of(facts.final, of.FinalState)
    created = {(topic, name): version for topic, name, version in final.created} if final is not None else {}
    sought = {(asked(op, of.Seek).topic, asked(op, of.Seek).subscription) for op in facts.ops("seek")}
    for op in facts.deletions:
        item = asked(op, of.DeleteRecords)
        version = result_of(op, of.Deleted).version if op.succeeded else None
        for at in item.before if op.succeeded else ():
            if not at.kept or (version is None and _is_of_another(facts, op, at)):
                continue
            excused = [
                other.offset
                for unkept in facts.deletions
                for other in asked(unkept, of.DeleteRecords).before
                if (other.topic, other.partition) == (at.topic, at.partition) and not other.kept
            ]
            low = max(excused, default=0)
            for key, sets in shown.items():
                if key[0] != at.topic or key in sought or low >= at.offset:
                    continue
                if version is not None and created.get(key, 0) > version:
                    continue  # a subscription that came later needed nothing of it, wherever it begins
                left = ranges.subtract(((low, at.offset),), sets.get(at.partition, ()))
                if left:
                    text = f"{key[0]}:{key[1]}/{at.partition}: {left} was deleted, and nobody had acknowledged it"
                    yield Finding(Anomaly.DELETED_UNACKNOWLEDGED, text, (op,))


def _is_of_another(facts: Facts, op: Operation, at: Before) -> bool:
    """Whether another call deleted all that one would have, which found nothing: it is asked for that one's reasons."""
    return any(
        (found.topic, found.partition) == (at.topic, at.partition) and found.offset >= at.offset
        for other in facts.deletions
        if other is not op and not (other.succeeded and result_of(other, of.Deleted).version is None)
        for found in asked(other, of.DeleteRecords).before
    )


def _collect(facts: Facts) -> dict[Subscribed, _Acknowledged]:
    found: dict[Subscribed, _Acknowledged] = {}
    for op in facts.ops("create_subscription", "acknowledge", "seek"):
        item = op.arguments
        assert isinstance(item, of.CreateSubscription | of.Acknowledge | of.Seek)
        taken = found.setdefault((item.topic, item.subscription), _Acknowledged())
        if isinstance(item, of.Acknowledge):
            unit = facts.transactions.get(item.txn) if item.txn is not None else None
            _sort(facts, taken, op, unit)
        elif isinstance(item, of.CreateSubscription):
            if op.possible:
                taken.seeks.append((-1, op))
        elif op.succeeded and result_of(op, of.Sought).epoch is not None:
            taken.seeks.append((result_of(op, of.Sought).epoch or 0, op))
        elif op.possible:
            taken.unknown_outcome = True
    if facts.final is not None:
        for letter in result_of(facts.final, of.FinalState).dead:
            taken = found.setdefault((letter.topic, letter.subscription), _Acknowledged())
            taken.dead.append((letter.version, letter.partition, letter.offset))
    for gone in facts.expired:
        taken = found.setdefault((gone.topic, gone.subscription), _Acknowledged())
        taken.expired.append((gone.version, gone.partition, gone.ranges))
    return found


def _sort(facts: Facts, taken: _Acknowledged, op: Operation, unit: Unit | None) -> None:
    if unit is None:
        version = result_of(op, of.Acknowledged).version if op.succeeded else None
        fate = "committed" if op.succeeded else "open" if op.possible else "not committed"
    else:
        version = unit.version
        fate = facts.fate(unit) if op.possible else "not committed"
    if fate == "committed" and op.succeeded and (version is not None or unit is None):
        taken.sure.append((-1 if version is None else version, op, unit))
    elif fate == "not committed":
        taken.refused.append((op, unit))
    else:
        taken.possible.append((op, unit))


def _take(key: Subscribed, taken: _Acknowledged) -> tuple[Sets, list[Finding]]:
    """Take everything in the order of versions. Two transactions never take the same."""
    wanted: Sets = {}
    owners: list[tuple[Operation, Unit | None]] = []
    findings: list[Finding] = []
    steps: list[tuple[int, int, Operation, Unit | None]] = [(version, 0, op, None) for version, op in taken.seeks]
    for version, op, unit in taken.sure:
        # Individual ones of an entry first: a cumulative one may pass over what is acknowledged. A plain one last: it
        # may have found all of it acknowledged, at the newest version that it knew.
        place = 3 if unit is None else 2 if asked(op, of.Acknowledge).cumulative else 1
        steps.append((version, place, op, unit))
    steps.sort(key=lambda step: (step[0], step[1], step[2].number))
    dead = [(version, partition, ((offset, offset + 1),)) for version, partition, offset in taken.dead]
    others_took = sorted((*dead, *taken.expired), reverse=True)
    for version, _, op, unit in steps:
        while others_took and others_took[-1][0] < version:
            _take_off(wanted, others_took.pop())
        item = op.arguments
        if isinstance(item, of.Seek | of.CreateSubscription):
            for partition, offset in item.positions:
                wanted[partition] = ((0, offset),) if offset else ()
            owners.clear()
            continue
        cumulative = asked(op, of.Acknowledge).cumulative
        for partition, found in reach(op).items():
            before = wanted.get(partition, ())
            if unit is not None and (twice := _twice(before, found, cumulative=cumulative)):
                others = _who(owners, partition, twice)
                if all(other is not unit for _, other in others):
                    names = " and ".join(other.name if other else "a plain call" for _, other in others)
                    before_it = names or "a seek, or because it had expired"
                    text = f"{key[0]}:{key[1]}/{partition}: {twice} was acknowledged by {unit.name}, after {before_it}"
                    findings.append(Finding(Anomaly.DOUBLE_CONSUME, text, (*(op for op, _ in others), op)))
            wanted[partition] = ranges.union(before, found)
        owners.append((op, unit))
    for off in others_took:
        _take_off(wanted, off)
    return wanted, findings


def _check_dead(key: Subscribed, taken: _Acknowledged) -> Iterator[Finding]:
    """A message that was acknowledged in an earlier entry becomes no dead letter, unless somebody sought in between."""
    known: dict[tuple[int, int], list[tuple[int, Operation]]] = {}
    for version, op, _ in taken.sure if taken.dead else ():
        for partition, found in reach(op).items():
            for offset in (offset for start, end in found for offset in range(start, end)):
                known.setdefault((partition, offset), []).append((version, op))
    seeks = sorted(version for version, _ in taken.seeks)
    for at, partition, offset in taken.dead:
        for version, op in known.get((partition, offset), ()):
            if 0 <= version < at and bisect_left(seeks, at) == bisect_left(seeks, version):
                text = f"{key[0]}:{key[1]}/{partition}@{offset} is a dead letter since {at}, acknowledged at {version}"
                yield Finding(Anomaly.DEAD_LETTER, text, (op,))


def _take_off(wanted: Sets, item: tuple[int, int, Ranges]) -> None:
    """Messages became dead letters, or expired: the same entry takes them off."""
    _, partition, found = item
    wanted[partition] = ranges.union(wanted.get(partition, ()), found)


def _twice(taken: Ranges, found: Ranges, *, cumulative: bool) -> Ranges:
    """What is acknowledged a second time: of a cumulative one only if it does not move the cursor at all."""
    both = ranges.intersect(taken, found)
    return () if cumulative and both != found else both


def _who(
    owners: Sequence[tuple[Operation, Unit | None]], partition: int, found: Ranges
) -> list[tuple[Operation, Unit | None]]:
    return [(op, unit) for op, unit in owners if ranges.intersect(reach(op).get(partition, ()), found)]


class _Compared:
    """What a subscription's cursors show in the end, compared with what was acknowledged."""

    def __init__(self, facts: Facts, key: Subscribed, taken: _Acknowledged, wanted: Sets, shown: Sets) -> None:
        self._facts = facts
        self._topic = key[0]
        self._name = f"{key[0]}:{key[1]}"
        self._taken = taken
        self._wanted = wanted
        self._shown = shown

    def check(self, torn: dict[Unit, list[bool]]) -> Iterator[Finding]:
        """Nothing acknowledged is missing, nothing else is there, and what has an unknown outcome is whole."""
        lost: Sets = {p: left for p, found in self._wanted.items() if (left := ranges.subtract(found, self._of(p)))}
        extra: Sets = {}
        for partition, found in self._shown.items():
            left = ranges.subtract(found, self._wanted.get(partition, ()))
            # A subscription that begins at the earliest offset begins behind what was deleted by then.
            gone = self._facts.may_be_deleted((self._topic, partition), None) if left else 0
            left = ranges.subtract(left, ((0, gone),)) if gone else left
            # A hole goes with the message in front of it, or was passed over.
            left = ranges.subtract(left, self._facts.holes((self._topic, partition), None)) if left else left
            if left:
                extra[partition] = left
        if lost:
            yield from self._check_lost(lost)
        if self._taken.possible:
            self._note_unknown(torn, extra)
        for op, _ in self._taken.possible:
            for partition, found in reach(op).items():
                remove(extra, partition, found)
        yield from self._check_extra(extra)

    def _of(self, partition: int) -> Ranges:
        return self._shown.get(partition, ())

    def _check_lost(self, lost: Sets) -> Iterator[Finding]:
        """An acknowledgement that was committed, and has no effect."""
        for _, op, unit in self._taken.sure:
            missing = {p: left for p, found in reach(op).items() if (left := ranges.intersect(found, lost.get(p, ())))}
            if not missing:
                continue
            name = unit.name if unit is not None else "a plain acknowledgement"
            whole = unit is None or (not unit.runs and len(unit.acknowledges) == 1)
            anomaly = Anomaly.LOST_WRITE if whole and missing == reach(op) else Anomaly.TORN_COMMIT
            yield Finding(anomaly, f"{self._name}: {missing} was acknowledged by {name}, and is free in the end", (op,))
        for _, partition, offset in self._taken.dead:
            if ranges.intersect(lost.get(partition, ()), ((offset, offset + 1),)):
                text = f"{self._name}/{partition}: {offset} is a dead letter, and is free in the end"
                yield Finding(Anomaly.TORN_COMMIT, text)
        for version, partition, found in self._taken.expired:
            if again := ranges.intersect(lost.get(partition, ()), found):
                text = f"{self._name}/{partition}: {again} expired at {version}, and is free in the end"
                yield Finding(Anomaly.CURSOR_MOVED_BACK, text)

    def _note_unknown(self, torn: dict[Unit, list[bool]], extra: Sets) -> None:
        """For transactions of unknown outcome: whether each part, as far as it is theirs alone, is acknowledged."""
        for op, unit in self._taken.possible:
            if unit is None:
                continue
            for partition, found in reach(op).items():
                alone = ranges.subtract(found, self._wanted.get(partition, ()))
                for other, owner in self._taken.possible:
                    if owner is not unit:
                        alone = ranges.subtract(alone, reach(other).get(partition, ()))
                there = ranges.intersect(alone, extra.get(partition, ()))
                if there:
                    torn.setdefault(unit, []).append(True)
                if there != alone:
                    torn.setdefault(unit, []).append(False)

    def _check_extra(self, extra: Sets) -> Iterator[Finding]:
        """Acknowledged in the end, and by nobody who may have."""
        for op, unit in self._taken.refused:
            for partition, found in reach(op).items():
                there = ranges.intersect(found, extra.get(partition, ()))
                if there:
                    remove(extra, partition, there)
                    yield self._refused(op, unit, f"{self._name}/{partition}: {there} is acknowledged in the end, by")
        for partition, left in extra.items():
            if left:
                text = f"{self._name}/{partition}: {left} is acknowledged in the end, and nobody acknowledged it"
                yield Finding(Anomaly.UNSEEN, text)

    def _refused(self, op: Operation, unit: Unit | None, text: str) -> Finding:
        if unit is None or not op.possible:
            return Finding(Anomaly.FAILED_BUT_VISIBLE, f"{text} a call that said that nothing was written", (op,))
        if unit.answers_of("ABORTED") or (unit.ended is not None and unit.ended.state == "ABORTED"):
            return Finding(Anomaly.ABORTED_READ, f"{text} {unit.name}, which is aborted", (op,))
        if not unit.attempts:
            return Finding(Anomaly.INTERMEDIATE_READ, f"{text} {unit.name}, whose commit was not called", (op,))
        if not any(attempt.possible for attempt in unit.attempts):
            return Finding(
                Anomaly.FAILED_BUT_VISIBLE, f"{text} {unit.name}, which said that nothing was written", (op,)
            )
        return Finding(Anomaly.TORN_COMMIT, f"{text} {unit.name}, whose messages are not visible", (op,))


__all__ = ["check"]
