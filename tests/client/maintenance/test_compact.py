"""Key compaction: of each key the newest message stays, whoever reads it, and offsets stay as they are."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.client.maintenance.prices import DAY_MS, PRICES, Row, compacted_topic, put, shown
from tests.client.support import Place, raises
from txnlog.errors import InvalidInputError, UnsupportedFeature
from txnlog.testing import ManualClock


def newest_of_each(rows: list[Row]) -> list[Row]:
    """What compaction leaves of some messages."""
    newest = {(partition, key): offset for partition, offset, key, _ in rows if key is not None}
    return [row for row in rows if row[2] is None or newest[row[0], row[2]] == row[1]]


@pytest.mark.clause("P-252")
def test_of_each_key_the_newest_message_stays_at_its_offset(place: Place) -> None:
    ns = compacted_topic(place.open())
    put(ns, ("a", 1), ("b", 1), ("a", 2))
    before = put(ns, ("c", 1), ("b", 2), (None, 7))
    everything = shown(ns)
    done = ns.compact("prices")
    assert (done.removed_messages, done.finished, done.entries) == (2, True, 1)
    left = [(0, 2, "a", 2), (0, 3, "c", 1), (0, 4, "b", 2), (0, 5, None, 7)]
    for client in (ns, place.open(mode="r")):
        assert shown(client) == left
        assert shown(client, before) == everything
        assert client.snapshot().end_offsets("prices") == {0: 6}
        assert shown(client, offsets={0: (1, 5)}) == left[:3]
        assert shown(client, offsets={0: (0, 2)}) == []
    put(ns, ("a", 3))
    assert shown(ns) == [*left, (0, 6, "a", 3)]
    assert ns.compact("prices").removed_messages == 1
    assert shown(ns) == [*left[1:], (0, 6, "a", 3)]
    assert ns.compact("prices").removed_messages == 0
    assert not [item for item in ns.fsck("deep").findings if item.severity != "note"]


def test_what_is_in_a_checkpoint_is_compacted_and_read_from_one(place: Place) -> None:
    ns = compacted_topic(place.open(), partitions=2)
    for number in range(6):
        put(ns, *[(f"k{key}", number) for key in range(10)])
        if number == 3:
            ns.checkpoint()
    expected = newest_of_each(shown(ns))
    ns.compact("prices")
    assert shown(ns) == expected
    ns.checkpoint()
    put(ns, ("late", 1))
    other = place.open(mode="r")
    assert [row for row in shown(other) if row[2] != "late"] == expected
    ns.optimize("prices")
    assert [row for row in shown(place.open(mode="r")) if row[2] != "late"] == expected


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_compaction_among_merges_and_deletions_shows_what_a_plain_list_would(
    memory: Place, data: st.DataObject
) -> None:
    clock = ManualClock(1_700_000_000_000)
    name = f"n{len(memory.opened)}"
    ns = compacted_topic(memory.open(name, clock=clock), partitions=2, delete_retention_ms=1_000)
    rows: list[Row] = []
    times: dict[tuple[int, int], int] = {}
    starts = {0: 0, 1: 0}
    for _ in range(data.draw(st.integers(1, 12))):
        clock.advance(data.draw(st.sampled_from([1, 400, 2_000])))
        step = data.draw(
            st.sampled_from(["produce", "produce", "produce", "compact", "optimize", "delete", "checkpoint"])
        )
        if step == "produce":
            pairs = data.draw(
                st.lists(
                    st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.sampled_from([1, 2, None])),
                    min_size=1,
                    max_size=6,
                )
            )
            put(ns, *pairs)
            rows = sorted(
                {*rows, *(row for row in shown(ns) if (row[0], row[1]) not in times)}, key=lambda row: row[:2]
            )
            times.update({(p, o): clock.now_ms() for p, o, _, _ in rows if (p, o) not in times})
        elif step == "compact":
            ns.compact("prices")
            rows = [
                row
                for row in newest_of_each(rows)
                if row[2] is None or row[3] is not None or times[row[0], row[1]] > clock.now_ms() - 1_000
            ]
        elif step == "optimize":
            ns.optimize("prices", target_size_bytes=data.draw(st.sampled_from([2_000, 1 << 20])))
        elif step == "delete":
            partition = data.draw(st.sampled_from([0, 1]))
            end = ns.snapshot().end_offsets("prices")[partition]
            starts[partition] = max(starts[partition], data.draw(st.integers(0, end)))
            ns.delete_records("prices", {partition: starts[partition]})
        else:
            ns.checkpoint()
        rows = [row for row in rows if row[1] >= starts[row[0]]]
        assert shown(ns) == rows
    assert shown(memory.open(name, mode="r")) == rows
    assert not [item for item in ns.fsck("deep").findings if item.severity != "note"]


def test_a_key_without_a_value_goes_when_readers_have_had_time(place: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    ns = compacted_topic(place.open(clock=clock))
    put(ns, ("a", 1), ("b", 1))
    put(ns, ("a", None))
    ns.compact("prices")
    assert shown(ns) == [(0, 1, "b", 1), (0, 2, "a", None)]
    clock.advance(DAY_MS - 1)
    put(ns, ("b", 2))
    ns.compact("prices")
    assert shown(ns) == [(0, 2, "a", None), (0, 3, "b", 2)]
    clock.advance(1)
    put(ns, ("c", 1))
    assert ns.compact("prices").removed_messages == 1
    assert shown(ns) == [(0, 3, "b", 2), (0, 4, "c", 1)]


def test_what_is_young_stays(place: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    ns = compacted_topic(place.open(clock=clock), min_compaction_lag_ms="1h")
    put(ns, ("a", 1))
    clock.advance(1_000)
    put(ns, ("a", 2))
    assert ns.compact("prices").removed_messages == 0
    clock.advance(3_600_000)
    put(ns, ("a", 3))
    assert ns.compact("prices").removed_messages == 1
    assert shown(ns) == [(0, 1, "a", 2), (0, 2, "a", 3)]


def test_what_a_subscription_needs_stays_where_the_topic_says_so(place: Place) -> None:
    ns = compacted_topic(place.open(), compact_unacknowledged=False)
    put(ns, ("a", 1))
    put(ns, ("a", 2))
    put(ns, ("a", 3))
    ns.create_subscription("prices", "audit")
    assert ns.compact("prices").removed_messages == 0
    with ns.consumer("prices", subscription="audit") as consumer:
        consumer.acknowledge(consumer.receive()[:2])
        assert ns.compact("prices").removed_messages == 1
    assert shown(ns) == [(0, 1, "a", 2), (0, 2, "a", 3)]
    ns.alter_topic("prices", compact_unacknowledged=True)
    assert ns.compact("prices").removed_messages == 1


def test_nothing_may_be_left_of_a_segment(place: Place) -> None:
    clock = ManualClock(1_700_000_000_000)
    ns = compacted_topic(place.open(clock=clock), delete_retention_ms=0)
    put(ns, ("a", 1), ("a", None))
    clock.advance(1)
    assert ns.compact("prices").removed_messages == 2
    assert shown(ns) == []
    with ns.consumer("prices", subscription="audit") as consumer:
        assert len(consumer.receive(timeout_ms=0)) == 0
        put(ns, ("b", 1))
        messages = consumer.receive()
        assert messages.positions == [("prices", 0, 2)]
        consumer.acknowledge(messages)
    assert [(item.cursor, item.behind_messages) for item in ns.lag("prices", "audit")] == [(3, 0)]
    ns.checkpoint()
    assert shown(place.open(mode="r")) == [(0, 2, "b", 1)]
    assert not [item for item in ns.fsck("deep").findings if item.severity != "note"]


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
def test_a_consumer_passes_over_holes_and_its_cursor_as_well(place: Place, kind: str) -> None:
    ns = compacted_topic(place.open(), partitions=2)
    for number in range(5):
        put(ns, *[(f"k{key}", number) for key in range(12)])
    ns.compact("prices")
    expected = shown(ns)
    assert len(expected) == 12
    received: list[Row] = []
    with ns.consumer("prices", subscription="audit", type=kind) as consumer:
        while messages := consumer.receive(5, timeout_ms=0):
            table = messages.table
            columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "name", "price")]
            received += zip(*columns, strict=True)
            consumer.acknowledge(messages)
    assert sorted(received, key=lambda row: row[:2]) == expected
    ends = ns.snapshot().end_offsets("prices")
    assert {item.partition: item.cursor for item in ns.lag("prices", "audit")} == ends


def test_a_hole_goes_with_the_message_in_front_of_it(place: Place) -> None:
    ns = compacted_topic(place.open())
    put(ns, ("a", 1), ("b", 1), ("c", 1), ("d", 1), ("c", 2), ("a", 2))
    ns.compact("prices")
    assert [row[1] for row in shown(ns)] == [1, 3, 4, 5]

    def cursor() -> tuple[int, int]:
        (found,) = ns.subscription("prices", "audit").cursors
        return found.cursor, sum(end - start for start, end in found.acknowledged)

    with ns.consumer("prices", subscription="audit") as consumer:
        messages = consumer.receive()
        assert messages.end_offsets == {0: 6}
        consumer.acknowledge(messages[1])
        assert cursor() == (0, 1)
        consumer.acknowledge(messages[0])
        assert cursor() == (4, 0)
        consumer.acknowledge(messages[2], cumulative=True)
        assert cursor() == (5, 0)
        consumer.negative_acknowledge(messages[3])
        again = consumer.receive()
        assert again.positions == [("prices", 0, 5)]
        consumer.acknowledge(again)
        assert cursor() == (6, 0)


def test_a_cumulative_acknowledgement_passes_over_holes(place: Place) -> None:
    ns = compacted_topic(place.open())
    put(ns, ("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2))
    ns.compact("prices")
    with ns.consumer("prices", subscription="audit") as consumer:
        messages = [consumer.receive(1) for _ in range(3)]
        assert [item.positions[0][2] for item in messages] == [2, 3, 4]
        consumer.acknowledge(messages[1], cumulative=True)
        consumer.acknowledge(messages[2], cumulative=True)
    assert [item.cursor for item in ns.lag("prices", "audit")] == [5]


def test_maintenance_compacts_once_half_is_new(place: Place) -> None:
    ns = compacted_topic(place.open())
    for number in range(4):
        put(ns, ("a", number), ("b", number))
    done = ns.maintain()
    assert [(item.topic, item.removed_messages) for item in done.compacted] == [("prices", 6)]
    assert not ns.maintain().compacted
    for number in range(4):
        put(ns, *[(f"k{number}-{key}", 1) for key in range(300)], ("a", 1))
    (found,) = ns.maintain().compacted
    assert found.removed_messages == 4


def test_a_dry_run_counts_and_writes_nothing(place: Place) -> None:
    ns = compacted_topic(place.open())
    put(ns, ("a", 1), ("a", 2))
    version = ns.snapshot().version
    found = place.open(mode="r").compact("prices", dry_run=True)
    assert (found.removed_messages, found.rewritten_segments, found.dry_run, found.finished) == (1, 1, True, False)
    assert ns.snapshot().version == version


def test_a_topic_that_cannot_be_compacted_is_refused(place: Place) -> None:
    ns = place.open()
    with raises(UnsupportedFeature, match=r"needs the feature 'holes'.*ns.enable\('holes'\)"):
        ns.create_topic("prices", PRICES, key="name", cleanup_policy="compact")
    ns.enable("holes")
    with raises(InvalidInputError, match="has no key"):
        ns.create_topic("prices", PRICES, cleanup_policy="compact")
    with raises(InvalidInputError, match="unknown cleanup_policy"):
        ns.create_topic("prices", PRICES, key="name", cleanup_policy="compact,delete")
    ns.create_topic("prices", PRICES)
    with raises(InvalidInputError, match="has no key"):
        ns.alter_topic("prices", cleanup_policy="compact")
    with raises(InvalidInputError, match="is not compacted by its key"):
        ns.compact("prices")
