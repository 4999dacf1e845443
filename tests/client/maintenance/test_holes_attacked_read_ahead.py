"""What a consumer read ahead does not outlive its erasure."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from tests.client.support import SCHEMA, Place, rows
from txnlog.testing import ManualClock

START = 1_700_000_000_000
HOUR = 3_600_000


def vacuumed(ns, clock):
    clock.advance(3 * HOUR)
    ns.vacuum(retain_ms=0, grace_ms=HOUR, allow_short_retention=True)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
def test_an_erased_message_is_not_delivered_when_no_file_has_it_any_more(memory: Place, kind: str) -> None:
    clock = ManualClock(START)
    ns, reader = memory.open(clock=clock), None
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA, statistics="off")
    ns.produce("orders", rows(*range(10)))
    reader = memory.open(clock=clock)
    with reader.consumer("orders", subscription="s", type=kind) as c:
        c.acknowledge(c.receive(2))
        ns.erase("orders", pc.field("id") == 7)
        vacuumed(ns, clock)
        assert ns.erase("orders", pc.field("id") == 7).is_complete
        assert 7 not in c.receive(timeout_ms=0).table.column("id").to_pylist()


def test_an_erased_row_does_not_come_back_as_a_dead_letter(memory: Place) -> None:
    clock = ManualClock(START)
    ns = memory.open(clock=clock)
    ns.enable("holes")
    ns.create_topic("orders", SCHEMA, statistics="off")
    ns.create_subscription("orders", "s", type="shared", max_redeliveries=0, dead_letter_topic="dead", lease_ms="30m")
    ns.produce("orders", rows(*range(6)))
    worker = memory.open(clock=clock)
    with worker.consumer("orders", subscription="s", type="shared") as c:
        c.receive()  # and works on them for too long, or fails
        ns.erase("orders", pc.field("id") == 1)
        vacuumed(ns, clock)
        done = ns.erase("orders", pc.field("id") == 1)
        assert done.is_complete
        c.receive(timeout_ms=0)
    again = ns.erase("orders", pc.field("id") == 1, dry_run=True)
    assert again.is_complete, again.dead_letters
