"""What a user is told where the folder of a namespace, or the root's folder of its log, was removed or renamed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import txnlog
from tests.client.support import SCHEMA, Place, raises, rows
from txnlog.errors import Durable, NamespaceNotFound
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000


def with_orders(place: Place, name: str = "sales", **options: Any) -> Any:
    ns = place.open(name, **options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    return ns


def test_a_folder_that_is_removed_is_made_again_only_while_its_creation_may_be_under_way(place: Place) -> None:
    """Whoever registered the namespace may be about to write its first entry, which has the same bytes for all."""
    assert "first ten seconds" in (txnlog.open.__doc__ or "")
    clock = ManualClock(START_MS)
    with_orders(place, clock=clock).close()
    folder = Path(place.root) / "sales"
    shutil.rmtree(folder)
    clock.advance(10_000)
    with place.open(clock=clock) as again:
        assert again.topics() == ()
        assert again._connection.coordinator == 0, "its TxnIDs are those that the removed one gave"
    shutil.rmtree(folder)
    clock.advance(1)
    with raises(NamespaceNotFound, match="its log .* is missing", durable=Durable.NOTHING):
        place.open(clock=clock)
