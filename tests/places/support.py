"""What the tests of places share: running the pipeline as a program, and what it must have seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.effort import chosen
from tests.places.servers import ARCHIVE, environment_of
from tools.java_archive import QUICK
from txnlog.data.partitioner import partition_of_key

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 800  # of a machine that does much else; alone it takes a minute

ROWS = 600
LARGE = 200
PARTITIONS = 4
NAMES = {number: None if number % 50 == 49 else "c" + "é" * (number % 40) for number in range(ROWS)}

SMALL: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": f"{QUICK} {ARCHIVE}",
}
"""Settings of a session on a machine of two cores that nobody looks at."""


NO_NAME = "txnlog.errors.SchemaMismatch: topic 'named', column 'name'"
REFUSED = {
    "plan": "txnlog.errors.TopicNotFound: no topic 'ordres'",
    "task": NO_NAME,
    "transaction": NO_NAME,
    "handler": NO_NAME,
}
"""How the text begins that tells of a mistake."""


def story_of(place: str, steps: Sequence[str]) -> list[str]:
    """The pipeline of a place: it writes in both ways, and does what else a push has time for, others each day."""
    return ["write", "transaction", *chosen(f"steps {place}", steps, 3)]


def settings(wheel: Path, python: str) -> dict[str, str]:
    """What docs/spark.md says that a cluster needs whose executors have no txnlog."""
    return {
        "spark.submit.pyFiles": str(wheel),
        "spark.executorEnv.PYTHONPATH": wheel.name,
        "spark.sql.execution.pyspark.python": python,
    }


def run_pipeline(
    folder: Path, steps: Sequence[str], *, conf: Mapping[str, str], python: str = sys.executable, **settings: Any
) -> dict[str, Any]:
    """Run some steps of the pipeline in a process of its own; ``python`` is what tasks run in. What the steps saw."""
    usual = {"conf": {**conf}, "root": str(folder / "lake"), "scratch": str(folder / "scratch"), "steps": list(steps)}
    (folder / "settings.json").write_text(json.dumps({**usual, **settings}))
    command = [sys.executable, "-m", "tests.places.pipeline", str(folder / "settings.json")]
    seen = answer_of(command, python)
    assert seen.keys() == {*steps, "topics", "told"}
    return seen


def answer_of(command: Sequence[str], python: str = sys.executable) -> dict[str, Any]:
    """The JSON in the last line that a driver program prints; all that it printed is in it as ``told``."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment_of(python), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**answer, "told": done.stdout + done.stderr}


def check(seen: Mapping[str, Any], *, elsewhere: Collection[str] = ()) -> None:
    """Whatever steps ran, wherever they did: this is what they must have seen; some are looked at ``elsewhere``."""
    counts = Counter(NAMES.values())
    rows = {
        "ids": list(range(ROWS)),
        "partitions": {name or "": partition_of_key(name, pa.string(), PARTITIONS) for name in counts},
        "offsets": ROWS,
        "versions": 1,
    }
    expected = {
        "write": ROWS,
        "read": rows,
        "native": rows,
        "visible": ROWS,
        "transaction": [LARGE, len(counts)],
        "stream": 0,
        "sink": LARGE + (ROWS if "stream" in seen else 0),
        "lag": {"line": 0, "behind": 2},
        "process": {"told": f"1 batch of {LARGE} rows", "behind": 0},
    }
    if "refused" in seen:
        assert seen["refused"].keys() == REFUSED.keys()
        for mistake, line in REFUSED.items():
            assert seen["refused"][mistake].startswith(line), mistake
    for step in seen.keys() - {"topics", "told", "refused", *elsewhere}:
        assert seen[step] == expected[step], step
    topics = {"orders": [*range(ROWS)] if "write" in seen else []}
    topics["large"] = [*range(ROWS - LARGE, ROWS)] if "transaction" in seen else []
    topics["copies"] = sorted(
        [*(topics["orders"] if "stream" in seen else ()), *(topics["large"] if "sink" in seen else ())]
    )
    topics["processed"] = [number for number in topics["large"] if number % 2 == 0] if "process" in seen else []
    topics["named"] = []
    topics["counts"] = sorted(counts.values()) if "transaction" in seen else []
    assert seen["topics"] == topics
