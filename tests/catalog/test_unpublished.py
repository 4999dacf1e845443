"""What a publisher says of a table without writing: since when it lacks something, as a doctor asks."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import Catalog
from catalog.publication.publications import Publications
from tests.client.support import SCHEMA, Place, Unchanged, objects, rows
from txnlog.client.auto_publisher import Unpublished
from txnlog.format import keys
from txnlog.testing import ManualClock


def unpublished(ns: Any, topic: str = "orders") -> Unpublished | None:
    of = ns._connection
    of.follower.refresh()
    return Publications(of.follower, of.store, of.runtime).unpublished(of.topic_record(topic).id)


def test_a_topic_without_a_table_lacks_nothing(cat: Catalog, ns: Any) -> None:
    ns.produce("orders", rows(1))
    assert unpublished(ns) is None


def test_a_table_lacks_what_was_committed_behind_it(place: Place, cat: Catalog, ns: Any) -> None:
    clock = ManualClock(ns.history(1)[0].timestamp_ms)
    writer = place.open(clock=clock)
    writer.produce("orders", rows(1))
    shown = cat.publish("sales", "orders").version
    with Unchanged(place):
        assert unpublished(ns) is None
    writer.create_topic("audit", SCHEMA)  # is none of it
    clock.advance(1_000)
    assert unpublished(ns) is None
    writer.produce("orders", rows(2))
    first_ms = clock.now_ms()
    clock.advance(1_000)
    writer.produce("orders", rows(3))
    with Unchanged(place):
        assert unpublished(ns) == Unpublished(shown, first_ms)
    cat.publish("sales", "orders")
    assert unpublished(ns) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"commitInfo":{"inCommitTimestamp":1}}'])
def test_what_is_damaged_or_of_somebody_else_says_nothing(place: Place, cat: Catalog, ns: Any, content: bytes) -> None:
    ns.produce("orders", rows(1))
    cat.publish("sales", "orders")
    ns.produce("orders", rows(2))
    store = place.store()
    newest = max(key for key in objects(store, "sales/orders/") if isinstance(_parsed(key), keys.DeltaKey))
    store.put(newest, content)
    with Unchanged(place):
        assert unpublished(ns) is None


def _parsed(key: str) -> Any:
    return keys.parse_key(key.removeprefix("sales/"))
