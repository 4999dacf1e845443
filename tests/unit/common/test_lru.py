"""What is kept in memory up to a bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from txnlog.common.lru import Recent


def test_what_was_used_longest_ago_goes_first():
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_a_look_keeps_nothing_longer():
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert (recent.peek("a"), recent.peek("z")) == (1, None)
    recent.put("c", 3)
    assert recent.values() == [2, 3]


def test_the_bound_is_one_of_weights():
    recent: Recent[str, str] = Recent(5, len)
    for text in ("aaa", "bb", "c"):
        recent.put(text, text)
    assert recent.values() == ["bb", "c"]
    assert recent.weight == 3
    recent.put("dddddd", "dddddd")
    assert (recent.values(), recent.weight) == ([], 0), "what is too heavy by itself is not kept"


def test_the_newest_few_stay_whatever_they_weigh():
    recent: Recent[int, str] = Recent(5, len, least=1)
    recent.put(1, "bb")
    recent.put(2, "dddddd")
    assert (recent.values(), recent.weight) == (["dddddd"], 6)
    recent.put(3, "e")
    assert (recent.values(), recent.weight) == (["e"], 1)


def test_the_first_value_of_a_key_stays():
    recent: Recent[int, str] = Recent(5, len)
    recent.put(1, "aa")
    recent.put(1, "bbb")
    assert (recent.values(), recent.weight) == (["aa"], 2)


def test_what_is_dropped_weighs_nothing_and_may_come_again():
    recent: Recent[int, str] = Recent(5, len)
    recent.put(1, "aa")
    recent.drop(1)
    recent.drop(1)
    assert (recent.get(1), recent.weight) == (None, 0)
    recent.put(1, "bbb")
    assert (recent.get(1), recent.weight) == ("bbb", 3)


def test_threads_keep_the_bound_together():
    recent: Recent[int, str] = Recent(40, len)

    def use(first: int) -> None:
        for number in range(first, first + 300):
            recent.put(number % 50, "x" * (number % 7))
            recent.get((number * 3) % 50)
            recent.drop((number * 7) % 50)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert recent.weight == sum(map(len, recent.values())) <= 40
