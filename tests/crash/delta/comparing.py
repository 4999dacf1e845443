"""Who compares what is published while the others are at work and die: before a vacuum takes the files of a version.

Nobody kills it. Each version that it looked at is a line in a file; what the last check finds must be the same bytes.
"""

from __future__ import annotations

import base64
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field

import pyarrow as pa

import txnlog
from tests.catalog.engines import Engines
from tests.crash.delta.plan import DeltaPlan, Progress
from tests.crash.delta.tables import SEGMENTS, Compared, Tables
from tests.crash.harness.plan import NAMESPACE, Board
from txnlog.fold.state import TopicRecord


@dataclass
class Seen:
    """What was compared: by folder and version the bytes of the commit and how it ended; findings; rows in all."""

    commits: dict[str, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    gone: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    findings: list[str] = field(default_factory=list)
    rows: int = 0

    @property
    def versions(self) -> int:
        """Versions whose rows were compared."""
        return sum(map(len, self.commits.values())) - sum(map(len, self.gone.values()))

    @classmethod
    def read(cls, plan: DeltaPlan) -> Seen:
        """What the process wrote down."""
        found = cls()
        for line in plan.compared.read_text().splitlines() if plan.compared.exists() else ():
            item = json.loads(line)
            found.note(
                item["folder"],
                item["version"],
                base64.b64decode(item["data"]),
                Compared(item["rows"], item["gone"], item["finding"]),
            )
        return found

    def note(self, folder: str, version: int, data: bytes, done: Compared) -> None:
        """One version."""
        self.commits[folder][version] = data
        self.rows += done.rows
        if done.gone:
            self.gone[folder].add(version)
        if done.finding is not None:
            self.findings.append(done.finding)


def compare(plan: DeltaPlan, board: Board, progress: Progress) -> int:
    """Compare until the load is over, or a finding ends it."""
    plan.engines.mkdir()
    engines = Engines(plan.engines)
    with (
        txnlog.open(plan.root, NAMESPACE, mode="r", clock=board) as ns,
        open(plan.compared, "a", encoding="utf-8") as file,
    ):
        tables = Tables(plan, ns, engines)
        last: dict[str, int] = {}
        while not board.stopped:
            newest = ns.snapshot().version
            new = _new(tables, last)
            for number, (record, folder, version, data, segments) in enumerate(new):
                progress.note_backlog(len(new) - number)
                if record is None:
                    done = tables.compare_segments(version, data, segments)
                else:
                    done = tables.compare(record, version, data)
                said = {"rows": done.rows, "gone": done.gone, "finding": done.finding}
                text = base64.b64encode(data).decode()
                file.write(json.dumps({"folder": folder, "version": version, "data": text, **said}) + "\n")
                file.flush()
                if done.finding is not None:
                    board.stop()
                if _is_over(board):
                    break
            else:
                progress.note_compared(newest)
                time.sleep(0.05)
    engines.close()
    return 0


def _is_over(board: Board) -> bool:
    return board.stopped


def _new(tables: Tables, last: dict[str, int]) -> list[tuple[TopicRecord | None, str, int, bytes, pa.Table]]:
    """Versions that came since the last look; ``last`` goes on."""
    found: list[tuple[TopicRecord | None, str, int, bytes, pa.Table]] = []
    there = {folder: tables.commits(folder, last.get(folder, -1)) for folder in tables.folders()}
    # Behind the commits, so that the log that is known reaches as far as what they show.
    known: dict[str, TopicRecord] = {record.folder: record for record in tables.records()}
    segments = tables.segments() if there[SEGMENTS] else pa.table({})
    for folder, commits in there.items():
        for version, data in commits.items():
            found.append((known.get(folder), folder, version, data, segments))
            last[folder] = version
    return found
