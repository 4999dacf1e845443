"""What a consumer of a Shared subscription leases ahead, and the limits of leases."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.shared import LEASE_MS, ns, other
from tests.client.support import counts, cursor, ids, received, rows, take
from txnlog.fold import leases
from txnlog.testing import ManualClock

__all__ = ["ns", "other"]  # fixtures


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-36", "P-172")
def test_a_consumer_has_a_bounded_number_of_messages(ns: Any, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_LEASED_MESSAGES", 6)
    one, two = ns.consumer("orders", "billing", name="one"), other.consumer("orders", "billing", name="two")
    messages = take(one, 4)
    assert received(one) == [4, 5]
    assert received(one) == []
    assert received(two) == [6, 7, 8, 9]
    one.acknowledge(messages[:2])
    ns.produce("orders", rows(10, 11, 12))
    assert received(one) == [10, 11]


@pytest.mark.clause("P-36", "P-172")
def test_at_the_limit_of_ranges_nothing_new_is_delivered_until_holes_fill(
    ns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_ACKNOWLEDGED_RANGES", 3)
    consumer = ns.consumer("orders", "billing")
    messages = take(consumer)
    consumer.acknowledge(messages[[1, 3, 6]])
    ns.produce("orders", rows(10, 11))
    assert received(consumer) == []
    consumer.negative_acknowledge(messages[[4, 5]])
    assert received(consumer, 1) == [4], "a hole: taking it adds no range"
    consumer.acknowledge(messages[4:6])
    assert cursor(ns).acknowledged == ((1, 2), (3, 7))
    consumer.acknowledge(messages)
    assert received(consumer) == [10, 11]


# --- ahead ------------------------------------------------------------------------------------------------------------


BATCH = 100


@pytest.fixture
def many(ns: Any) -> Any:
    """A thousand messages more, of which the subscription ``fast`` has taken none."""
    ns.produce("orders", rows(*range(10, 1_010)))
    ns.create_subscription("orders", "fast", type="shared", lease_ms=LEASE_MS)
    return ns


def versions(ns: Any, call: Any) -> int:
    before = ns.snapshot().version
    call()
    return ns.snapshot().version - before


@pytest.mark.clause("P-170")
@pytest.mark.parametrize("transaction", [False, True])
def test_the_next_grant_rides_in_the_entry_of_the_acknowledgement(many: Any, transaction: bool) -> None:
    consumer = many.consumer("orders", "fast")

    def one_batch() -> None:
        messages = take(consumer, BATCH)
        seen.extend(ids(messages.table))
        assert set(messages.redelivery_counts) == {0}
        if transaction:
            with many.begin() as txn:
                txn.acknowledge(messages)
        else:
            consumer.acknowledge(messages)

    seen: list[int] = []
    entries = [versions(many, one_batch) for _ in range(10)]
    own = 2 if transaction else 1
    assert entries[:3] == [own + 1] * 3, "a grant, then the acknowledgement"
    assert entries[3:9] == [own] * 6
    assert seen == list(range(1_000))
    assert many.subscription("orders", "fast").cursors[0].cursor == 1_000


def test_what_is_granted_ahead_leaves_as_much_for_others(many: Any, other: Any) -> None:
    one, two = many.consumer("orders", "fast", name="one"), other.consumer("orders", "fast", name="two")
    for _ in range(4):
        one.acknowledge(take(one, 200))
    assert received(two) == list(range(800, 1_010)), "ahead it would have had them all"


def test_what_was_granted_ahead_is_released_uncounted(many: Any, other: Any) -> None:
    one, two = many.consumer("orders", "fast", name="one"), other.consumer("orders", "fast", name="two")
    for _ in range(3):
        one.acknowledge(take(one, BATCH))
    assert other.subscription("orders", "fast").consumers == {"one": BATCH}
    assert ids(take(two, 1).table) == [400]
    one.close()
    assert counts(take(two, 1)) == {300: 0}


@pytest.mark.clause("P-170")
def test_what_was_delivered_since_the_next_grant_was_asked_for_is_not_delivered_again(many: Any) -> None:
    many.produce("orders", rows(*range(1_010, 2_010)))
    consumer = many.consumer("orders", "fast", name="one")
    for _ in range(4):
        consumer.acknowledge(take(consumer, 200))  # from here on the next grant rides in what is appended next
    batches = [take(consumer, BATCH), take(consumer, 50)]
    many.produce("audit", rows(1))
    batches += [take(consumer, BATCH) for _ in range(3)]
    seen = [number for batch in batches for number in ids(batch.table)]
    assert seen == list(range(800, 800 + len(seen))), "nothing was given back, and no lease ended"
    assert len(seen) > 200


def test_what_was_granted_ahead_and_ran_out_is_renewed_uncounted(many: Any, clock: ManualClock) -> None:
    consumer = many.consumer("orders", "fast")
    for _ in range(3):
        consumer.acknowledge(take(consumer, BATCH))
    clock.advance(LEASE_MS)
    messages = take(consumer, BATCH)
    assert (ids(messages.table)[0], set(messages.redelivery_counts)) == (300, {0})


@pytest.mark.clause("P-79")
def test_a_grant_that_rides_does_not_outlive_a_seek_or_its_consumer(many: Any) -> None:
    consumer = many.consumer("orders", "fast", name="one")
    for _ in range(3):
        take(consumer, BATCH)
    consumer.seek("latest")
    many.produce("audit", rows(1))
    assert many.subscription("orders", "fast").consumers == {}
    consumer.seek("earliest")
    for _ in range(3):
        take(consumer, BATCH)
    consumer.close()
    many.produce("audit", rows(2))
    assert many.subscription("orders", "fast").consumers == {}
