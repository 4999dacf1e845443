"""What is left after a crash run, gathered by a process that took no part in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import txnlog
from tests.crash import journal
from tests.crash.journal import Line
from tests.crash.plan import DEAD_LETTERS, TOPICS, Plan
from txnlog.common import ranges
from txnlog.common.ids import TxnId
from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format import keys
from txnlog.format.actions import Producer
from txnlog.format.codec import decode_entry
from txnlog.log import checkpoint_codec
from txnlog.log.follower import Follower

OLDER_VERSIONS = 3
USER_COLUMNS = ("label", "part", "contents", "sequence", "source", "source_partition", "source_offset")


@dataclass(frozen=True, slots=True)
class Row:
    """A message as a reader sees it."""

    label: str
    part: int
    contents: str
    sequence: int | None
    source: str | None
    source_partition: int | None
    source_offset: int | None
    partition: int
    offset: int
    txn: str
    version: int


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the message as it was, where it lay, and how often it was delivered again."""

    label: str
    part: int
    partition: int
    offset: int
    redeliveries: int


@dataclass(frozen=True, slots=True)
class Told:
    """What somebody was told of a transaction: at first sight, and by the abort that makes it definite."""

    seen: str
    state: str
    version: int | None = None


@dataclass
class Evidence:
    """Journals, answers, rows, cursors and the log itself.

    Attributes:
        intents: by label the line, with the name of the ``process`` that wrote it.
        outcomes: by label all lines, in order.
        asked: by label, what each process that asked was told, in order.
        epochs: by process its producer's name and epoch.
        rows: by topic, in order of partition and offset.
        older: by version and topic, which (partition, offset, label, part) a reader sees there.
        cursors: by subscription and partition the acknowledged offsets, and how many are pending.
        started: by producer name the versions at which it was started.
        outcomes_in_log: by TxnID state and version, of a fold from entry 0.
        letters: the dead letters.
        drained: by subscription and partition, the offsets that a fresh consumer received at the end, in order.
        decided: by TxnID, the ends that those were told who brought the outside system's decision.
        stray: files that are on the store after the last vacuum, and that no committed reader needs.
        damage: what is wrong with the log or a checkpoint in itself.
    """

    intents: dict[str, Line] = field(default_factory=dict)
    outcomes: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[str, list[Told]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[str, tuple[str, int]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    older: dict[int, dict[str, list[tuple[int, int, str, int]]]] = field(default_factory=dict)
    cursors: dict[str, dict[int, tuple[ranges.Ranges, int]]] = field(default_factory=dict)
    started: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    outcomes_in_log: dict[str, tuple[str, int]] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    drained: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    decided: dict[str, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))
    stray: list[str] = field(default_factory=list)
    nights: int = 0
    deleted: int = 0
    closed: int = 0
    damage: list[str] = field(default_factory=list)
    version: int = -1


def read_journals(plan: Plan) -> Evidence:
    """What the processes said of themselves."""
    found = Evidence()
    for name, lines in journal.read_all(plan.journals):
        for line in lines:
            kind = line["kind"]
            if kind == "intent":
                found.intents[line["label"]] = line | {"process": name}
            elif kind == "outcome":
                found.outcomes[line["label"]].append(line)
            elif kind == "answer":
                found.asked[line["label"]].append(Told(line["first"], line["state"]))
            elif kind == "start":
                found.epochs[name] = (line["producer"], line["epoch"])
            elif kind == "decided":
                found.decided[line["txn"]].append((line["state"], line["version"]))
            elif kind == "night":
                found.nights += 1
            elif kind == "vacuum":
                found.deleted += line.get("files", 0)
                found.closed += line.get("blocks", 0)
            elif kind == "broken":
                found.broken.append(f"{name}: {line['error']}")
    return found


def gather(plan: Plan, ns: txnlog.Namespace) -> Evidence:
    """Everything, by a fresh handle."""
    found = read_journals(plan)
    for name in ("first", "second"):
        for label, told in json.loads(answers_path(plan, name).read_text()).items():
            found.asked[label].append(Told(**told))
    snapshot = ns.snapshot()
    found.version = snapshot.version
    for topic in TOPICS:
        found.rows[topic] = rows_of(snapshot, topic)
    found.letters = letters_of(snapshot)
    for name, parts in json.loads(drained_path(plan).read_text()).items():
        found.drained[name] = {int(partition): offsets for partition, offsets in parts.items()}
    readable = range(ns._connection.follower.state.head.oldest_readable, snapshot.version)
    for version in sorted(plan.random("older versions").sample(readable, min(OLDER_VERSIONS, len(readable)))):
        older = ns.snapshot(version=version)
        found.older[version] = {
            topic: [(row.partition, row.offset, row.label, row.part) for row in rows_of(older, topic)]
            for topic in older.topics()
            if topic in TOPICS
        }
    for name in ns.subscriptions("orders"):
        found.cursors[name] = {
            item.partition: (ranges.union(((0, item.cursor),) if item.cursor else (), item.acknowledged), item.pending)
            for item in ns.subscription("orders", name).cursors
        }
    read_log(ns._connection.follower, found)
    return found


def rows_of(snapshot: txnlog.Snapshot, topic: str) -> list[Row]:
    """The rows of a topic with their places, in order."""
    table = snapshot.read(topic, columns=USER_COLUMNS, include_metadata=True)
    table = table.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    columns = [table.column(name).to_pylist() for name in (*USER_COLUMNS, "_partition", "_offset")]
    txns = [TxnId.from_bytes(item) for item in table.column("_txn_id").to_pylist()]
    versions = table.column("_version").to_pylist()
    return [Row(*values) for values in zip(*columns, map(str, txns), versions, strict=True)]


def letters_of(snapshot: txnlog.Snapshot) -> list[Letter]:
    """The dead letters."""
    names = ("label", "part", "_source_partition", "_source_offset", "_redeliveries")
    table = snapshot.read(DEAD_LETTERS, columns=names)
    return [Letter(*values) for values in zip(*(table.column(name).to_pylist() for name in names), strict=True)]


def read_log(follower: Follower, found: Evidence) -> None:
    """Fold the log from entry 0, and hold what a reader restored from a checkpoint against it."""
    log = follower.log
    state = State()
    while state.head.version < follower.version:
        first = state.head.version + 1
        for number, data in enumerate(log.get_many(first, 64), first):
            entry = decode_entry(data, number)
            apply_entry(state, entry)
            for action in entry.actions:
                if isinstance(action, Producer):
                    found.started[action.name].append(number)
        if state.head.version < first:
            found.damage.append(f"entry {first} is missing below the tail, {follower.version}")
            return
    for outcome in state.outcomes.values():
        txn = str(state.txn_id(outcome.number))
        found.outcomes_in_log[txn] = (outcome.state, outcome.version)
    _compare_files(follower, state, found)
    found.damage.extend(_differences(follower, state))


def _compare_files(follower: Follower, state: State, found: Evidence) -> None:
    """Nobody is at work and a vacuum was there: the files are those that the log shows as visible.

    Of signs of life there are those of the newest consumers.
    """
    for topic in state.topics.values():
        needed = {
            keys.segment_key(topic.folder, record.number, record.file)
            for record in state.segments.values()
            if record.topic == topic.id and record.state == "visible"
        }
        there = {info.key for info in follower.log.store.list(keys.segments_prefix(topic.folder))}
        found.damage.extend(f"{key} is missing" for key in sorted(needed - there))
        found.stray.extend(sorted(there - needed))
    for info in follower.log.store.list(keys.HINT_FOLDER):
        key = keys.parse_key(info.key)
        if isinstance(key, keys.HintKey):
            record = state.subscriptions.get(key.subscription)
            if record is None or key.epoch != record.epoch:
                found.stray.append(info.key)


def _differences(follower: Follower, folded: State) -> Iterable[str]:
    """Where a checkpoint with the tail after it is not the fold of all entries."""
    restored, manifest, _ = follower.log.load()
    if manifest is not None:
        ended = checkpoint_codec.cold_rows(folded)
        for kind in checkpoint_codec.COLD_KINDS:
            runs = [follower.log.checkpoints.read_run(part) for part in manifest.runs(kind)]
            after = checkpoint_codec.cold_rows(restored)[kind]
            rows = checkpoint_codec.merge_runs(kind, [*runs, after], expired_before_ms=0)
            if not rows.equals(checkpoint_codec.merge_runs(kind, [ended[kind]], expired_before_ms=0)):
                yield f"the {kind} of the checkpoint at {manifest.version} are not those of the log"
        checkpoint_codec.trim(folded, manifest.version)
    for name, table in folded.as_tables().items():
        if table != restored.as_tables()[name]:
            yield f"the table {name!r} restored from a checkpoint is not the fold of all entries"


def answers_path(plan: Plan, name: str) -> Path:
    """Where the answers of one asking process are."""
    return Path(plan.folder) / f"answers-{name}.json"


def drained_path(plan: Plan) -> Path:
    """Where it stands what the last consumers received."""
    return Path(plan.folder) / "drained.json"
