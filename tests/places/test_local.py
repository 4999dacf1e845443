"""``local[2]``, over a folder and over S3: the same pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_ext.support.options import STORAGE_CONF
from tests.places.support import DEADLINE_S, SMALL, check, run_pipeline, story_of
from tools.servers import SECRET_KEY, S3Server

LOCAL = {**SMALL, "spark.master": "local[2]"}

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


@pytest.mark.long  # over S3 it runs in local mode too, and tests/spark has each of its steps
def test_the_pipeline_runs_in_local_mode(tmp_path: Path) -> None:
    steps = ("write", "read", "transaction", "native", "visible", "stream", "sink", "process", "refused")
    check(run_pipeline(tmp_path, steps, conf=LOCAL))


def test_the_pipeline_runs_over_s3_and_shows_no_secret(s3: S3Server, tmp_path: Path) -> None:
    """The format has its storage options as an option, ``spark_ext`` from the session's settings."""
    session = {
        f"{STORAGE_CONF}{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in s3.storage_options.items()
    }
    steps = story_of("s3", ("read", "stream", "sink", "process", "refused"))
    seen = run_pipeline(tmp_path, steps, conf={**LOCAL, **session}, root=s3.url("lake"), storage=s3.storage_options)
    check(seen)
    assert SECRET_KEY not in seen["told"]
    kept = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert kept
    for path in kept:
        assert SECRET_KEY.encode() not in path.read_bytes(), path.name
