"""What a reader sees at a version: the predicate over records, against the state as it was at that version."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.histories import NAMED, history, planned, states
from tests.unit.random_entries import entries
from txnlog.data.scan_planner import check_offsets
from txnlog.errors import OffsetOutOfRange
from txnlog.fold.visibility import Visibility, is_visible, state_at
from txnlog.format.actions import Abort, Begin, Commit, DeleteRecords, Prepare


@pytest.mark.clause("P-34", "P-99", "P-100")
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries)
def test_the_past_read_from_the_newest_state_is_what_was_there(todo):
    log = history(todo)
    newest = log.state
    for version, past in states(log):
        for number, record in newest.segments.items():
            then = past.segments.get(number)
            assert state_at(record, version) == (None if then is None else NAMED[then.state])
            shown = then is not None and then.state == "visible" and number not in past.removals
            assert is_visible(record, version, newest.removals) == shown
        for topic in newest.topics.values():
            before = past.topics.get(topic.id)
            assert topic.exists_at(version) == (before is not None and before.dropped_version is None)
            if before is not None:
                assert topic.schema_at(version) == before.schema


@pytest.fixture
def topic(log) -> int:
    return log.topic(partitions=2)


def rows_of(scan) -> list[tuple[int, int | None, int]]:
    return [(item.partition, item.offset, item.rows) for segment in scan.segments for item in segment.slices]


@pytest.mark.clause("P-99", "P-102")
def test_open_and_prepared_transactions_hide_their_rows_and_delay_nobody(log, topic):
    first, second, third = (log.number() for _ in range(3))
    log.entry(Begin(first), log.segment(topic, {0: 5}, first))
    log.entry(Begin(second), log.segment(topic, {0: 7}, second), Prepare(second, ""))
    log.produce(topic, 2)
    log.entry(Begin(third), log.segment(topic, {0: 9}, third))
    log.entry(Abort(third))
    assert rows_of(planned(log, topic)) == [(0, 0, 2)]
    log.entry(Commit(second))
    assert rows_of(planned(log, topic)) == [(0, 0, 2), (0, 2, 7)]


@pytest.mark.clause("P-101")
def test_uncommitted_rows_come_with_their_state_and_without_an_offset(log, topic):
    first, second, third = log.number(), log.number(), log.number()
    log.entry(Begin(first), log.segment(topic, {0: 5}, first))
    log.entry(Begin(second), log.segment(topic, {0: 9}, second))
    log.entry(Abort(second))
    log.entry(Begin(third), log.segment(topic, {0: 7}, third), Prepare(third, ""))
    log.produce(topic, 2)
    scan = planned(log, topic, isolation_level="read_uncommitted")
    assert [(s.state, s.slices[0].offset, s.slices[0].rows) for s in scan.segments] == [
        ("COMMITTED", 0, 2),
        ("OPEN", None, 5),
        ("ABORTED", None, 9),
        ("OPEN", None, 7),
    ]


@pytest.mark.clause("P-99")
def test_rows_below_the_earliest_offset_are_not_read(log, topic):
    log.produce(topic, {0: 4, 1: 1})
    log.produce(topic, {0: 3})
    log.entry(DeleteRecords(topic, ((0, 2), (1, 1))))
    assert rows_of(planned(log, topic)) == [(0, 2, 2), (0, 4, 3)]
    with pytest.raises(OffsetOutOfRange, match="holds offsets 2 to 7"):
        check_offsets({0: (1, 5)}, {0: 2, 1: 1}, {0: 7, 1: 1})


@pytest.mark.clause("P-99")
def test_the_offsets_of_every_partition_ascend(log, topic):
    txns = [log.number() for _ in range(3)]
    for txn in txns:
        log.entry(Begin(txn), log.segment(topic, {0: 1, 1: 2}, txn), log.segment(topic, {1: 1}, txn))
    for txn in reversed(txns):
        log.entry(Commit(txn))
    for partition in (0, 1):
        found = [offset for p, offset, _ in rows_of(planned(log, topic)) if p == partition]
        assert found == sorted(found)


@pytest.mark.clause("P-2", "P-139")
def test_keys_of_segments_are_built_from_folder_number_and_file(log, topic):
    log.produce(topic, 1)
    (segment,) = planned(log, topic).segments
    assert segment.key == f"orders/_txnlog_segment={segment.number}/{segment.number:032x}.parquet"


@pytest.mark.clause("P-100")
def test_a_number_that_no_entry_names_is_in_no_predicate(log, topic):
    log.produce(topic, 1)
    scan = planned(log, topic)
    assert scan.visibility == Visibility.of([segment.number for segment in scan.segments])
    assert not any(number in scan.visibility for number in range(100) if number not in log.state.segments)


@pytest.mark.clause("P-144")
def test_metadata_of_rows_come_from_the_entry_that_made_them_visible(log, topic):
    txn = log.number()
    log.entry(Begin(txn), log.segment(topic, {0: 5}, txn))
    version = log.entry(Commit(txn))
    (segment,) = planned(log, topic).segments
    assert (segment.txn, segment.version, segment.timestamp_ms) == (txn, version, log.now_ms)
    assert not segment.stores_txn
    assert not segment.stores_partition
