from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from txnlog.common import ranges
from txnlog.common.ranges import Ranges

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)
normal = pairs.map(ranges.normalize)


def members(value: Ranges) -> set[int]:
    return {offset for start, end in value for offset in range(start, end)}


def assert_normal(value: Ranges) -> None:
    assert ranges.is_normal(value)
    assert all(start < end for start, end in value)
    assert all(one[1] < other[0] for one, other in pairwise(value))


@given(pairs)
def test_normalizing_keeps_the_set(some):
    result = ranges.normalize(some)
    assert_normal(result)
    assert members(result) == {offset for start, end in some for offset in range(start, end)}


@given(normal)
def test_a_normal_value_is_its_own_normal_form(some):
    assert ranges.normalize(some) == some


@given(st.lists(st.integers(0, 60), max_size=30))
def test_single_values_become_their_set(values):
    result = ranges.from_values(values)
    assert_normal(result)
    assert members(result) == set(values)


@example(((0, 2),), ((2, 4),))
@example(((0, 2),), ((3, 4),))
@given(normal, normal)
def test_union_is_that_of_sets(left, right):
    result = ranges.union(left, right)
    assert_normal(result)
    assert members(result) == members(left) | members(right)


@given(normal, normal)
def test_intersection_is_that_of_sets(left, right):
    result = ranges.intersect(left, right)
    assert_normal(result)
    assert members(result) == members(left) & members(right)


@given(normal, normal)
def test_difference_is_that_of_sets(left, right):
    result = ranges.subtract(left, right)
    assert_normal(result)
    assert members(result) == members(left) - members(right)


@given(normal, normal)
def test_overlap_is_a_common_member(left, right):
    assert ranges.overlaps(left, right) == bool(members(left) & members(right))


@given(normal)
def test_containing_is_membership(some):
    inside = members(some)
    for value in range(-2, 46):  # each: that a range begins at one drawn by chance is rare
        assert ranges.contains(some, value) == (value in inside)


@given(normal)
def test_size_is_the_count_of_members(some):
    assert ranges.size(some) == len(members(some))


@given(normal, normal)
def test_equal_sets_are_equal_values(left, right):
    assert (left == right) == (members(left) == members(right))


def test_what_overlaps_touches_is_empty_or_out_of_order_is_not_normal():
    assert not ranges.is_normal(((0, 2), (1, 3)))
    assert not ranges.is_normal(((0, 2), (2, 3)))
    assert not ranges.is_normal(((2, 2),))
    assert not ranges.is_normal(((3, 2),))
    assert not ranges.is_normal(((4, 5), (0, 2)))
    assert ranges.is_normal(())
    assert ranges.is_normal(((0, 2), (3, 4)))


@example(((0, 2), (5, 9)), ((5, 9),))
@example(((0, 2),), ((1, 3),))
@example((), ())
@given(normal, normal)
def test_a_set_covers_what_is_a_part_of_it(some, part):
    assert ranges.covers(some, part) == (members(part) <= members(some))
    assert ranges.covers(some, ranges.intersect(some, part))


@given(normal, st.integers(0, 40), st.integers(1, 40))
def test_one_range_and_many_are_as_sets(some, start, width):
    one = ((start, start + width),)
    for found, expected in (
        (ranges.intersect(some, one), members(some) & members(one)),
        (ranges.intersect(one, some), members(some) & members(one)),
        (ranges.subtract(some, one), members(some) - members(one)),
        (ranges.subtract(one, some), members(one) - members(some)),
        (ranges.union(one, some), members(one) | members(some)),
    ):
        assert_normal(found)
        assert members(found) == expected
