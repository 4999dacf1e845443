"""For tests of pipelines: a clock that moves only when told, a recorder of histories and a checker of them."""

from __future__ import annotations

from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.checker import check
from txnlog.testing.clock import ManualClock
from txnlog.testing.history import History, Operation, Recorder

__all__ = ["Anomaly", "Finding", "History", "ManualClock", "Operation", "Recorder", "check"]
