"""Marker of the tests that stand for a clause of PROTOCOL.md; examples may take as long as a busy machine needs."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(*ids): the clauses of PROTOCOL.md that the test stands for")
