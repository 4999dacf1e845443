"""What is published and what the log says of it, gathered by a process that publishes nothing."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import txnlog
from tests.catalog import judging
from tests.catalog.engines import EngineError, Engines
from tests.catalog.replaying import Facts, Published, actions_of, difference, segments_difference
from tests.crash.delta.plan import DeltaPlan
from tests.crash.harness.plan import NAMESPACE
from txnlog.errors import CorruptionError, VersionNotAvailable
from txnlog.fold import garbage
from txnlog.fold.state import TopicRecord
from txnlog.format import keys
from txnlog.format.delta_mode import DELTA

SEGMENTS = keys.SEGMENTS_TABLE

_MISSING = re.compile(r"(?i)no such file|not found|does not exist")
"""How engines say that a file is gone."""


@dataclass(frozen=True)
class Compared:
    """What became of comparing a version: ``finding`` is None where it is right; ``gone`` where a vacuum was first."""

    rows: int = 0
    gone: bool = False
    finding: str | None = None


class Tables:
    """The published tables of a run, on local files."""

    def __init__(self, plan: DeltaPlan, ns: txnlog.Namespace, engines: Engines | None) -> None:
        self._ns = ns
        self._engines = engines
        self._folder = Path(plan.root) / NAMESPACE

    def records(self) -> list[TopicRecord]:
        """All topics that there ever were, by what the log shows now."""
        self._ns._connection.follower.refresh()
        return list(self._ns._connection.follower.state.topics.values())

    def folders(self) -> list[str]:
        """Of every table that may be there."""
        return [*(record.folder for record in self.records() if DELTA.of(record.properties) != "off"), SEGMENTS]

    def path(self, folder: str) -> str:
        """Where an engine finds a table."""
        return str(self._folder / folder)

    def commits(self, folder: str, after: int = -1) -> dict[int, bytes]:
        """The commits of a table behind a version."""
        paths = {int(path.stem): path for path in (self._folder / folder / "_delta_log").glob("*.json")}
        found: dict[int, bytes] = {}
        for version in sorted(paths):
            if version > after:
                with contextlib.suppress(FileNotFoundError):  # a vacuum deletes the table of a dropped topic
                    found[version] = paths[version].read_bytes()
        return found

    def published(self, folder: str, seen: dict[int, bytes]) -> Published:
        """All that lies in a table's Delta log."""
        objects = sorted((self._folder / folder / "_delta_log").glob("*"))
        return judging.published_in(folder, ((path.name, path.read_bytes()) for path in objects), seen)

    # --- what the log says ------------------------------------------------------------------------------------------

    def facts(self, record: TopicRecord) -> Facts:
        """Of a topic, by the fold as it is known."""
        return judging.facts_of(self._ns, record)

    def segments(self) -> pa.Table:
        """What the table of segments must hold, each with the version from which on."""
        self._ns._connection.follower.refresh()
        return judging.segments_of(self._ns)

    def sizes(self, folder: str) -> dict[str, int]:
        """Of the data files in a table's folder itself."""
        return {path.name: path.stat().st_size for path in (self._folder / folder).glob("*.parquet")}

    # --- rows -------------------------------------------------------------------------------------------------------

    def compare(self, record: TopicRecord, delta_version: int, data: bytes, engine: str = "deltalake") -> Compared:
        """The rows that an engine reads at a version against those of the snapshot that it says it shows."""
        try:
            shows = _shown_by(data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            return Compared(finding=f"version {delta_version} is no whole commit: {error!r}")
        if record.dropped_version is not None:
            shows = min(shows, record.dropped_version - 1)
        where = f"{record.folder}, version {delta_version}, which shows {shows}, read by {engine}"
        try:
            wanted = self._ns.snapshot(version=shows).read(record.name)
        except VersionNotAvailable:
            return Compared(gone=True)
        except CorruptionError as error:
            return Compared(finding=f"{where}: the log itself is damaged: {error}")
        try:
            found = self.read(record.folder, delta_version, engine)
        except EngineError as error:
            if self._is_gone(shows):
                return Compared(gone=True)
            return Compared(finding=f"{where}: {error}")
        odd = difference(found.drop_columns([keys.SEGMENT_COLUMN]), wanted, ("value",))
        return Compared(wanted.num_rows, finding=None if odd is None else f"{where}: {odd}")

    def compare_segments(
        self, delta_version: int, data: bytes, wanted: pa.Table, engine: str = "deltalake"
    ) -> Compared:
        """The same of the table of segments."""
        try:
            shows = _shown_by(data)
            found = self.read(SEGMENTS, delta_version, engine)
        except (ValueError, KeyError, TypeError, IndexError, EngineError) as error:
            return Compared(finding=f"{SEGMENTS}, version {delta_version}: {error!r}")
        odd = segments_difference(found, wanted, shows)
        where = f"{SEGMENTS}, version {delta_version}, which shows {shows}, read by {engine}"
        return Compared(found.num_rows, finding=None if odd is None else f"{where}: {odd}")

    def compare_old(self, record: TopicRecord, delta_version: int, data: bytes, engine: str) -> Compared:
        """A version whose files may be gone: an engine says that one is missing, or reads all rows of that time.

        ``gone`` where it says so. The rows of that time are those that are there now and were committed by then.
        """
        shows = _shown_by(data)
        where = f"{record.folder}, version {delta_version}, which shows {shows}, read by {engine}"
        now = self._ns.snapshot().read(record.name, columns=["value"], include_metadata=True)
        wanted = now.filter(pc.less_equal(now.column("_version"), shows)).select(["value"])
        try:
            found = self.read(record.folder, delta_version, engine)
        except EngineError as error:
            if _MISSING.search(str(error)):
                return Compared(gone=True)
            return Compared(finding=f"{where}: {error}")
        odd = difference(found.select(["value"]), wanted, ("value",))
        return Compared(found.num_rows, finding=None if odd is None else f"{where}: {odd}")

    def is_gone(self, data: bytes) -> bool:
        """Whether the log does not show any more what a commit shows."""
        return self._is_gone(_shown_by(data))

    def is_over(self, record: TopicRecord) -> bool:
        """Whether no readable version shows a topic: a vacuum deletes its table, or has begun to."""
        return garbage.is_over(record, self._ns._connection.follower.state.head.oldest_readable)

    def snapshot(self, version: int | None) -> txnlog.Snapshot | None:
        """A version, or the newest one; None for one that cannot be read any more."""
        try:
            return self._ns.snapshot(version=version)
        except VersionNotAvailable:
            return None

    def _is_gone(self, version: int) -> bool:
        self._ns._connection.follower.refresh()
        return version < self._ns._connection.follower.state.head.oldest_readable

    def read(self, folder: str, version: int | None, engine: str = "deltalake") -> pa.Table:
        """The rows of a table, the numbers of their segments among the columns. Raises EngineError."""
        assert self._engines is not None, "somebody who reads rows has engines"
        return self._engines.read(engine, self.path(folder), version, keep_segments=True)


def _shown_by(data: bytes) -> int:
    return int(actions_of(data)[0][1]["txnlog"]["version"])
