"""Truncation: with a commit that truncates a topic all its earlier messages are gone, and no others come with it."""

from __future__ import annotations

from collections.abc import Iterator

from txnlog.testing import operations as of
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.facts import NEVER, Facts, Unit, asked
from txnlog.testing.history import Operation


def check(facts: Facts) -> Iterator[Finding]:
    """Findings of what went with commits, and of what did not."""
    truncating = [unit for unit in facts.transactions.values() if unit.truncates]
    if facts.final is None or not (truncating or facts.truncated):
        return
    by_version: dict[int | None, list[Unit]] = {}
    for unit in truncating:
        if facts.fate(unit) == "committed":
            by_version.setdefault(_version_of(unit), []).append(unit)
            yield from _check_whole(facts, unit)
    for item in facts.truncated:
        text = f"{item.topic}/{item.partition}@{item.offset} went at {item.version}"
        wanted = [op for unit in by_version.get(item.version, ()) for op in _truncating(unit, item.topic)]
        if not wanted:
            yield Finding(Anomaly.TRUNCATED_UNASKED, f"{text}, with no commit that truncates the topic")
        elif item.needed_by and all(asked(op, of.Truncate).kept for op in wanted):
            needed = f"{text}, which {', '.join(item.needed_by)} needed"
            yield Finding(Anomaly.TRUNCATED_UNACKNOWLEDGED, needed, tuple(wanted))


def _version_of(unit: Unit) -> int | None:
    """The version that shows what a transaction did, which may be no row."""
    return unit.version if unit.ended is None or unit.ended.version is None else unit.ended.version


def _truncating(unit: Unit, topic: str) -> list[Operation]:
    return [op for op in unit.truncates if op.possible and asked(op, of.Truncate).topic == topic]


def _check_whole(facts: Facts, unit: Unit) -> Iterator[Finding]:
    """Of each topic that it truncates only its own messages are shown at its version."""
    version = _version_of(unit)
    if version is None:
        return
    sure = {asked(op, of.Truncate).topic: op for op in unit.truncates if op.succeeded}
    for place, rows in facts.log.items():
        op = sure.get(place[0])
        if op is None:
            continue
        gone, deleted = facts.removals.get(place, {}), facts.may_be_deleted(place, None)
        for row in rows:
            if row.offset < deleted:
                continue
            name = f"{place[0]}/{place[1]}@{row.offset}"
            if row.version < version < gone.get(row.offset, NEVER):
                yield Finding(Anomaly.TORN_TRUNCATION, f"{name} stays, and {unit.name} truncates at {version}", (op,))
            elif row.version == version and facts.owner(row) is not unit:
                yield Finding(
                    Anomaly.TORN_TRUNCATION, f"{name} comes at {version}, with which {unit.name} truncates", (op,)
                )


__all__ = ["check"]
