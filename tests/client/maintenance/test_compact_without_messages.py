"""Key compaction where a partition has offsets that are new, and no message in them."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow.compute as pc
import pytest

import txnlog
from tests.client.maintenance.prices import compacted_topic, put, shown

_roots = itertools.count()


@pytest.fixture
def ns() -> Any:
    with txnlog.open(f"memory://compact-holes-{next(_roots)}", namespace="sales", create=True) as found:
        yield found


def replaced(ns: Any, name: str) -> None:
    compacted_topic(ns, partitions=4)
    put(ns, *((key, 1) for key in "abcdefgh"))
    with ns.begin() as txn:  # replace the content of the topic
        txn.truncate("prices")
        txn.produce("prices", [{"name": name, "price": number} for number in range(200)])


def test_a_topic_whose_content_was_replaced_is_compacted(ns: Any) -> None:
    """A truncation leaves a partition without a message."""
    replaced(ns, "a")
    assert ns.compact("prices").removed_messages == 199
    assert [row[2:] for row in shown(ns)] == [("a", 199)]


def test_a_namespace_with_a_topic_whose_content_was_replaced_is_maintained(ns: Any) -> None:
    replaced(ns, "a")
    done = ns.maintain()
    assert [item.removed_messages for item in done.compacted] == [199]


def test_a_topic_of_which_all_was_erased_is_compacted(ns: Any) -> None:
    """The only customer of a partition was erased, before anybody compacted."""
    compacted_topic(ns)
    put(ns, ("a", 1), ("a", 2))
    ns.erase("prices", pc.field("name") == "a")
    assert ns.compact("prices").removed_messages == 0
    assert shown(ns) == []
