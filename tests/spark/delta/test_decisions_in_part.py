"""Two-phase commits that a Delta table decides: errors say that the transaction is prepared, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ext.delta.commit_arbiter import DeltaDecision
from tests.client.support import SCHEMA, FaultyStore, Place, rows
from txnlog.errors import Durable, StoreError


class _Table:
    """A Delta table that refuses the rows, and whose refusal is the last thing that works."""

    id = "4b2f"
    name = "totals"

    def __init__(self, store: FaultyStore) -> None:
        self._store = store
        self.version: int | None = None

    def last(self, _app: str) -> int | None:
        return self.version

    def append(self, *_arguments: Any) -> None:
        raise ValueError("a column is missing")

    def take(self, _app: str, version: int, _note: Any) -> None:
        self.version = version
        self._store.forever = "refused"


def test_a_transaction_that_is_prepared_and_decided_is_said_to_be(quick: Place) -> None:
    """LIE: rows prepared, the table has decided, the abort is refused: "nothing was written", and no way out."""
    ns, store = quick.faulty()
    ns.create_topic("orders", SCHEMA)
    table: Any = _Table(store)
    decision = DeltaDecision(ns, table, "nightly")
    txn = ns.producer(decision.producer).begin()
    txn.produce("orders", rows(1))
    frame: Any = None
    with pytest.raises(StoreError) as caught:
        decision._finish(frame, {}, txn)
    assert caught.value.__notes__ == ["before that the Delta table 'totals' refused the rows: a column is missing"]
    store.heal()
    assert [item.txn_id for item in ns.transactions(state="PREPARED")] == [txn.id]
    assert table.version is not None, "the table has a commit about it"
    assert caught.value.durable is Durable.MAYBE, caught.value
    assert "commit again" in caught.value.advice, caught.value
