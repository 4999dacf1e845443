"""What must hold of published tables. Pure: bytes, facts of the log and rows in, findings out.

The Delta log is read here once more, by Delta's rules and without the code that publishes.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.keys import SEGMENT_COLUMN

MOST_TOLD = 3


@dataclass(frozen=True)
class File:
    """A segment that the log shows: ``spans`` are its partitions, first offsets and counts, by its rows."""

    path: str
    number: int
    rows: int
    size_bytes: int
    spans: tuple[tuple[int, int, int], ...]
    since: int
    removed: int | None = None

    def is_there(self, version: int) -> bool:
        """Whether a reader of the log sees it at a version."""
        return self.since <= version and (self.removed is None or self.removed > version)


@dataclass(frozen=True)
class Facts:
    """What the log says of a topic: its id, the columns by version, its files, and when it was dropped."""

    name: str
    topic: int
    schemas: tuple[tuple[int, tuple[tuple[str, Any], ...]], ...]
    files: tuple[File, ...]
    dropped: int | None = None

    def changes(self) -> set[int]:
        """The versions at which the table is another one."""
        found = {self.topic, *(version for version, _ in self.schemas), *(item.since for item in self.files)}
        found |= {item.removed for item in self.files if item.removed is not None}
        return found | ({self.dropped} if self.dropped is not None else set())

    def columns_at(self, version: int) -> tuple[tuple[str, Any], ...]:
        """Names and Delta types of the columns at a version."""
        return [columns for since, columns in self.schemas if since <= version][-1]


@dataclass
class Published:
    """What lies in the Delta log of a table.

    Attributes:
        commits: by version the bytes.
        seen: by version the bytes that somebody found there before.
        checkpoints: by version the paths that a checkpoint adds.
        hint: the version that ``_last_checkpoint`` names.
        others: names in the folder that are nothing of these.
    """

    commits: Mapping[int, bytes]
    seen: Mapping[int, bytes] = field(default_factory=dict)
    checkpoints: Mapping[int, frozenset[str]] = field(default_factory=dict)
    hint: int | None = None
    others: tuple[str, ...] = ()


@dataclass
class Replay:
    """A table as its commits make it.

    Attributes:
        shown: what version of the namespace each version shows.
        files: by version the paths.
        findings: what is wrong.
    """

    shown: list[int] = field(default_factory=list)
    files: list[frozenset[str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def actions_of(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The actions of a commit. Raises ValueError for what is none, or half of one."""
    if not data.endswith(b"\n"):
        raise ValueError("its last line is cut")
    found: list[tuple[str, dict[str, Any]]] = []
    for line in data.splitlines():
        item = json.loads(line)
        if not isinstance(item, dict) or len(item) != 1:
            raise ValueError(f"no action: {line[:60]!r}")
        found.extend(item.items())
    paths = Counter((kind, body["path"]) for kind, body in found if kind in {"add", "remove"})
    if twice := [path for path, count in paths.items() if count > 1]:
        raise ValueError(f"it says twice: {twice[:MOST_TOLD]}")
    return found


def check_topic(facts: Facts, published: Published, *, complete: bool) -> list[str]:
    """All findings about a topic's table. ``complete``: its newest version shows what the log shows last."""
    return [f"{facts.name}~{facts.topic}: {text}" for text in _check_topic(facts, published, complete=complete)]


def _check_topic(facts: Facts, published: Published, *, complete: bool) -> Iterator[str]:
    yield from check_log(published)
    replay = _replay(facts, published.commits)
    yield from replay.findings
    yield from _check_checkpoints(published, replay)
    if complete and replay.shown:
        changes = facts.changes()
        if replay.shown[-1] < max(changes):
            yield f"the newest version shows {replay.shown[-1]}, and the log changed it at {max(changes)}"


def check_log(published: Published) -> Iterator[str]:
    """Of any table: versions are dense, and what was published once stays as it was."""
    versions = sorted(published.commits)
    if versions != list(range(len(versions))):
        yield f"versions are not dense: {_gap(versions)}"
    for version, data in published.seen.items():
        now = published.commits.get(version)
        if now is None:
            yield f"version {version} was there, and is gone"
        elif now != data:
            yield f"version {version} was changed after it was published"
    if published.others:
        yield f"strangers in the Delta log: {published.others[:MOST_TOLD]}"
    if published.hint is not None and published.hint not in published.checkpoints:
        yield f"_last_checkpoint names {published.hint}, which is not there"


def _gap(versions: list[int]) -> list[int]:
    at = next((index for index, version in enumerate(versions) if index != version), len(versions))
    return versions[max(0, at - 2) : at + 2]


def _check_checkpoints(published: Published, replay: Replay) -> Iterator[str]:
    for version, paths in published.checkpoints.items():
        if version >= len(replay.files):
            yield f"the checkpoint of {version} has no version"
        elif paths != replay.files[version]:
            yield f"the checkpoint of {version} has other files than the version: {_odd(paths, replay.files[version])}"


def _odd(found: frozenset[str], wanted: frozenset[str]) -> str:
    more, less = sorted(found - wanted), sorted(wanted - found)
    return f"{len(more)} too many {more[:MOST_TOLD]}, {len(less)} too few {less[:MOST_TOLD]}"


def _replay(facts: Facts, commits: Mapping[int, bytes]) -> Replay:
    """The versions one after the other, each held against what the log shows there."""
    table = _Table(facts)
    for version in sorted(commits):
        try:
            table.carry_out(version, actions_of(commits[version]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            table.replay.findings.append(f"version {version} is no whole commit: {error!r}")
            break
    table.end()
    return table.replay


class _Table:
    """A table while its commits are carried out."""

    def __init__(self, facts: Facts) -> None:
        self.replay = Replay()
        self._facts = facts
        self._known = {item.path: item for item in facts.files}
        self._changes = facts.changes()
        self._files: set[str] = set()
        self._columns: tuple[tuple[str, Any], ...] = ()
        self._told: Counter[str] = Counter()
        self._loud = False
        self._last_ms = -1

    def carry_out(self, version: int, actions: list[tuple[str, dict[str, Any]]]) -> None:
        """One commit."""
        shows = self._header(version, actions)
        for kind, body in actions:
            if kind == "add":
                self._add(version, body)
            elif kind == "remove":
                self._remove(version, body)
            elif kind == "metaData":
                fields = json.loads(body["schemaString"])["fields"]
                self._columns = tuple((item["name"], item["type"]) for item in fields)
        replay = self.replay
        replay.shown.append(shows)
        replay.files.append(frozenset(self._files))
        wanted = frozenset(item.path for item in self._facts.files if item.is_there(shows))
        if self._files != wanted:
            self._find(version, f"shows {shows}, and has {_odd(frozenset(self._files), wanted)} files")
        if self._columns != (*self._facts.columns_at(shows), (SEGMENT_COLUMN, "long")):
            self._find(version, f"shows {shows}, and has the columns {[name for name, _ in self._columns]}")

    def _header(self, version: int, actions: list[tuple[str, dict[str, Any]]]) -> int:
        """The version of the namespace that a commit shows, by what it says of itself."""
        kinds = [kind for kind, _ in actions]
        info = actions[0][1]
        says = info["txnlog"]
        before = self.replay.shown[-1] if self.replay.shown else -1
        domains = [body for kind, body in actions if kind == "domainMetadata"]
        if kinds[0] != "commitInfo" or kinds.count("protocol") != (version == 0) or len(domains) != 1:
            self._find(version, f"has the actions {sorted(set(kinds))}")
        elif json.loads(domains[0]["configuration"])["version"] != says["version"]:
            self._find(version, "contradicts itself")
        if says["topic"] != self._facts.topic or says["before"] != before or says["version"] <= before:
            self._find(version, f"says {says}, behind {before}")
        if says["version"] not in self._changes:
            self._find(version, f"shows {says['version']}, where nothing changed")
        if info["inCommitTimestamp"] <= self._last_ms:
            self._find(version, "is no later than the one before")
        self._last_ms = info["inCommitTimestamp"]
        return int(says["version"])

    def _add(self, version: int, body: dict[str, Any]) -> None:
        path = body["path"]
        if path in self._files:
            self._find(version, f"adds {path}, which is there: its rows would be doubled")
        self._files.add(path)
        item = self._known.get(path)
        if item is None:
            self._find(version, f"adds {path}, which the log does not show")
            return
        said = (body["size"], json.loads(body["stats"])["numRecords"], body["partitionValues"])
        if said != (item.size_bytes, item.rows, {SEGMENT_COLUMN: str(item.number)}):
            self._find(version, f"says {said} of {path}: it is {item}")
        if body["dataChange"]:
            self._told[path] += 1

    def _remove(self, version: int, body: dict[str, Any]) -> None:
        path = body["path"]
        if path not in self._files:
            self._find(version, f"removes {path}, which is not there")
        self._files.discard(path)
        self._loud = self._loud or body["dataChange"]

    def end(self) -> None:
        """Who follows what is new is told of each row once; of a loud change everything is told again."""
        if self._loud:
            return
        rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for path, item in self._known.items():
            for partition, first, count in item.spans:
                rows[partition] += [(first, first + count)] * self._told[path]
                if path in self._files:
                    rows[partition].append((first + count, first + count))  # something ends here
        for partition, spans in rows.items():
            end = 0
            for first, behind in sorted(spans):
                if first != end:
                    what = "twice" if first < end else "never"
                    self.replay.findings.append(f"streams are told {what} of offset {min(first, end)} of {partition}")
                    break
                end = behind

    def _find(self, version: int, text: str) -> None:
        self.replay.findings.append(f"version {version} {text}")


# --- rows -------------------------------------------------------------------------------------------------------------


def difference(found: pa.Table, wanted: pa.Table, keys: Iterable[str] = ("label", "part")) -> str | None:
    """In what the rows of two tables differ, in any order; None where in nothing. ``keys`` tell rows apart."""
    if found.column_names != wanted.column_names:
        return f"the columns are {found.column_names}, not {wanted.column_names}"
    try:
        found = found.cast(wanted.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        return f"the types are others: {error}"
    order = [(name, "ascending") for name in keys]
    found, wanted = (table.sort_by(order).combine_chunks() for table in (found, wanted))
    if found.equals(wanted):
        return None
    names = [name for name, _ in order]
    counts = [Counter(map(str, table.select(names).to_pylist())) for table in (found, wanted)]
    more, less = counts[0] - counts[1], counts[1] - counts[0]
    if more or less:
        return (
            f"{found.num_rows} rows, not {wanted.num_rows}: {more.total()} too many {sorted(more)[:MOST_TOLD]}, "
            f"{less.total()} too few {sorted(less)[:MOST_TOLD]}"
        )
    odd = [name for name in wanted.column_names if not found.column(name).equals(wanted.column(name))]
    return f"other values in {odd}"


def with_offsets(found: pa.Table, segments: pa.Table) -> dict[tuple[int, int], tuple[str, int]]:
    """By partition and offset the label and part of each row, by the table of segments. Raises ValueError.

    The rows of a segment must be in the order of its file.
    """
    parts: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in segments.to_pylist():
        parts[row["segment"]].append((row["first_row"], row["rows"], row["partition"], row["base_offset"]))
    seen: Counter[int] = Counter()
    result: dict[tuple[int, int], tuple[str, int]] = {}
    for row in found.select([SEGMENT_COLUMN, "label", "part"]).to_pylist():
        number = row[SEGMENT_COLUMN]
        at = seen[number]
        seen[number] += 1
        place = next(
            (
                (partition, base + at - first)
                for first, rows, partition, base in parts.get(number, ())
                if first <= at < first + rows
            ),
            None,
        )
        if place is None:
            raise ValueError(f"the table of segments does not know row {at} of segment {number}")
        if place in result:
            raise ValueError(f"two rows have the offset {place}")
        result[place] = row["label"], row["part"]
    return result


def lost_and_torn(
    contents: Mapping[str, Mapping[str, int]],
    committed: Iterable[str],
    refused: Iterable[str],
    rows: Mapping[str, pa.Table],
) -> Iterator[str]:
    """What was acknowledged is there, whole; what was refused is not; nothing is there in part.

    ``contents`` has by label the rows by topic of what was ever intended; ``rows`` the newest tables.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for topic, table in rows.items():
        for label, part in zip(*(table.column(name).to_pylist() for name in ("label", "part")), strict=True):
            found[label].setdefault(topic, []).append(part)
    for label in sorted(found.keys() - contents.keys()):
        yield f"{label} is published, and nobody intended it"
    for label, topics in contents.items():
        wanted = {topic: list(range(count)) for topic, count in topics.items() if topic in rows}
        there = {topic: sorted(parts) for topic, parts in found.get(label, {}).items()}
        if there and there != wanted:
            yield f"{label} is published torn or doubled: {there}, not {wanted}"
    for label in committed:
        if label not in found and not rows.keys().isdisjoint(contents[label]):
            yield f"{label} was acknowledged, and is not published"
    yield from (f"{label} was refused, and is published" for label in refused if label in found)


_PUBLISHING = re.compile(r"txnlog\.(publisher|upkeep) ")
_WITHOUT_ANSWER = re.compile(r"\(planted\)|the store did not say")


def told_in(log: str, name: str) -> Iterator[str]:
    """What a process says in its log of publishing in the background, unless it is that the store did not answer.

    No committer hears of that: neither of a bug there, nor that something was found damaged.
    """
    for line in log.splitlines():
        if _PUBLISHING.search(line) and not _WITHOUT_ANSWER.search(line):
            yield f"{name} says: {line}"


def check_segments(found: pa.Table, wanted: pa.Table, version: int) -> str | None:
    """In what the table of segments differs from the log at a version, None where in nothing.

    ``wanted`` has a column ``since`` more: the version from which on each segment is in it.
    """
    known = wanted.filter(pc.less_equal(wanted.column("since"), version)).drop_columns(["since"])
    return difference(found.select(known.column_names), known, ("segment", "partition"))
