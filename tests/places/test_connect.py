"""Spark behind Connect: a client that has no JVM, and a server that plans, runs tasks and calls handlers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places.servers import connect_server
from tests.places.support import DEADLINE_S, SMALL, check, run_pipeline, story_of

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL."""
    with connect_server(tmp_path_factory.mktemp("connect"), SMALL) as url:
        yield url


def test_the_pipeline_runs_behind_connect(server: str, tmp_path: Path) -> None:
    steps = story_of("connect", ("read", "native", "visible", "stream", "sink", "lag", "process", "refused"))
    check(run_pipeline(tmp_path, steps, conf={}, remote=server))
