"""The places and clocks of the client's tests: nothing waits, and the probe has tests of its own."""

from __future__ import annotations

from tests.client.conftest import _fast, clock, local, memory, place, sales

__all__ = ["_fast", "clock", "local", "memory", "place", "sales"]
