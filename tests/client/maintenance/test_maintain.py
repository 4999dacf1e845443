"""``ns.maintain``: what it does in one call, what it leaves for the next one, and that it may be called whenever."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, raises, read, rows, run_threads, staged
from txnlog.data import segment_columns, segment_file
from txnlog.errors import InvalidInputError, OutcomeUnknown, ReadOnly, TxnLogError
from txnlog.maintenance import maintain, optimizer, vacuum
from txnlog.testing import ManualClock

DAY_MS = 24 * 3_600_000


@pytest.fixture
def ns(place: Place, clock: ManualClock) -> Any:
    """Two topics of small segments, and files that nobody needs."""
    handle = place.open(clock=clock)
    for topic in ("orders", "audit"):
        handle.create_topic(topic, SCHEMA)
        for number in range(6):
            handle.produce(topic, rows(number))
    with place.open(clock=clock) as dying:
        txn = begun(dying, 99)
        staged(txn)
    return handle


def sizes(ns: Any, topic: str) -> int:
    return len(ns.snapshot().plan(topic).segments)


def test_it_checkpoints_merges_and_deletes(ns: Any, clock: ManualClock) -> None:
    before = ns.snapshot().version
    found = ns.maintain()
    assert found.checkpoint == before
    assert [(item.topic, item.merged_segments) for item in found.optimized] == [("audit", 6), ("orders", 6)]
    assert (found.failures, found.published, found.finished) == ({}, (), True)
    assert found.vacuumed.deleted_files == 0
    clock.advance(30 * DAY_MS)
    found = ns.maintain()
    assert (found.optimized, found.finished) == ((), True)
    assert (found.vacuumed.unnamed_files, found.vacuumed.replaced_files) == (1, 12)
    assert read(ns) == read(ns, "audit") == list(range(6))


def test_a_topic_whose_rows_cannot_be_written_anew_keeps_no_other_waiting(
    ns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.alter_topic("audit", add_columns=[("at", pa.struct([pa.field("city", pa.string(), False)]))])
    for module in (segment_columns, segment_file):
        monkeypatch.setattr(module, "storable", lambda table: table)
    found = ns.maintain()
    assert "cannot be written" in found.failures["audit"]
    assert [item.topic for item in found.optimized] == ["orders"]


def test_where_nothing_is_to_do_nothing_is_written(ns: Any, place: Place) -> None:
    ns.maintain()
    ns.maintain()
    with Unchanged(place):
        assert ns.maintain().optimized == ()


def test_what_is_bounded_is_done_by_the_next_calls(ns: Any) -> None:
    calls: list[Any] = []
    while not calls or not calls[-1].finished:
        calls.append(ns.maintain(max_bytes=0))
    assert [[item.topic for item in call.optimized] for call in calls] == [["audit"], ["orders"]]
    assert (sizes(ns, "audit"), sizes(ns, "orders")) == (1, 1)


def test_a_damaged_topic_is_named_and_the_others_are_looked_after(ns: Any, clock: ManualClock) -> None:
    segment = ns.snapshot().plan("audit").segments[0]
    ns._connection.store.put(segment.key, b"x")
    clock.advance(30 * DAY_MS)
    found = ns.maintain()
    assert list(found.failures) == ["audit"]
    assert re.search(
        rf"damaged.* segment {segment.number} .* \(restore the object from a copy", found.failures["audit"]
    )
    assert [item.topic for item in found.optimized] == ["orders"]
    assert found.vacuumed.unnamed_files == 1
    assert (sizes(ns, "audit"), sizes(ns, "orders")) == (6, 1)


def test_a_topic_that_is_dropped_meanwhile_is_passed_over(
    ns: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = optimizer.begin
    other = place.open()

    def begin(connection: Any, topic: str, *args: Any, **options: Any) -> Any:
        if topic == "audit":
            other.drop_topic("audit")
            connection.follower.refresh()
        return inner(connection, topic, *args, **options)

    monkeypatch.setattr(optimizer, "begin", begin)
    found = ns.maintain()
    assert [item.topic for item in found.optimized] == ["orders"]
    assert (found.failures, found.finished) == ({}, True)


def test_what_was_merged_before_damage_was_met_is_said_and_counted(ns: Any) -> None:
    """LIE: a topic with one damaged segment: nothing is said of the merges before it, nor counted for ``max_bytes``."""
    segments = ns.snapshot().plan("audit").segments
    ns._connection.store.put(segments[-1].key, b"x")
    before = ns.snapshot().version
    size = segments[0].size_bytes
    found = ns.maintain(target_size_bytes=2 * size, max_bytes=7 * size)
    assert list(found.failures) == ["audit"]
    audit, orders = found.optimized
    assert (audit.topic, audit.merged_segments, audit.entries, audit.finished) == ("audit", 4, 2, False)
    assert audit.version == before + 2
    assert (orders.merged_segments, orders.finished, found.finished) == (2, False, False), "of all topics together"


def test_tables_are_published_before_files_are_deleted(ns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    inner = vacuum.vacuum

    def published(_connection: Any) -> tuple[tuple[str, ...], dict[str, TxnLogError]]:
        order.append("published")
        return ("orders",), {}

    def vacuumed(*args: Any, **options: Any) -> Any:
        order.append("vacuumed")
        return inner(*args, **options)

    monkeypatch.setattr(maintain, "_published", published)
    monkeypatch.setattr(vacuum, "vacuum", vacuumed)
    assert ns.maintain().published == ("orders",)
    assert order == ["published", "vacuumed"], "a table must not show what is deleted"


@pytest.mark.parametrize("options", [{"max_bytes": -1}, {"retain_ms": -1}, {"grace_ms": 5}, {"target_size_bytes": 0}])
def test_a_wrong_call_is_refused_before_anything_is_done(ns: Any, place: Place, options: dict[str, int]) -> None:
    with Unchanged(place), raises(InvalidInputError):
        ns.maintain(**options)
    assert ns._connection.follower.newest_checkpoint is None
    with raises(ReadOnly):
        place.open(mode="r").maintain()


def test_progress_is_reported_by_step(ns: Any) -> None:
    told: list[tuple[str, str, int, int]] = []
    ns.maintain(progress=lambda *seen: told.append(seen))
    steps = [(step, topic) for step, topic, _, _ in told]
    assert steps == [("optimize", "audit"), ("optimize", "orders"), ("vacuum", "orders"), ("vacuum", "audit")]
    assert told[0][2:] == (6, 6)


def test_several_at_once_get_in_nobodys_way(ns: Any, place: Place) -> None:
    clients = [place.open() for _ in range(3)]
    results = run_threads(*[client.maintain for client in clients])
    assert not [item for item in results if isinstance(item, BaseException)]
    assert (sizes(ns, "audit"), sizes(ns, "orders")) == (1, 1)
    assert read(ns) == read(ns, "audit") == list(range(6))


def test_an_interrupted_call_is_made_again(memory: Place, clock: ManualClock) -> None:
    ns, store = memory.faulty(clock=clock)
    for topic in ("orders", "audit"):
        ns.create_topic(topic, SCHEMA)
        for number in range(6):
            ns.produce(topic, rows(number))
    store.forever = "dropped"
    with pytest.raises(OutcomeUnknown):
        ns.maintain()
    store.heal()
    assert ns.maintain().finished
    assert read(ns) == read(ns, "audit") == list(range(6))
    assert (sizes(ns, "audit"), sizes(ns, "orders")) == (1, 1)
