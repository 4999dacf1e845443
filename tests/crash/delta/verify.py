"""What fresh processes do after a run with published topics: publish the rest, and hold all tables against the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import catalog
import txnlog
from tests.catalog.engines import EngineError, Engines
from tests.catalog.replaying import MOST_TOLD, Published, replay_segments, replay_topic
from tests.crash.delta import checks
from tests.crash.delta.comparing import Seen
from tests.crash.delta.plan import PASSING, DeltaPlan
from tests.crash.delta.tables import SEGMENTS, Tables
from tests.crash.harness.judging import Judge
from tests.crash.harness.plan import NAMESPACE, Board
from txnlog.fold.state import TopicRecord
from txnlog.format.delta_mode import DELTA

OTHERS = ("polars", "duckdb")


def publish_rest(plan: DeltaPlan, board: Board) -> int:
    """Publish what is left; a second time there is nothing to do, and a repair finds nothing to repair."""
    with catalog.open(plan.root, clock=board) as cat:
        first = cat.publish(NAMESPACE)
        again = cat.publish(NAMESPACE)
        assert not any(item.created for item in again), f"twice there is something to publish: {again}"
    with catalog.open(plan.root, clock=board) as cat:
        repaired = cat.repair(NAMESPACE)
        for item in (*first, *again, *repaired):
            assert not item.repaired, f"{item}: repaired, and nobody had damaged it"
    return 0


def main(plan: DeltaPlan) -> int:
    """Judge the history, and hold every table against the log; findings and figures are in ``found.json``."""
    seen = Seen.read(plan)
    folder = plan.engines.with_name("last-engines")
    folder.mkdir()
    engines = Engines(folder)
    with txnlog.open(plan.root, NAMESPACE, mode="r") as ns:
        last = Last(plan, Tables(plan, ns, engines), seen)
        findings = [*seen.findings, *last.findings()]
        engines.close()
        logs = sorted((Path(plan.folder) / "logs").glob("*.log"))
        findings += [text for path in logs for text in checks.told_in(path.read_text(errors="replace"), path.stem)]
        judge = Judge(plan, ns)
        judge.read_everything(left_out=(PASSING,))
        judge.report(lambda _facts: last.figures, findings)
    return 0


class Last:
    """The last look at all tables."""

    def __init__(self, plan: DeltaPlan, tables: Tables, seen: Seen) -> None:
        self._plan = plan
        self._tables = tables
        self._seen = seen
        self._chance = plan.random("sample")
        self.figures: Counter[str] = Counter()

    def findings(self) -> Iterator[str]:
        """All of them."""
        segments = self._tables.segments()
        yield from self._segments_table(segments)
        for record in self._tables.records():
            if DELTA.of(record.properties) == "off":
                if self._tables.commits(record.folder):
                    yield f"{record.folder} is off, and published"
                continue
            yield from self._topic(record)
        self.figures["versions"] = self.figures["versions of topics"] + self.figures["versions of the segments"]
        self.figures["compared while it went on"] = self._seen.versions
        self.figures["compared"] += self._seen.versions
        self.figures["rows"] += self._seen.rows

    def _segments_table(self, wanted: pa.Table) -> Iterator[str]:
        published = self._tables.published(SEGMENTS, self._seen.commits[SEGMENTS])
        yield from replay_segments(wanted, published, self._tables.sizes(SEGMENTS), complete=True).findings
        self.figures["versions of the segments"] = len(published.commits)
        for engine, version in self._wanted(SEGMENTS, list(published.commits)):
            done = self._tables.compare_segments(version, published.commits[version], wanted, engine)
            self._count(engine, done.rows)
            if done.finding is not None:
                yield done.finding

    def _topic(self, record: TopicRecord) -> Iterator[str]:
        if self._tables.is_over(record):
            self.figures["tables of dropped topics that were deleted"] += 1
            self.figures["versions of topics"] += len(self._seen.commits[record.folder])
            self.figures["gone before they were compared"] += len(self._seen.gone[record.folder])
            return
        published = self._tables.published(record.folder, self._seen.commits[record.folder])
        if not published.commits:
            if not record.dropped:
                yield f"{record.folder} is not published"
            return
        # A vacuum may be before a publisher, who shows part of what a merge replaced then.
        yield from replay_topic(self._tables.facts(record), published, complete=True, may_stop=True).findings
        self.figures["versions of topics"] += len(published.commits)
        self.figures["checkpoints"] += len(published.checkpoints)
        for engine, version in self._wanted(record.folder, list(published.commits)):
            done = self._tables.compare(record, version, published.commits[version], engine)
            if done.finding is not None:
                yield done.finding
            elif done.gone:
                self.figures["gone before they were compared"] += engine == "deltalake"
            else:
                self._count(engine, done.rows)
        self.figures["gone before they were compared"] += len(self._seen.gone[record.folder])
        yield from self._offsets(record)
        yield from self._old(record, published)

    def _old(self, record: TopicRecord, published: Published) -> Iterator[str]:
        """Who reads what a vacuum was at is told so, or reads what was there."""
        if record.dropped:
            return
        old = [version for version, data in published.commits.items() if self._tables.is_gone(data)]
        for version in self._chance.sample(old, min(self._plan.sample, len(old))):
            for engine in ("deltalake", *OTHERS):
                done = self._tables.compare_old(record, version, published.commits[version], engine)
                if done.finding is not None:
                    yield done.finding
                self.figures["vacuumed, said so" if done.gone else "vacuumed, and whole"] += 1

    def _wanted(self, folder: str, versions: list[int]) -> Iterator[tuple[str, int]]:
        """What is to be read by whom: by deltalake what nobody compared yet, by the others some of the newest."""
        known = self._seen.commits[folder]
        yield from (("deltalake", version) for version in versions if version not in known)
        newest = versions[-20:]  # those before may be gone by now
        sample = {*self._chance.sample(newest, min(self._plan.sample, len(newest))), *versions[-1:]}
        yield from ((engine, version) for version in sorted(sample) for engine in OTHERS)

    def _count(self, engine: str, rows: int) -> None:
        if engine == "deltalake":
            self.figures["compared"] += 1
            self.figures["rows"] += rows
        else:
            self.figures[f"versions read by {engine}"] += 1

    def _offsets(self, record: TopicRecord) -> Iterator[str]:
        """At the newest version each row has the offset in the table of segments that it has in the log."""
        version = None if record.dropped_version is None else record.dropped_version - 1
        snapshot = self._tables.snapshot(version)
        if snapshot is None:
            return
        try:
            rows = self._tables.read(record.folder, None)
            found = checks.with_offsets(rows, self._tables.read(SEGMENTS, None))
        except (EngineError, ValueError) as error:
            yield f"{record.folder}: {error}"
            return
        wanted = snapshot.read(record.name, columns=["value"], include_metadata=True).to_pylist()
        places = {(row["_partition"], row["_offset"]): row["value"] for row in wanted}
        if found != places:
            odd = sorted({*found.items()} ^ {*places.items()})[:MOST_TOLD]
            yield f"{record.folder}: {len(found)} rows with offsets, not {len(places)}: {odd}"
        self.figures["rows with offsets"] += len(places)
