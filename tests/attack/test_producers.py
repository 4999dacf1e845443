"""Repeated batches of named producers."""

from __future__ import annotations

from typing import Any

from tests.client.support import rows


def test_a_repeat_that_spans_two_batches_is_not_given_the_offsets_of_others(sales: Any) -> None:
    """Somebody else's row lies between the two: one range would claim it."""
    loader = sales.producer("loader")
    loader.produce("orders", rows(1, 2), 0, sequence=0)
    sales.produce("orders", rows(3))
    loader.produce("orders", rows(4, 5), 0, sequence=2)
    repeated = loader.produce("orders", rows(1, 2, 4, 5), 0, sequence=0)
    assert repeated.duplicate
    assert repeated.offsets is None
    assert loader.produce("orders", rows(5), 0, sequence=3).offsets == {("orders", 0): range(4, 5)}
