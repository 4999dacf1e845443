"""Whatever is tried, in whatever order: what must hold of a state holds after every entry."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.core import Log, tables_of
from tests.unit.random_entries import Watcher, append, entries
from txnlog.codec import decode_entry


@pytest.mark.clause(
    "P-26",
    "P-27",
    "P-40",
    "P-47",
    "P-55",
    "P-60",
    "P-72",
    "P-75",
    "P-85",
    "P-90",
    "P-93",
    "P-94",
    "P-98",
    "P-113",
    "P-128",
)
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries)
def test_what_must_hold_holds_after_every_entry(todo):
    log = Log()
    log.topic("orders", 2)
    watcher = Watcher()
    for steps in todo:
        if not append(log, steps):
            continue
        entry = decode_entry(log.stored[-1], log.version)
        watcher.look(log.state, entry.actions)
    assert tables_of(log.replayed()) == tables_of(log.state)
