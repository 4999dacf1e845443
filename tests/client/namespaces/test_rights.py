"""Rights end at the namespace: whoever may write to its folder needs nothing but to read the root's log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, ids, objects, read, rows
from txnlog.client import session
from txnlog.errors import Durable, StoreError
from txnlog.format.actions import Verdict
from txnlog.log import root_log
from txnlog.store import Created, ForwardingStore, Store
from txnlog.store.identity import StoreIdentity


class BelowSales(ForwardingStore):
    """Writes reach the folder of the namespace ``sales`` alone."""

    def create(self, key: str, data: bytes) -> Created:
        self._check(key)
        return super().create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._check(key)
        super().put(key, data)

    def delete(self, key: str) -> None:
        self._check(key)
        super().delete(key)

    def _check(self, key: str) -> None:
        if not key.startswith("sales/"):
            raise StoreError(f"no right to write {key}", durable=Durable.NOTHING)


class Elsewhere(BelowSales):
    """The same objects through an endpoint that the root has no verdict on."""

    @property
    def identity(self) -> StoreIdentity:
        return StoreIdentity("other", "0123456789abcdef")


def use_everything(ns: Any) -> None:
    """Topics, producing, consuming, transactions, maintenance."""
    ns.create_topic("orders", SCHEMA, if_not_exists=True)
    ns.create_topic("audit", SCHEMA, if_not_exists=True)
    ns.produce("orders", rows(1, 2))
    consumer = ns.consumer("orders", "billing")
    with ns.begin() as txn:
        messages = consumer.receive(timeout_ms=0)
        txn.acknowledge(messages)
        txn.produce("audit", rows(*ids(messages.table)))
    ns.checkpoint()
    ns.vacuum()


def test_a_namespace_is_used_without_a_right_to_write_to_its_root(place: Place) -> None:
    place.open().close()
    before = list(objects(place.store(), "_catalog/"))
    ns = place.open(wrap=BelowSales, create=False)
    use_everything(ns)
    assert read(ns, "audit") == [1, 2]
    assert list(objects(place.store(), "_catalog/")) == before


@pytest.mark.clause("P-122")
@pytest.mark.real_probe
def test_a_store_that_the_root_does_not_know_is_tried_below_the_namespace(place: Place, monkeypatch: Any) -> None:
    """As where a root is reached through another endpoint than the one that it was made through."""
    with place.open() as ns:
        ns.create_topic("orders", SCHEMA)
    trials: list[str] = []

    def counted(store: Store) -> Verdict:
        trials.append(store.url("x"))
        return root_log.probed(store)

    monkeypatch.setattr(session, "probed", counted)
    for _ in range(2):
        use_everything(place.open(wrap=Elsewhere, create=False))
    reader = place.open(mode="r")
    (trial,) = trials  # the log knows the second time
    assert trial.endswith("/sales/x")
    assert ("other", "0123456789abcdef") in reader._connection.follower.state.verdicts
    assert not [key for key in objects(place.store()) if "/_probe/" in key]
