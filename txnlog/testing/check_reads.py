"""Readers: each shows exactly the log up to its version, and the newest version is not an old one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding, first_of
from txnlog.testing.check_log import check_offsets
from txnlog.testing.facts import NEVER, Facts, Place, Unit, asked, result_of
from txnlog.testing.history import Operation


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of reads, of what consumers got, and of real time."""
    early = _Early(facts)
    differing: set[int] = set()
    for op in facts.reads:
        findings = list(_check_read(facts, op))
        if findings:
            differing.add(result_of(op, of.Shown).version)
            yield from findings
        yield from _check_version(facts, op)
        yield from early.check(op, result_of(op, of.Shown).version)
    yield from _check_diverging(facts, differing)
    for op in facts.ops("receive"):
        if op.succeeded:
            yield from _check_received(facts, op)
    yield from _check_stale_commits(facts)


# --- one read against the log ---------------------------------------------------------------------------------------


def _check_read(facts: Facts, op: Operation) -> Iterator[Finding]:
    """A read shows of every partition what became visible at its version or before, and nothing else."""
    result = result_of(op, of.Shown)
    shown = {(item.topic, item.partition): item.rows for item in result.rows}
    topics = asked(op, of.Read).topics
    lacking: dict[str, list[tuple[Place, parts.Row]]] = {}
    for place in sorted(shown.keys() | facts.log.keys()):
        if not facts.lives(place[0]) or (topics is not None and place[0] not in topics):
            continue
        rows = shown.get(place, ())
        yield from _check_gone(facts, op, place, rows)
        wanted = facts.left_at(place, facts.upto(place, result.version), result.version)
        if rows == wanted:
            continue
        first = min(rows[0].offset if rows else NEVER, facts.may_be_deleted(place, op.completed))
        wanted = tuple(row for row in wanted if row.offset >= first)
        if rows == wanted:
            continue
        erased = facts.may_be_erased(place[0], op.completed)
        offsets = {row.offset for row in rows}
        wanted = tuple(row for row in wanted if row.value not in erased or row.offset in offsets)
        if rows == wanted:
            continue
        left = {row.offset for row in (*rows, *wanted)}
        holes = (row for row in facts.upto(place, result.version) if row.offset >= first and row.offset not in left)
        yield from check_offsets(place, tuple(sorted((*rows, *holes))), (op,), first)
        yield from _check_rows(facts, op, place, rows)
        for row in wanted:
            if row.offset not in offsets:
                lacking.setdefault(row.txn, []).append((place, row))
    if lacking:
        yield from _check_lacking(op, shown, lacking)


def _check_gone(facts: Facts, op: Operation, place: Place, rows: tuple[parts.Row, ...]) -> Iterator[Finding]:
    """Nothing is shown that was deleted, erased or compacted at the version of a read, or before."""
    version = result_of(op, of.Shown).version
    gone = facts.surely_deleted(place, version)
    if rows and rows[0].offset < gone:
        text = f"{place[0]}/{place[1]}@{rows[0].offset} is read at {version}, and was deleted below {gone}"
        yield Finding(Anomaly.DELETED_READ, text, (op,))
    for row in rows if facts.erasures else ():
        if facts.surely_erased(place[0], row, version):
            text = f"{place[0]}/{place[1]}@{row.offset} is read at {version}, and was erased below that"
            yield Finding(Anomaly.ERASED_READ, text, (op,))
    removed = facts.removals.get(place, {})
    for row in rows if removed else ():
        if (since := removed.get(row.offset, NEVER)) <= version:
            text = f"{place[0]}/{place[1]}@{row.offset} is read at {version}, and was removed at {since}"
            yield Finding(Anomaly.REMOVED_READ, text, (op,))


def _check_rows(facts: Facts, op: Operation, place: Place, rows: tuple[parts.Row, ...]) -> Iterator[Finding]:
    """What is shown is what the log has there."""
    version = result_of(op, of.Shown).version
    strange: dict[str, list[parts.Row]] = {}
    for row in rows:
        if row.version > version:
            text = f"{place[0]}/{place[1]}@{row.offset} is of version {row.version}, read at {version}"
            yield Finding(Anomaly.FUTURE_READ, text, (op,))
        known = facts.row(place, row.offset)
        if known is None:
            strange.setdefault(row.txn, []).append(row)
        elif known != row:
            text = f"{place[0]}/{place[1]}@{row.offset} is {tuple(row)[1:]} here, and {tuple(known)[1:]} elsewhere"
            yield Finding(Anomaly.INCONSISTENT_OFFSETS, text, (op,))
    for found in strange.values():
        text = f"{place[0]}/{place[1]} shows {first_of(row.value for row in found)} of {found[0].txn}"
        yield _vanished(op, facts.owner(found[0]), text)


def _vanished(op: Operation, unit: Unit | None, text: str) -> Finding:
    """Somebody saw what is not in the log."""
    if unit is None:
        return Finding(Anomaly.GARBAGE, f"{text}, which nobody produced there", (op,))
    if unit.answers_of("ABORTED") or (unit.ended is not None and unit.ended.state == "ABORTED"):
        return Finding(Anomaly.ABORTED_READ, f"{text}, which is aborted", (op,))
    if unit.first_attempt > (op.completed or NEVER):
        return Finding(Anomaly.INTERMEDIATE_READ, f"{text}, whose commit was not called yet", (op,))
    return Finding(Anomaly.LOST_WRITE, f"{text}, which is gone in the end", (op,))


def _check_lacking(
    op: Operation,
    shown: dict[Place, tuple[parts.Row, ...]],
    lacking: dict[str, list[tuple[Place, parts.Row]]],
) -> Iterator[Finding]:
    """Messages up to the version that the read does not show, by transaction."""
    version = result_of(op, of.Shown).version
    places_of: dict[str, set[Place]] = {}
    for place, rows in shown.items():
        for row in rows:
            if row.txn in lacking:
                places_of.setdefault(row.txn, set()).add(place)
    for txn, found in lacking.items():
        text = f"version {version} without {first_of(row.value for _, row in found)} of {txn}"
        places = places_of.get(txn, set())
        if any(place in places for place, _ in found):
            yield Finding(Anomaly.INTERMEDIATE_READ, f"{text}, of which it shows a part in that partition", (op,))
        elif places:
            yield Finding(Anomaly.TORN_COMMIT, f"{text}, which it shows in another partition", (op,))
        else:
            yield Finding(Anomaly.UNSEEN, f"{text}, which became visible at {found[0][1].version}", (op,))


def _check_diverging(facts: Facts, versions: set[int]) -> Iterator[Finding]:
    """Two readers of one version see the same bytes. Reads that agree with the log agree with each other."""
    if not versions:
        return
    first: dict[tuple[int, tuple[str, ...] | None], Operation] = {}
    for op in facts.reads:
        version = result_of(op, of.Shown).version
        if version in versions:
            other = first.setdefault((version, asked(op, of.Read).topics), op)
            if _not_empty(other) != _not_empty(op):
                text = f"operations {other.number} and {op.number} read version {version} differently"
                yield Finding(Anomaly.DIVERGING_SNAPSHOTS, text, (other, op))


def _not_empty(op: Operation) -> list[parts.PartitionRows]:
    return sorted(item for item in result_of(op, of.Shown).rows if item.rows)


# --- real time ------------------------------------------------------------------------------------------------------


class _Early:
    """Finds transactions that were seen before anybody had asked for their commit."""

    def __init__(self, facts: Facts) -> None:
        units = [(unit.shown_version, unit.first_attempt, unit) for unit in facts.units if unit.attempts]
        shown = sorted((version, at, unit.name, unit) for version, at, unit in units if version is not None)
        self._units = shown
        self._versions = [version for version, _, _, _ in shown]
        self._latest = list(accumulate((at for _, at, _, _ in shown), max))

    def check(self, op: Operation, version: int) -> Iterator[Finding]:
        """A read at a version shows only what was to be committed before it returned."""
        known = bisect_right(self._versions, version)
        if known == 0 or op.completed is None or self._latest[known - 1] < op.completed:
            return
        for at, called, name, _ in self._units[:known]:
            if called > op.completed:
                text = f"version {version} was read, and {name} of version {at} was not to be committed yet"
                yield Finding(Anomaly.INTERMEDIATE_READ, text, (op,))


def _check_version(facts: Facts, op: Operation) -> Iterator[Finding]:
    """The version that was asked for; without one, none that is older than what was known before."""
    shown = result_of(op, of.Shown).version
    wanted = asked(op, of.Read).version
    known = facts.newest.before(op.invoked)
    if wanted is not None and shown != wanted:
        yield Finding(Anomaly.STALE_READ, f"version {wanted} was asked for, and {shown} was read", (op,))
    elif wanted is None and shown < known:
        text = f"the newest version was read as {shown}, and {known} had been acknowledged before"
        yield Finding(Anomaly.STALE_READ, text, (op,))


def _check_stale_commits(facts: Facts) -> Iterator[Finding]:
    """A commit gets a version behind all that were known when it was first asked for: the log has one end."""
    for unit in facts.units:
        version = unit.version
        if version is None or not unit.attempts or not (unit.runs or unit.has_effects):
            continue
        known = facts.newest.before(unit.first_attempt)
        if version <= known:
            text = f"{unit.name} has version {version}, and {known} was known before its commit was called"
            yield Finding(Anomaly.STALE_COMMIT, text, tuple(unit.attempts))


# --- what consumers got ---------------------------------------------------------------------------------------------


def _check_received(facts: Facts, op: Operation) -> Iterator[Finding]:
    """A consumer gets committed messages, at the offsets that they have."""
    topic = asked(op, of.Receive).topic
    if not facts.lives(topic):
        return
    assert op.completed is not None, "it succeeded"
    for message in result_of(op, of.Received).messages:
        place = (topic, message.partition)
        row = facts.row(place, message.offset)
        text = f"{topic}/{message.partition}@{message.offset} was received as {message.value}"
        if row is None:
            owners = facts.owners.get(message.value, ())
            yield _vanished(op, owners[0] if owners else None, text)
        elif row.value != message.value:
            yield Finding(Anomaly.INCONSISTENT_OFFSETS, f"{text}, and is {row.value}", (op,))
        else:
            owner = facts.owner(row)
            if owner is not None and owner.attempts and owner.first_attempt > op.completed:
                yield Finding(Anomaly.INTERMEDIATE_READ, f"{text}, whose commit was not called yet", (op,))


__all__ = ["check"]
