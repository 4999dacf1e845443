"""What a process wrote it need not read again to merge it: it is merged as it was written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.client.merging import actions, at_rest, commit, everything, orders, segments, whole
from tests.client.support import SCHEMA, Place, rows
from txnlog.format.actions import Segment

pytestmark = pytest.mark.usefixtures("soon")


def test_no_file_that_it_committed_is_read_and_every_version_shows_the_same(memory: Place) -> None:
    ns, store = memory.counted()
    ns.create_topic("orders", SCHEMA, partitions=2)
    for number in range(30):
        ns.produce("orders", rows(2 * number, 2 * number + 1), partition=number % 2)
        at_rest(ns)
    assert len(segments(ns)) < 20
    fetched = sum(count for (call, kind), count in store.counts().items() if (call, kind) == ("get", "segment"))
    assert fetched <= sum(item.compacted for item in actions(ns, Segment)), "those that a merge made, at most"
    before = everything(ns)
    other = memory.open(mode="r")
    assert {version: whole(other, "orders", version) for version in before} == before
    assert sorted(row["id"] for row in whole(other)) == list(range(60))


def test_what_another_one_wrote_is_read(memory: Place) -> None:
    ns, other = orders(memory), memory.open()
    for number in range(30):
        (ns, other)[number % 2].produce("orders", rows(number))
        ns._connection.follower.refresh()
        at_rest(ns)
    assert len(segments(ns)) < 20
    assert [row["id"] for row in whole(other)] == list(range(30))


def test_rows_that_were_written_before_the_topic_was_altered_are_merged_with_those_behind(memory: Place) -> None:
    ns = orders(memory)
    commit(ns, 5)
    ns.alter_topic("orders", add_columns=pa.schema([("note", pa.string())]))
    for number in range(5, 20):
        ns.produce("orders", [{**rows(number)[0], "note": f"of {number}"}])
        at_rest(ns)
    assert len(segments(ns)) <= 12  # at most eleven come together behind one that was merged
    found = whole(memory.open(mode="r"))
    assert [(row["id"], row["note"]) for row in found] == [
        (number, f"of {number}" if number >= 5 else None) for number in range(20)
    ]
