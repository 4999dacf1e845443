"""Topics that are altered while they are compacted."""

from __future__ import annotations

import pytest

from tests.client.maintenance.prices import compacted_topic, put, shown
from tests.client.support import Place
from txnlog.maintenance.compaction import Compaction

START_MS = 1_700_000_000_000


def test_a_topic_that_is_to_keep_all_again_loses_nothing_more(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loses messages that the settings keep: each pass looks at the topic again, but not at ``cleanup_policy``."""
    ns, other = compacted_topic(memory.open()), memory.open()
    for number in range(6):
        put(ns, ("a", number), ("b", number))
    monkeypatch.setattr(Compaction._next, "__defaults__", (2,))  # the constant is bound when the module is loaded
    look = Compaction._next
    passes: list[int] = []
    kept: list[object] = []

    def altered(self: Compaction, *arguments: int) -> object:
        passes.append(1)
        if len(passes) == 3:
            other.alter_topic("prices", cleanup_policy="delete")
            kept.extend(shown(other))
        return look(self, *arguments)

    monkeypatch.setattr(Compaction, "_next", altered)
    ns.compact("prices")
    assert kept
    assert shown(ns) == kept
