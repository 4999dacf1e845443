"""Whether a batch that an older run of ``process`` left in a Delta table was committed here, by what the log tells."""

from __future__ import annotations

from typing import Any

import pytest

from spark_ext.processing.earlier_batches import was_committed
from spark_ext.processing.ownership import take_over
from tests.client.support import SCHEMA, Place, memory_place, raises, rows  # noqa: F401 - a fixture
from txnlog.api.internals import acknowledge_ranges
from txnlog.common.format_limits import OUTCOME_RETENTION_MS
from txnlog.errors import SubscriptionNotFound, TransactionAborted
from txnlog.format.actions import Acknowledgement
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS

READ = {"orders": {0: (0, 2)}}


def taken_over(ns: Any) -> Any:
    return take_over(ns._connection, ["orders"], "billing", query_name=None, start="earliest", to_dead_letters=False)


def left(memory: Place, **options: Any) -> tuple[Any, str, int]:
    """A namespace, the id of a transaction that never was committed, and the version that its batch was planned by."""
    ns = memory.open(**options)
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0, 1, 2))
    taken_over(ns)
    return ns, str(ns.begin().id), ns.snapshot().version


def test_a_run_that_begins_fences_the_one_before_and_what_it_logged(memory: Place) -> None:
    """A run that died left a batch whose work the log shows: the next one does not wait for its deadline."""
    ns, _, _ = left(memory)
    (before,) = taken_over(ns)
    txn = ns.begin()
    acknowledge_ranges(txn, [Acknowledgement(before.subscription, before.epoch, (), ((0, 2),))])
    txn.flush()
    (later,) = taken_over(memory.open())
    assert later.epoch > before.epoch
    with raises(TransactionAborted, match="fenced"):
        txn.commit()
    assert ns.transaction(txn.id).state == "ABORTED"


def test_offsets_that_somebody_else_took_are_no_commit(memory: Place) -> None:
    ns, txn, version = left(memory)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 2})
    assert not was_committed(ns, taken_over(ns), txn, READ, version)


def test_what_the_log_remembers_is_the_answer(memory: Place) -> None:
    ns, _, version = left(memory)
    with ns.begin() as txn:
        txn.produce("orders", rows(3))
    assert was_committed(ns, taken_over(ns), str(txn.id), READ, version)
    lost = ns.begin()
    lost.produce("orders", rows(4))
    lost.flush()
    lost.abort()
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 2})
    assert not was_committed(ns, taken_over(ns), str(lost.id), READ, version)


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_where_the_outcome_may_be_forgotten_the_cursor_decides(memory: Place, taken: int) -> None:
    clock = ManualClock(START_MS)
    ns, txn, version = left(memory, clock=clock)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: taken})
    clock.advance(OUTCOME_RETENTION_MS - 1_000)
    ns.produce("orders", rows(5))
    assert not was_committed(ns, taken_over(ns), txn, READ, version)
    clock.advance(2_000)
    ns.produce("orders", rows(6))
    assert was_committed(ns, taken_over(ns), txn, READ, version) == (taken == 2)


def test_a_log_that_was_set_back_has_not_committed_what_was_planned_by_later_versions(memory: Place) -> None:
    ns, txn, version = left(memory)
    ns.consumer("orders", subscription="billing", takeover=True).seek({0: 2})
    assert not was_committed(ns, taken_over(ns), txn, READ, version + 100)


def test_a_subscription_that_is_dropped_meanwhile_is_reported_by_name(memory: Place) -> None:
    clock = ManualClock(START_MS)
    ns, txn, version = left(memory, clock=clock)
    owned = taken_over(ns)
    clock.advance(OUTCOME_RETENTION_MS + 1_000)
    ns.drop_subscription("orders", "billing")
    with raises(SubscriptionNotFound, match=r"the subscription 'billing' of 'orders' was dropped \(run it again"):
        was_committed(ns, owned, txn, READ, version)
