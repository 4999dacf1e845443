"""Growing pauses: they double, and end at the longest."""

from __future__ import annotations

from txnlog.common.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(20.0, 100.0)
    assert [backoff.after(failures) for failures in range(1, 6)] == [20.0, 40.0, 80.0, 100.0, 100.0]


def test_after_any_number_of_failures_the_pause_is_the_longest() -> None:
    assert Backoff(20.0, 100.0).after(1_000_000) == 100.0


def test_a_first_pause_above_the_longest_is_shortened() -> None:
    assert Backoff(20.0, 5.0).after(1) == 5.0
