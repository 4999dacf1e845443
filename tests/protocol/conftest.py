"""A log to write entries to; examples may take as long as a busy machine needs."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.memory_log import Log

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def log() -> Log:
    """A log that has begun, with the numbers 0 to 1,023 in one open block."""
    return Log()
