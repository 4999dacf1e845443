"""Portions of files: in order, within both bounds, and one that is too big alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from txnlog.maintenance.waves import waves


@given(st.lists(st.integers(0, 12)), st.integers(1, 5), st.integers(1, 20))
def test_every_item_is_in_one_wave_within_both_bounds(sizes: list[int], most_items: int, most_bytes: int) -> None:
    found = list(waves(sizes, lambda size: size, most_items, most_bytes))
    assert [size for wave in found for size in wave] == sizes
    for wave in found:
        assert len(wave) == 1 or (len(wave) <= most_items and sum(wave) <= most_bytes)
    for wave, following in pairwise(found):
        assert len(wave) == most_items or sum(wave) + following[0] > most_bytes, "a wave is as big as it may be"
