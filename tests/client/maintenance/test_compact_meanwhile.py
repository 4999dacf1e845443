"""Topics that are altered, or compacted by others, while they are compacted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.client.maintenance.people import vacuumed
from tests.client.maintenance.prices import DAY_MS, compacted_topic, put, shown
from tests.client.support import Place
from txnlog.errors import TopicNotFound
from txnlog.fold.state import State
from txnlog.log.follower import Follower
from txnlog.maintenance import compaction
from txnlog.maintenance.compaction import Compaction
from txnlog.testing import ManualClock

START_MS = 1_700_000_000_000


def before_call(monkeypatch: pytest.MonkeyPatch, name: str, number: int, act: Callable[[], object]) -> list[int]:
    """Let a compaction call one of its methods so many times, and act right in front of that call.

    Returns a list that has an item for each call.
    """
    real = getattr(Compaction, name)
    calls: list[int] = []

    def late(self: Compaction, *arguments: Any) -> object:
        calls.append(1)
        if len(calls) == number:
            act()
        return real(self, *arguments)

    monkeypatch.setattr(Compaction, name, late)
    return calls


def test_a_topic_that_is_to_keep_all_again_loses_nothing_with_the_next_pass(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, other = compacted_topic(memory.open()), memory.open()
    for number in range(6):
        put(ns, ("a", number), ("b", number))
    monkeypatch.setattr(compaction, "_MOST_KEYS", 2)
    kept: list[object] = []

    def keep_all() -> None:
        other.alter_topic("prices", cleanup_policy="delete")
        kept.extend(shown(other))

    before_call(monkeypatch, "_next", 3, keep_all)
    done = ns.compact("prices")
    assert (done.entries, done.finished) == (1, True)
    assert 2 < len(kept) < 12
    assert shown(ns) == kept


@pytest.mark.parametrize(
    "settings", [{"cleanup_policy": "delete"}, {"min_compaction_lag_ms": DAY_MS}, {"compact_unacknowledged": False}]
)
def test_what_was_decided_by_other_settings_does_not_go(
    memory: Place, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    clock = ManualClock(START_MS)
    ns, other = compacted_topic(memory.open(clock=clock)), memory.open(clock=clock)
    ns.create_subscription("prices", "audit", start="earliest")
    put(ns, ("a", 1), ("a", 2), ("b", 1))
    before = shown(ns)
    calls = before_call(monkeypatch, "_limits", 2, lambda: None)
    looked_at = Compaction._looked_at

    def altered(self: Compaction, found: Any) -> object:
        decision = looked_at(self, found)
        if len(calls) == 1:
            other.alter_topic("prices", **settings)
        return decision

    monkeypatch.setattr(Compaction, "_looked_at", altered)
    done = ns.compact("prices")
    assert (done.removed_messages, done.lost_races, done.finished) == (0, 1, True)
    assert shown(ns) == before


@pytest.mark.parametrize("how", ["created", "sought"])
def test_who_begins_to_read_during_a_compaction_is_delivered_all(
    memory: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Where messages stay that a subscription may need in full, also for one that came since the decision."""
    ns, other = compacted_topic(memory.open(), compact_unacknowledged=False), memory.open()
    put(ns, ("a", 1), ("a", 2), ("b", 1))
    if how == "sought":
        ns.create_subscription("prices", "audit", start="latest")
    before = shown(ns)
    looked_at = Compaction._looked_at
    decided: list[object] = []

    def late(self: Compaction, found: Any) -> object:
        decision = looked_at(self, found)
        if not decided and how == "created":
            other.create_subscription("prices", "audit", start="earliest")
        elif not decided:
            with other.consumer("prices", subscription="audit") as consumer:
                consumer.seek("earliest")
        decided.append(decision)
        return decision

    monkeypatch.setattr(Compaction, "_looked_at", late)
    done = ns.compact("prices")
    assert (done.removed_messages, done.lost_races, done.finished) == (0, 1, True)
    with other.consumer("prices", subscription="audit") as consumer:
        assert len(consumer.receive(10, timeout_ms=0)) == 3
    assert shown(ns) == before


def test_a_value_in_a_column_that_just_came_is_one(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread of the handle adds a column, and a row with it, in front of any look at the state."""
    look, moments = Follower.look, 0

    def overtaken(moment: int) -> bool:
        """Compact with that at one of the looks; whether there was such a one."""
        clock, looks = ManualClock(START_MS), 0
        ns = compacted_topic(memory.open(f"n{moment}", clock=clock), delete_retention_ms=0)
        put(ns, ("a", 1), ("b", 1))
        work = compaction.begin(ns._connection, "prices")

        def late(self: Follower, question: Callable[[State], Any]) -> object:
            nonlocal looks
            looks += 1
            if looks == moment:
                ns.alter_topic("prices", add_columns=pa.schema([pa.field("note", pa.string())]))
                ns.produce("prices", [{"name": "a", "price": None, "note": "sold out"}])
                clock.advance(DAY_MS)
            return look(self, question)

        with monkeypatch.context() as patched:
            patched.setattr(Follower, "look", late)
            work.run()
        if looks < moment:
            return False
        ns.compact("prices")
        assert ns.snapshot().read("prices").to_pylist() == [
            {"name": "b", "price": 1, "note": None},
            {"name": "a", "price": None, "note": "sold out"},
        ], moment
        return True

    while overtaken(moments + 1):
        moments += 1
    assert moments > 1


def test_who_was_overtaken_does_not_say_that_nothing_is_left(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compaction that saw less notes is not what one that saw more has noted."""
    clock = ManualClock(START_MS)
    ns, other = compacted_topic(memory.open(clock=clock)), memory.open(clock=clock)
    put(ns, *[(f"k{key}", 1) for key in range(50)])
    looked_at = Compaction._looked_at
    once = [1]

    def overtaken(self: Compaction, found: Any) -> object:
        decision = looked_at(self, found)
        if once:
            once.clear()
            put(other, ("a", None))
            other.compact("prices")
        return decision

    monkeypatch.setattr(Compaction, "_looked_at", overtaken)
    ns.compact("prices")
    for _ in range(5):
        clock.advance(2 * DAY_MS)
        ns.maintain()
    assert "a" not in [row[2] for row in shown(ns)]


@pytest.mark.parametrize("is_vacuumed", [False, True])
@pytest.mark.parametrize("moment", [1, 2])
def test_a_topic_that_is_dropped_meanwhile_is_said_to_be(
    memory: Place, monkeypatch: pytest.MonkeyPatch, moment: int, *, is_vacuumed: bool
) -> None:
    """LIES ("TopicNotFound: also where it is dropped meanwhile")."""
    clock = ManualClock(START_MS)
    ns, other = compacted_topic(memory.open(clock=clock)), memory.open(clock=clock)
    put(ns, ("a", 1), ("b", 1))
    real = Compaction._next

    def drop() -> None:
        other.drop_topic("prices")
        if is_vacuumed:
            vacuumed(other, clock)

    calls: list[int] = []

    def late(self: Compaction, *arguments: Any) -> object:
        calls.append(1)
        if len(calls) == 1 and moment == 1:
            drop()
        found = real(self, *arguments)
        if len(calls) == 1 and moment == 2:
            drop()
        return found

    monkeypatch.setattr(Compaction, "_next", late)
    with pytest.raises(TopicNotFound):
        ns.compact("prices")


def test_maintain_goes_on_behind_a_topic_that_is_dropped_and_vacuumed_meanwhile(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BLOCKS: the call ends with the topic that somebody dropped; nothing behind it is done."""
    clock = ManualClock(START_MS)
    ns, other = compacted_topic(memory.open(clock=clock)), memory.open(clock=clock)
    put(ns, ("a", 1), ("b", 1))
    real = Compaction._looked_at
    once = [1]

    def late(self: Compaction, *arguments: Any) -> object:
        if once:
            once.clear()
            other.drop_topic("prices")
            vacuumed(other, clock)
        return real(self, *arguments)

    monkeypatch.setattr(Compaction, "_looked_at", late)
    done = ns.maintain()
    assert not once
    assert not done.failures, done.failures
