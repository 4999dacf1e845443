"""For tests of pipelines: a clock that a test moves, a simulation of clients, and a checker of what they saw.

``Simulation(seed).run()`` runs real clients over a store with faults, in an order that the seed decides (it needs the
extra ``testing``); ``python -m txnlog.testing`` runs many. ``kinds=`` takes actors of your own: functions that open the
namespace through their ``Client`` and work until ``client.over()``. ``Recorder`` and ``check`` judge any other run.
"""

from __future__ import annotations

from txnlog.testing.actors import ACTOR_KINDS
from txnlog.testing.anomalies import Anomaly, Finding
from txnlog.testing.checker import check
from txnlog.testing.client import Client
from txnlog.testing.clock import ManualClock
from txnlog.testing.faults import Faults
from txnlog.testing.history import History, Operation, Recorder
from txnlog.testing.simulation import Failure, Report, Simulation

__all__ = [
    "ACTOR_KINDS",
    "Anomaly",
    "Client",
    "Failure",
    "Faults",
    "Finding",
    "History",
    "ManualClock",
    "Operation",
    "Recorder",
    "Report",
    "Simulation",
    "check",
]
