"""Backups, and what was restored of them: whole, of one version, and a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.testing import operation_parts as parts
from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding, first_of
from txnlog.testing.facts import NEVER, Facts, Place, asked, result_of
from txnlog.testing.history import Operation

_FOR_GOOD = frozenset({"InvalidInputError", "CorruptionError"})
"""Errors that say that the same restore will not do better."""

_COORDINATOR_DIGITS = 4


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of backups, of restores, and of what was read of those."""
    backups = [op for op in facts.ops("backup") if op.succeeded]
    for op in backups:
        version, known = result_of(op, of.BackedUp).version, facts.newest.before(op.invoked)
        wanted = asked(op, of.Backup).version
        if (wanted is None and version < known) or (wanted is not None and version != wanted):
            text = f"a backup of version {version}, where {known if wanted is None else wanted} was to be in it"
            yield Finding(Anomaly.STALE_BACKUP, text, (op,))
    yield from _check_restores(facts, {result_of(op, of.BackedUp).version: op for op in backups})
    yield from _check_identities(facts)
    for op in facts.ops("read_restored"):
        if op.succeeded:
            yield from _check_rows(facts, op)


def _check_restores(facts: Facts, made: dict[int, Operation]) -> Iterator[Finding]:
    """A backup that was made can be restored, in the end."""
    last: dict[int, Operation] = {}
    for op in facts.ops("restore"):
        last[asked(op, of.Restore).version] = op
        if op.succeeded and (shown := result_of(op, of.Restored).version) != asked(op, of.Restore).version:
            text = f"version {asked(op, of.Restore).version} was to be restored, and {shown} was"
            yield Finding(Anomaly.STALE_BACKUP, text, (op,))
    for version, op in last.items():
        if version in made and op.error in _FOR_GOOD:
            text = f"the backup of version {version} was reported as made, and cannot be restored: {op.error}"
            yield Finding(Anomaly.LOST_BACKUP, text, (made[version], op))


def _check_identities(facts: Facts) -> Iterator[Finding]:
    """No two namespaces give TxnIDs with the same coordinator id."""
    owners: dict[str, tuple[str, Operation | None]] = {}
    for unit in facts.transactions.values():
        owners[unit.name[:_COORDINATOR_DIGITS]] = ("the original", None)
    for op in facts.ops("read_restored"):
        if op.succeeded:
            txn, name = result_of(op, of.RestoredShown).txn, asked(op, of.ReadRestored).name
            owner, other = owners.setdefault(txn[:_COORDINATOR_DIGITS], (name, op))
            if owner != name:
                text = f"{txn} is a transaction of {name}, and its coordinator id is that of {owner}"
                yield Finding(Anomaly.SHARED_IDENTITY, text, (op,) if other is None else (other, op))


def _check_rows(facts: Facts, op: Operation) -> Iterator[Finding]:
    """What was restored shows what became visible at the version of its backup or before, and nothing else."""
    version, name = asked(op, of.ReadRestored).version, asked(op, of.ReadRestored).name
    shown = {(item.topic, item.partition): item.rows for item in result_of(op, of.RestoredShown).rows}
    whole = {row.txn for rows in shown.values() for row in rows}
    lacking: dict[str, list[tuple[Place, parts.Row]]] = {}
    for place in sorted(shown.keys() | facts.log.keys()):
        rows = shown.get(place, ())
        strange = [row for row in rows if row.version > version or facts.row(place, row.offset) != row]
        if strange and facts.lives(place[0]):
            text = f"{name}: {place[0]}/{place[1]} shows {first_of(strange)}, which was not there at version {version}"
            yield Finding(Anomaly.TORN_BACKUP, text, (op,))
        if not facts.lives(place[0]):
            continue
        first = min(rows[0].offset if rows else NEVER, facts.may_be_deleted(place, op.completed))
        erased = facts.may_be_erased(place[0], op.completed)
        for row in facts.upto(place, version):
            if row.offset >= first and row.value not in erased and row not in rows:
                lacking.setdefault(row.txn, []).append((place, row))
    for txn, found in lacking.items():
        text = f"{name}: version {version} without {first_of(row.value for _, row in found)} of {txn}"
        if txn in whole:
            yield Finding(Anomaly.TORN_BACKUP, f"{text}, of which it shows a part", (op,))
        else:
            yield Finding(Anomaly.INCOMPLETE_BACKUP, text, (op,))


__all__ = ["check"]
