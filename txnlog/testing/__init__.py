"""For tests of pipelines: a clock that moves only when told."""

from __future__ import annotations

from txnlog.testing.clock import ManualClock

__all__ = ["ManualClock"]
