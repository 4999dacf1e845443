"""Reading every version of a namespace: what each shows, what is acknowledged there, and whether the two agree."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import txnlog
from tests.crash.spark.workload import (
    COUNTS,
    NAMESPACE,
    OF_ORDERS,
    ORDERS,
    POSITION,
    ROWS,
    SUBSCRIPTION,
    Engine,
    Step,
)
from txnlog.fold.state import State
from txnlog.format.actions import Segment
from txnlog.format.keys import SegmentKey, parse_key
from txnlog.testing import audit

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace

MOST_FINDINGS = 20


@dataclass
class History:
    """What a namespace shows, version by version.

    Attributes:
        steps: what each version that changed something changed.
        versions: how many versions were read.
        garbage: files that no entry names: dead tasks and drivers, and attempts that lost, left them.
        findings: what is wrong.
    """

    steps: list[Step] = field(default_factory=list)
    versions: int = 0
    garbage: int = 0
    findings: list[str] = field(default_factory=list)


def read_history(root: str, engine: Engine) -> History:
    """Read every version, each by itself, and compare what it shows with what is acknowledged there."""
    found = History()
    with txnlog.open(root, NAMESPACE, mode="r") as ns:
        newest = ns.snapshot().version
        numbers = _numbers(ns)
        before: dict[str, Counter[tuple[Any, ...]]] = {topic: Counter() for topic in engine.outputs}
        taken: set[int] = set()
        state = State()
        for version in range(newest + 1):
            ns._connection.follower.log.fold(state, version)
            present = [topic for topic in engine.outputs if _is_there(state, topic)]
            if len(present) < len(engine.outputs):
                continue
            snapshot = ns.snapshot(version=version)
            found.versions += 1
            rows = {topic: _rows(snapshot.read(topic)) for topic in engine.outputs}
            now = _ingested(state) if engine is Engine.INGEST else _acknowledged(ns, state, numbers)
            found.findings += [f"version {version}: {text}" for text in disagreements(engine, rows, now)]
            if rows != before or now != taken:
                for topic in engine.outputs:
                    if before[topic] - rows[topic] and topic not in engine.replaces:
                        found.findings.append(f"version {version}: rows of {topic} are gone that were there before")
                if taken - now:
                    found.findings.append(f"version {version}: acknowledged orders came back: {_few(taken - now)}")
                new = tuple((topic, tuple(sorted((rows[topic] - before[topic]).elements()))) for topic in before)
                found.steps.append(Step(new, tuple(sorted(now - taken))))
                before, taken = rows, now
        found.garbage = _garbage(ns, newest, engine)
        _audit(ns, found.findings)
        left = [str(item.txn_id) for item in ns.transactions(state="PREPARED")]
        found.findings += [f"the transaction {txn} is left" for txn in left]
    return found


def disagreements(engine: Engine, rows: dict[str, Counter[tuple[Any, ...]]], acknowledged: set[int]) -> list[str]:
    """What of one version's rows and its acknowledged orders does not fit together."""
    result = []
    shown: Counter[int] = Counter() if rows.keys() & OF_ORDERS else Counter(acknowledged)
    for topic in rows.keys() & OF_ORDERS:
        for row, times in rows[topic].items():
            shown[row[0]] += times
    twice = {number for number, times in shown.items() if times > 1}
    if twice:
        result.append(f"orders took effect twice: {_few(twice)}")
    if lost := acknowledged - shown.keys():
        result.append(f"orders are acknowledged and took no effect: {_few(lost)}")
    if early := shown.keys() - acknowledged:
        result.append(f"orders took effect and are not acknowledged: {_few(early)}")
    if COUNTS in rows:
        batches, more = divmod(len(acknowledged), ROWS)
        if more or acknowledged != {*range(batches * ROWS)}:
            result.append(f"other orders are acknowledged than those of whole batches: {_few(acknowledged)}")
        elif (counts := rows[COUNTS]) != (wanted := engine.counts_shown(batches)):
            result.append(f"the counts are {_few(counts)}, and of {batches} acknowledged batches {_few(wanted)}")
    return result


def differences(found: list[Step], wanted: list[Step]) -> list[str]:
    """Where two histories part; nothing where they are equal."""
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=False)):
        if mine != theirs:
            return [f"batch {number} is {_told(mine)} instead of {_told(theirs)}"]
    if len(found) != len(wanted):
        return [f"{len(found)} batches took effect instead of {len(wanted)}"]
    return []


def _told(step: Step) -> str:
    return f"orders {_few(step.taken)} with {', '.join(f'{len(rows)} rows of {topic}' for topic, rows in step.rows)}"


def _few(numbers: Any) -> str:
    known = sorted(numbers)
    return ", ".join(map(str, known[:5])) + (f" and {len(known) - 5} more" if len(known) > 5 else "")


def _is_there(state: State, topic: str) -> bool:
    return topic in state.topic_names


def _rows(table: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def _numbers(ns: Namespace) -> dict[int, list[int]]:
    """By partition of the orders, their ids in the order of offsets."""
    table = ns.snapshot().read(ORDERS, include_metadata=True)
    result: dict[int, list[int]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: (row["_partition"], row["_offset"])):
        partition = result.setdefault(row["_partition"], [])
        assert row["_offset"] == len(partition), "offsets have no gaps"
        partition.append(row["id"])
    return result


def _ingested(state: State) -> set[int]:
    """The orders that are below the position of the ingestion: each has its offset as its number."""
    record = state.streams.get(POSITION)
    return set() if record is None else {*range(record.batch)}


def _acknowledged(ns: Namespace, state: State, numbers: dict[int, list[int]]) -> set[int]:
    """The orders that are taken off at the version of a state."""
    number = state.subscription_names.get((ns.topic(ORDERS).id, SUBSCRIPTION))
    if number is None:
        return set()
    result: set[int] = set()
    for partition, ids in numbers.items():
        cursor = state.cursors[number, partition]
        result.update(ids[: cursor.position])
        for low, high in cursor.acknowledged:
            result.update(ids[low:high])
    return result


def _audit(ns: Namespace, findings: list[str]) -> None:
    """The log by itself: its entries, its checkpoint, and the files that it names."""
    follower = ns._connection.follower

    def problem(kind: str, text: str) -> None:
        findings.append(f"{kind}: {text}")

    zero, _ = audit.replay(follower.log, problem)
    audit.compare_state("a reader", zero, follower, problem)
    findings += [f"{file} is gone" for file in audit.missing_files(zero, audit.reading(follower.log.store), problem)]


def _garbage(ns: Namespace, newest: int, engine: Engine) -> int:
    """Files that are on the store and that no entry names."""
    named: set[tuple[int, str]] = set()
    for version in range(newest + 1):
        entry = ns._connection.follower.log.entry(version)
        named |= {(item.segment, item.file) for item in entry.actions if isinstance(item, Segment)}
    result = 0
    for topic in engine.outputs:
        for item in ns._connection.store.list(f"{topic}/"):
            key = parse_key(item.key)
            result += isinstance(key, SegmentKey) and (key.segment, key.file) not in named
    return result


__all__ = ["History", "differences", "disagreements", "read_history"]
