"""Growing pauses: they end at the longest."""

from __future__ import annotations

from txnlog.common.pauses import Backoff, pause_between_looks


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(20.0, 100.0)
    assert [backoff.after(failures) for failures in range(1, 6)] == [20.0, 40.0, 80.0, 100.0, 100.0]


def test_after_any_number_of_failures_the_pause_is_the_longest() -> None:
    assert Backoff(20.0, 100.0).after(1_000_000) == 100.0


def test_a_first_pause_above_the_longest_is_shortened() -> None:
    assert Backoff(20.0, 5.0).after(1) == 5.0


def test_a_look_comes_late_by_a_share_of_the_wait() -> None:
    assert [pause_between_looks(waited, 0.1) for waited in (0.0, 4.0, 80.0, 800.0, 8_000.0)] == [0.5, 0.5, 10, 100, 250]


def test_a_slow_store_is_asked_no_more_often_than_helps() -> None:
    assert pause_between_looks(40.0, 40.0) == 10.0
    assert pause_between_looks(2_000.0, 2_000.0) == 250.0
