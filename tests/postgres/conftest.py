"""One server for all tests here; what they write is in a schema of each shop's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.postgres import Server, postgres_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server."""
    with postgres_server() as running:
        yield running
