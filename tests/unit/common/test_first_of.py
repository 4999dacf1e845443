"""What several make at the same time is the first one for all of them."""

from __future__ import annotations

from txnlog.common.first_of import FirstOf


def test_it_is_made_once_and_when_it_is_needed() -> None:
    first = FirstOf[list[int]]()
    assert first.get() is None
    made = first.get_or(list)
    assert first.get() is made
    assert first.get_or(lambda: [1]) is made


def test_who_comes_while_it_is_made_is_the_first() -> None:
    first, theirs = FirstOf[list[int]](), list[int]()

    def make() -> list[int]:
        assert first.get_or(lambda: theirs) is theirs  # as the handler of a signal may
        return [1]

    assert first.get_or(make) is theirs
    assert first.get() is theirs


def test_after_a_fork_another_one_is_made() -> None:
    first = FirstOf[list[int]]()
    made = first.get_or(list)
    first.clear()
    assert first.get() is None
    assert first.get_or(list) is not made
