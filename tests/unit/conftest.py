"""Marker of the tests that stand for a clause of PROTOCOL.md."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(*ids): the clauses of PROTOCOL.md that the test stands for")
