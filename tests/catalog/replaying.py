"""What every published Delta log must be. Pure: bytes, facts of the log and rows in, findings out.

The Delta log is read here once more, by Delta's rules and without the code that publishes. ``tests.catalog.judging``
has what gathers the facts.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txnlog.format.keys import SEGMENT_COLUMN, SEGMENTS_TABLE

MOST_TOLD = 3
DOMAIN = "txnlog"


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
        checkpoints: by version the paths that a checkpoint adds, with their sizes.
        loud: the versions whose checkpoint tells streams of a file.
        hint: the version that ``_last_checkpoint`` names.
        others: names in the folder that are nothing of these.
    """

    commits: Mapping[int, bytes]
    seen: Mapping[int, bytes] = field(default_factory=dict)
    checkpoints: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    loud: frozenset[int] = frozenset()
    hint: int | None = None
    others: tuple[str, ...] = ()


@dataclass
class Replay:
    """A table as its commits make it.

    Attributes:
        shown: what version of the namespace each version shows.
        files: by version the paths, with their sizes.
        findings: what is wrong.
    """

    shown: list[int] = field(default_factory=list)
    files: list[Mapping[str, int]] = field(default_factory=list)
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


def replay_topic(
    facts: Facts, published: Published, *, complete: bool, may_stop: bool = False, may_repeat: bool = False
) -> Replay:
    """A topic's table, and all findings about it.

    Args:
        facts: what the log says of the topic.
        published: what lies there.
        complete: the newest version shows what the log shows last.
        may_stop: streams may stop at a version that removes files as a change, as where versions before a merge were
            damaged, and end elsewhere now, or where a vacuum was before the publisher. They are told of all again.
        may_repeat: a version may show what the one before does, as where several in a row were lost.
    """
    return _replay(_TopicTable(facts, may_stop=may_stop), published, complete=complete, may_repeat=may_repeat)


def replay_segments(
    wanted: pa.Table, published: Published, sizes: Mapping[str, int], *, complete: bool, may_repeat: bool = False
) -> Replay:
    """The table of segments, and all findings about its Delta log.

    Args:
        wanted: its rows, each with the version ``since`` which it is there.
        published: what lies there.
        sizes: of the data files that are there, by path.
        complete: the newest version shows what the log shows last.
        may_repeat: see :func:`replay_topic`.
    """
    return _replay(_SegmentsTable(wanted, sizes), published, complete=complete, may_repeat=may_repeat)


def _check_log(published: Published) -> Iterator[str]:
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
    if published.loud:
        yield f"streams are told of files by the checkpoints of {sorted(published.loud)}"
    for version, files in published.checkpoints.items():
        if version >= len(replay.files):
            yield f"the checkpoint of {version} has no version"
        elif files != replay.files[version]:
            odd = _odd(files.items(), replay.files[version].items())
            yield f"the checkpoint of {version} has other files than the version: {odd}"


def _odd(found: Set[Any], wanted: Set[Any]) -> str:
    more, less = sorted(found - wanted), sorted(wanted - found)
    return f"{len(more)} too many {more[:MOST_TOLD]}, {len(less)} too few {less[:MOST_TOLD]}"


def _replay(table: _Table, published: Published, *, complete: bool, may_repeat: bool) -> Replay:
    """The versions one after the other, each held against what the log shows there."""
    replay = table.replay
    found = list(_check_log(published))
    for version in sorted(published.commits):
        try:
            table.carry_out(version, actions_of(published.commits[version]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            replay.findings.append(f"version {version} is no whole commit: {error!r}")
            break
    table.end()
    found += [*replay.findings, *_check_checkpoints(published, replay)]
    if not may_repeat:
        found += [f"version {at} shows what the one before does" for at in _repeated(replay.shown)]
    if complete and (not replay.shown or replay.shown[-1] < max(table.changes)):
        newest = replay.shown[-1] if replay.shown else "nothing"
        found.append(f"the newest version shows {newest}, and the log changed it at {max(table.changes)}")
    replay.findings = [f"{table.name}: {text}" for text in found]
    return replay


def _repeated(shown: list[int]) -> list[int]:
    return [at for at in range(1, len(shown)) if shown[at] == shown[at - 1]]


class _Table:
    """A table while its commits are carried out: what holds of any.

    Args:
        name: for findings.
        identity: whose table its commits say it is.
        changes: the versions of the namespace at which it is another one.
    """

    def __init__(self, name: str, identity: Mapping[str, Any], changes: Set[int]) -> None:
        self.name = name
        self.changes = changes
        self.replay = Replay()
        self._identity = identity
        self._files: dict[str, int] = {}
        self._last_ms = -1

    def carry_out(self, version: int, actions: list[tuple[str, dict[str, Any]]]) -> None:
        """One commit."""
        shows = self._header(version, actions)
        for kind, body in actions:
            if kind == "add":
                if body["path"] in self._files:
                    self._find(version, f"adds {body['path']}, which is there: its rows would be doubled")
                self._files[body["path"]] = body["size"]
                self._added(version, body)
            elif kind == "remove":
                if body["path"] not in self._files:
                    self._find(version, f"removes {body['path']}, which is not there")
                self._files.pop(body["path"], None)
                self._removed(version, body)
            elif kind == "metaData":
                self._described(json.loads(body["schemaString"])["fields"])
        self.replay.shown.append(shows)
        self.replay.files.append(dict(self._files))
        self._carried_out(version, shows)

    def _added(self, version: int, body: dict[str, Any]) -> None:
        """A file came."""

    def _removed(self, version: int, body: dict[str, Any]) -> None:
        """A file went."""

    def _described(self, fields: list[dict[str, Any]]) -> None:
        """The columns are these from now on."""

    def _carried_out(self, version: int, shows: int) -> None:
        """A commit was carried out."""

    def end(self) -> None:
        """All of them were."""

    def _header(self, version: int, actions: list[tuple[str, dict[str, Any]]]) -> int:
        """The version of the namespace that a commit shows, by what it says of itself."""
        kinds = [kind for kind, _ in actions]
        info = actions[0][1]
        says = info["txnlog"]
        before = self.replay.shown[-1] if self.replay.shown else -1
        domains = [body for kind, body in actions if kind == "domainMetadata"]
        named = [body["domain"] for body in domains] == [DOMAIN]
        if kinds[0] != "commitInfo" or kinds.count("protocol") != (version == 0) or not named:
            self._find(version, f"has the actions {sorted(set(kinds))}, of the domains {domains}")
        elif json.loads(domains[0]["configuration"])["version"] != says["version"]:
            self._find(version, "contradicts itself")
        if not self._identity.items() <= says.items() or says["before"] != before or says["version"] < before:
            self._find(version, f"says {says}, behind {before}")
        if says["version"] not in self.changes:
            self._find(version, f"shows {says['version']}, where nothing changed")
        if info["inCommitTimestamp"] <= self._last_ms:
            self._find(version, "is no later than the one before")
        self._last_ms = info["inCommitTimestamp"]
        return int(says["version"])

    def _find(self, version: int, text: str) -> None:
        self.replay.findings.append(f"version {version} {text}")


class _SegmentsTable(_Table):
    """The table of segments."""

    def __init__(self, wanted: pa.Table, sizes: Mapping[str, int]) -> None:
        super().__init__(SEGMENTS_TABLE, {"table": SEGMENTS_TABLE}, {0, *wanted.column("since").to_pylist()})
        self._sizes = sizes

    def _added(self, version: int, body: dict[str, Any]) -> None:
        size = self._sizes.get(body["path"], body["size"])
        if size != body["size"]:
            self._find(version, f"says that {body['path']} has {body['size']} bytes: it has {size}")


class _TopicTable(_Table):
    """A topic's table."""

    def __init__(self, facts: Facts, *, may_stop: bool) -> None:
        super().__init__(f"{facts.name}~{facts.topic}", {"topic": facts.topic}, facts.changes())
        self._facts = facts
        self._may_stop = may_stop
        self._known = {item.path: item for item in facts.files}
        self._columns: tuple[tuple[str, Any], ...] = ()
        self._told: Counter[str] = Counter()
        self._stops = False

    def _described(self, fields: list[dict[str, Any]]) -> None:
        self._columns = tuple((item["name"], item["type"]) for item in fields)

    def _carried_out(self, version: int, shows: int) -> None:
        wanted = frozenset(item.path for item in self._facts.files if item.is_there(shows))
        if self._files.keys() != wanted:
            self._find(version, f"shows {shows}, and has {_odd(self._files.keys(), wanted)} files")
        if self._columns != (*self._facts.columns_at(shows), (SEGMENT_COLUMN, "long")):
            self._find(version, f"shows {shows}, and has the columns {[name for name, _ in self._columns]}")

    def _added(self, version: int, body: dict[str, Any]) -> None:
        path = body["path"]
        item = self._known.get(path)
        if item is None:
            self._find(version, f"adds {path}, which the log does not show")
            return
        said = (body["size"], json.loads(body["stats"])["numRecords"], body["partitionValues"])
        if said != (item.size_bytes, item.rows, {SEGMENT_COLUMN: str(item.number)}):
            self._find(version, f"says {said} of {path}: it is {item}")
        if body["dataChange"]:
            self._told[path] += 1

    def _removed(self, version: int, body: dict[str, Any]) -> None:
        if body["dataChange"] is not False:
            self._stops = True
            if not self._may_stop:
                self._find(version, f"removes {body['path']} as a change: streams stop there")

    def end(self) -> None:
        """Who follows what is new is told of each row once; where they stop they are told of all again."""
        if self._stops:
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


def segments_difference(found: pa.Table, wanted: pa.Table, version: int) -> str | None:
    """In what the table of segments differs from the log at a version, None where in nothing.

    ``wanted`` has a column ``since`` more: the version from which on each segment is in it.
    """
    known = wanted.filter(pc.less_equal(wanted.column("since"), version)).drop_columns(["since"])
    return difference(found.select(known.column_names), known, ("segment", "first_row"))
