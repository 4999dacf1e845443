"""The places of commits: who may go on, whoever left before."""

from __future__ import annotations

from txnlog.engine.effects import Reply
from txnlog.log.commit_order import CommitOrder, Place


def reached(place: Place) -> Reply[None] | None:
    """What a commit waits for; None where its place is reached at once."""
    try:
        effect = place.reach().send(None)
    except StopIteration:
        return None
    assert isinstance(effect, Reply)
    return effect


def test_each_waits_for_all_before_it() -> None:
    order = CommitOrder()
    first, second, third = (order.take() for _ in range(3))
    waits = {place: reached(place) for place in (third, second, first)}
    assert waits[first] is None
    for left, following, behind in ((first, second, third), (second, third, None)):
        left.leave()
        wait = waits[following]
        assert wait is not None
        assert wait.result is not None
        assert behind is None or (last := waits[behind]) is None or last.result is None
    third.leave()
    assert reached(order.take()) is None, "nobody is left"


def test_one_that_gives_up_lets_nobody_overtake_those_before_it() -> None:
    order = CommitOrder()
    first, second, third = (order.take() for _ in range(3))
    wait = reached(third)
    assert wait is not None
    second.leave()
    assert wait.result is None, "the first one is not ready yet"
    first.leave()
    assert wait.result is not None


def test_leaving_again_changes_nothing() -> None:
    order = CommitOrder()
    first, second, third = (order.take() for _ in range(3))
    wait = reached(third)
    assert wait is not None
    first.leave()
    first.leave()
    assert wait.result is None
    second.leave()
    assert wait.result is not None
