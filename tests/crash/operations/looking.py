"""What a namespace shows to a process that has just come, and what lies on the disk that nobody needs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from tests.crash.operations.operations import ERASED
from txnlog.api.namespace import Namespace
from txnlog.fold.garbage import is_needed
from txnlog.format import keys
from txnlog.log.checkpoint_codec import decode_manifest
from txnlog.results import CheckLevel
from txnlog.store.key_guard import TEMPORARY_PREFIX

Rows = tuple[tuple[Any, ...], ...]
Topic = tuple[Rows, tuple[tuple[int, int], ...]]
"""The rows of a topic with all their metadata, and where its partitions end."""


@dataclass(frozen=True)
class Shown:
    """What a namespace shows.

    Attributes:
        oldest: the oldest version that can be read, and ``newest`` the newest one.
        topics: by version and name.
        others: all that no version has: settings, cursors, transactions, producers.
    """

    oldest: int
    newest: int
    topics: Mapping[int, Mapping[str, Topic]] = field(repr=False)
    others: Mapping[str, object]

    def states(self, topic: str, since: int) -> list[Topic | None]:
        """What a topic is from a version on, each state that differs from the one before. None: it is not there."""
        found: list[Topic | None] = []
        for version in range(max(since, self.oldest), self.newest + 1):
            state = self.topics[version].get(topic)
            if not found or found[-1] != state:
                found.append(state)
        return found

    @property
    def names(self) -> set[str]:
        """Of all topics of all versions."""
        return {name for topics in self.topics.values() for name in topics}


def shown(ns: Namespace) -> Shown:
    """What a namespace shows at all of its readable versions."""
    state = ns._connection.follower.state
    oldest, newest = state.head.oldest_readable, state.head.version
    topics: dict[int, dict[str, Topic]] = {}
    known: dict[object, Rows] = {}
    for version in range(oldest, newest + 1):
        snapshot = ns.snapshot(version)
        topics[version] = {}
        for name in snapshot.topics():
            plan = snapshot.plan(name).segments  # neighbours are read from the same files: once is enough
            if plan not in known:
                known[plan] = _rows(snapshot, name)
            topics[version][name] = (known[plan], tuple(sorted(snapshot.end_offsets(name).items())))
    return Shown(oldest, newest, topics, _others(ns))


def _rows(snapshot: Any, topic: str) -> Rows:
    table = snapshot.read(topic, include_metadata=True)
    names = sorted(table.column_names)
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    place = names.index("_partition"), names.index("_offset")
    return tuple(sorted(rows, key=lambda row: (row[place[0]], row[place[1]])))


def _others(ns: Namespace) -> dict[str, object]:
    state = ns._connection.follower.state
    found: dict[str, object] = {}
    for record in state.topics.values():
        settings = msgspec.to_builtins(record)
        # An entry more or less before a change is no difference.
        settings.pop("dropped_version", None)
        settings.get("properties", {}).pop("txnlog.compacted_ms", None)  # when that was
        found[f"settings of {record.name}"] = settings
    for item in state.subscriptions.values():
        topic = state.topics[item.topic]
        if not topic.dropped:
            cursors = ns.subscription(topic.name, item.name).cursors
            found[f"cursors of {item.name}"] = [(at.partition, at.cursor, at.acknowledged) for at in cursors]
    found["transactions"] = sorted((item.state, str(item.txn_id)) for item in ns.transactions() if _is_open(item))
    return found


def _is_open(item: Any) -> bool:
    return item.state in {"OPEN", "PREPARED"}


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(found: Shown, wanted: Shown, since: int) -> Iterator[str]:
    """What is otherwise than in an undisturbed run, ``since`` whose version the operation writes."""
    if found.oldest != wanted.oldest:
        yield f"versions can be read from {found.oldest} on, and not from {wanted.oldest} on"
    for version in range(max(found.oldest, wanted.oldest), since):
        for name in sorted(found.names | wanted.names):
            if found.topics[version].get(name) != wanted.topics[version].get(name):
                yield f"version {version} shows other rows of {name}"
    for name in sorted(found.names | wanted.names):
        have, want = found.states(name, since), wanted.states(name, since)
        if have != want:
            yield f"{name} comes to {_told(have)}, and in an undisturbed run to {_told(want)}"
    for what in sorted(found.others.keys() | wanted.others.keys()):
        if found.others.get(what) != wanted.others.get(what):
            yield f"{what}: {found.others.get(what)} is not {wanted.others.get(what)}"


def odd_amid(found: Shown, before: Shown, after: Shown) -> Iterator[str]:
    """What a namespace shows behind a kill that it shows neither before an operation nor at any version after it."""
    since = before.newest
    if not before.oldest <= found.oldest <= after.oldest:
        yield f"versions can be read from {found.oldest} on: it was {before.oldest}, and comes to {after.oldest}"
    for version in range(max(found.oldest, before.oldest), since + 1):
        for name in sorted(found.names | before.names):
            state, known = found.topics[version].get(name), before.topics[version].get(name)
            if version >= after.oldest:
                fits = state in (known, after.topics[version].get(name))
            else:
                fits = state == known or _is_known_without_deleted(state, known, after.topics[after.newest].get(name))
            if not fits:
                yield f"amid it version {version} shows rows of {name} as never: {_told([state])}"
    for name in sorted(found.names | before.names):
        course = [before.topics[since].get(name), *after.states(name, since)]
        at = 0
        for state in found.states(name, since):
            if state not in course[at:]:
                yield f"amid it {name} comes to {_told(found.states(name, since))}, out of {_told(course)}"
                break
            at = course.index(state, at)
    for what in sorted(found.others.keys() | before.others.keys()):
        known_others = (before.others.get(what), after.others.get(what))
        if found.others.get(what) not in known_others:
            yield f"amid it {what}: {found.others.get(what)} is none of {known_others}"


def _is_known_without_deleted(state: Topic | None, known: Topic | None, last: Topic | None) -> bool:
    """Whether a topic is as it was, but for rows that are deleted at every version, and so not there at the end."""
    if state is None or known is None:
        return False
    gone = {*known[0]} - {*state[0]}
    return state[1] == known[1] and {*state[0]} <= {*known[0]} and not gone & {*(last or ((),))[0]}


def _told(states: list[Topic | None]) -> str:
    return ", ".join("nothing" if state is None else f"{len(state[0])} rows up to {dict(state[1])}" for state in states)


# --- what is left -----------------------------------------------------------------------------------------------------


def fsck_problems(ns: Namespace, level: CheckLevel = "deep") -> Iterator[str]:
    """Everything that a check finds, but for notes."""
    for item in ns.fsck(level).findings:
        if item.severity != "note":
            yield f"fsck: {item.severity} of {item.key}: {item.message}"


@dataclass(frozen=True)
class Left:
    """What lies in a namespace's folder and is no part of it.

    Attributes:
        strays: files that a vacuum should have deleted.
        kept: objects of checkpoints, and of the table of segments, that nothing names: the format keeps them (P-133).
    """

    strays: tuple[str, ...]
    kept: int


def left_in(ns: Namespace, folder: Path) -> Left:
    """Look through all files, also those that no listing shows."""
    state = ns._connection.follower.state
    needed = {
        keys.segment_key(topic.folder, record.number, record.file)
        for topic in ns._connection.follower.topics()
        for records, removals in (ns._connection.follower.segments(topic.id),)
        for record in records
        if is_needed(record, removals, topic.dropped_version, state.head.oldest_readable)
    }
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    named = {part for key in found for part in _parts_of(folder, key)}
    strays = list(temporary_in(folder))
    kept = 0
    for key in found:
        parsed = keys.parse_key(key)
        if isinstance(parsed, keys.SegmentKey):
            if key not in needed:
                strays.append(f"{key} is a segment that nobody needs")
        elif isinstance(parsed, keys.PartKey):
            kept += parsed.unique not in named
        elif (parsed is None and TEMPORARY_PREFIX not in key) or isinstance(
            parsed, keys.MailboxKey | keys.HeartbeatKey
        ):
            strays.append(f"{key} is nothing that stays")
    return Left(tuple(strays), kept)


def temporary_in(folder: Path) -> Iterator[str]:
    """The temporary files below a folder."""
    for path in sorted(folder.rglob(f"{TEMPORARY_PREFIX}*")):
        yield f"{path.relative_to(folder)} is a temporary file"


def _parts_of(folder: Path, key: str) -> list[str]:
    parsed = keys.parse_key(key)
    if not isinstance(parsed, keys.ManifestKey):
        return []
    return [part.unique for part in decode_manifest((folder / key).read_bytes(), parsed.version).parts]


def with_erased(folder: Path) -> Iterator[str]:
    """The files in which an erased value is left: Parquet read as that, everything else as it is."""
    wanted = ERASED.encode()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if wanted in data or (data[:4] == b"PAR1" and ERASED in _texts(data)):
                yield f"an erased value is left in {path.relative_to(folder)}"


def _texts(data: bytes) -> set[str]:
    try:
        table = pq.read_table(io.BytesIO(data))
    except OSError:
        return set()
    return {str(value) for column in table.columns for value in column.to_pylist()}


__all__ = [
    "Left",
    "Shown",
    "differences",
    "fsck_problems",
    "left_in",
    "odd_amid",
    "shown",
    "temporary_in",
    "with_erased",
]
