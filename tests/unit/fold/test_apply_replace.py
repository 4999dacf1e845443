"""Merged segments in the place of many: the same rows at the same offsets."""

from __future__ import annotations

import pytest

from tests.memory_log import Log, individually
from txnlog.errors import InvalidInputError, InvalidTransactionState, TopicNotFound, TransactionNotFound
from txnlog.fold.visibility import is_visible
from txnlog.format.actions import Acknowledge, Begin, Commit, DeleteRecords, DropTopic, Replace
from txnlog.log import checkpoint_codec


@pytest.fixture
def topic(log) -> int:
    """Partition 0 holds offsets 0 to 6 and partition 1 offset 0, in three segments."""
    topic = log.topic(partitions=2)
    log.produce(topic, {0: 2, 1: 1})
    log.produce(topic, 3)
    log.produce(topic, 1)
    return topic


def segments(log: Log) -> list[int]:
    return sorted(log.state.segments)


def visible(log: Log, at: int) -> set[int]:
    """The segments that a reader sees at a version."""
    return {number for number, record in log.state.segments.items() if is_visible(record, at, log.state.removals)}


def first_offsets(log: Log) -> dict[int, list[tuple[int, int | None]]]:
    """The slices of the visible segments, by number: partition and first offset."""
    return {
        number: [(item.partition, item.offset) for item in log.state.segments[number].slices]
        for number in visible(log, log.version)
    }


def merging(log: Log, topic: int, *rows: dict[int, int], **changes) -> int:
    """A transaction with pending merged segments."""
    txn = log.number()
    options = {"compacted": True} | changes
    log.entry(Begin(txn), *(log.segment(topic, item, txn, **options) for item in rows))
    return txn


@pytest.mark.clause("P-90", "P-99")
def test_merged_segments_take_the_place_of_the_old_ones(log, topic):
    old = segments(log)
    txn = merging(log, topic, {0: 6}, {1: 1})
    before = log.version
    version = log.entry(Replace(topic, txn, tuple(old), (0, 0)))
    new = log.state.segments.keys() - set(old)
    assert {log.state.segments[number].slices[0].offset for number in new} == {0}
    assert log.ends(topic) == {0: 6, 1: 1}
    for at, shown in ((before, set(old)), (version, new), (version + 7, new)):
        assert visible(log, at) == shown
    assert log.outcome(txn).state == "COMMITTED"
    assert log.outcome(txn).offsets == ()
    assert log.state.transactions == {}


@pytest.mark.clause("P-90")
def test_a_part_of_the_segments_can_be_merged(log, topic):
    old = segments(log)
    log.entry(Replace(topic, merging(log, topic, {0: 4}), tuple(old[1:]), (2,)))
    (new,) = log.state.segments.keys() - set(old)
    assert first_offsets(log) == {old[0]: [(0, 0), (1, 0)], new: [(0, 2)]}
    assert log.ends(topic) == {0: 6, 1: 1}


@pytest.mark.clause("P-90")
@pytest.mark.parametrize(
    ("rows", "offsets"),
    [
        ([{0: 4}], (1,)),
        ([{0: 3}], (2,)),
        ([{0: 4}, {1: 1}], (2, 0)),
        ([{1: 1}], (0,)),
        ([], ()),
        ([{0: 3}, {0: 2}], (2, 4)),
    ],
    ids=["shifted", "a row lost", "a row more", "another partition", "nothing", "a row twice"],
)
def test_other_offsets_than_those_replaced_are_refused(log, topic, rows, offsets):
    old = segments(log)
    txn = merging(log, topic, *rows)
    with pytest.raises(InvalidInputError):
        log.entry(Replace(topic, txn, tuple(old[1:]), offsets))


@pytest.mark.clause("P-90")
def test_offsets_behind_the_end_are_refused(log, topic):
    txn = merging(log, topic, {0: 7})
    with pytest.raises(InvalidInputError, match="behind the end"):
        log.entry(Replace(topic, txn, tuple(segments(log)[:3]), (0,)))


@pytest.mark.clause("P-90")
def test_rows_below_the_earliest_offset_may_be_left_out(log, topic):
    old = segments(log)
    log.entry(DeleteRecords(topic, ((0, 3), (1, 1))))
    log.entry(Replace(topic, merging(log, topic, {0: 3}), tuple(old), (3,)))
    (new,) = log.state.segments.keys() - set(old)
    assert first_offsets(log) == {new: [(0, 3)]}
    assert log.ends(topic) == {0: 6, 1: 1}


@pytest.mark.clause("P-90")
def test_rows_below_the_earliest_offset_may_not_be_added(log, topic):
    log.entry(DeleteRecords(topic, ((0, 5),)))
    with pytest.raises(InvalidInputError, match="other offsets"):
        log.entry(Replace(topic, merging(log, topic, {0: 2}), (segments(log)[2],), (4,)))


@pytest.mark.clause("P-90")
def test_segments_that_retention_has_passed_can_be_removed_and_no_others(log, topic):
    first, second, _ = segments(log)
    log.entry(DeleteRecords(topic, ((0, 2), (1, 1))))
    with pytest.raises(InvalidInputError, match="other offsets"):
        log.entry(Replace(topic, merging(log, topic), (first, second), ()))
    log.entry(Replace(topic, merging(log, topic), (first,), ()))
    assert set(log.state.removals) == {first}


def test_every_new_segment_needs_its_offset(log, topic):
    txn = merging(log, topic, {0: 4})
    for offsets in ((), (2, 2)):
        with pytest.raises(InvalidInputError, match="offsets for 1 segments"):
            log.entry(Replace(topic, txn, tuple(segments(log)[1:3]), offsets))


@pytest.mark.clause("P-143")
def test_only_compacted_segments_replace_others(log, topic):
    old = segments(log)
    txn = merging(log, topic, {0: 4}, compacted=False)
    with pytest.raises(InvalidInputError, match="cannot replace"):
        log.entry(Replace(topic, txn, tuple(old[1:]), (2,)))


def test_a_segment_is_replaced_once(log, topic):
    old = segments(log)
    log.entry(Replace(topic, merging(log, topic, {0: 4}), tuple(old[1:]), (2,)))
    txn = merging(log, topic, {0: 4})
    with pytest.raises(InvalidTransactionState, match="not visible"):
        log.entry(Replace(topic, txn, tuple(old[1:]), (2,)))
    with pytest.raises(InvalidTransactionState, match="not visible"):
        log.entry(Replace(topic, txn, (old[0], old[0]), (2,)))


def test_what_is_not_visible_cannot_be_replaced(log, topic):
    txn = log.number()
    pending = log.segment(topic, {0: 1}, txn)
    log.entry(Begin(txn), pending)
    merge = merging(log, topic, {0: 1})
    with pytest.raises(InvalidTransactionState, match="not visible"):
        log.entry(Replace(topic, merge, (pending.segment,), (5,)))


@pytest.mark.clause("P-90", "P-91")
def test_what_a_checkpoint_holds_can_be_replaced_and_what_the_fold_holds_is_checked_still(log, topic):
    old = segments(log)
    checkpoint_codec.trim(log.state, log.version - 1)
    assert segments(log) == old[2:], "the first two lie in a checkpoint now"
    with pytest.raises(InvalidInputError, match="other offsets"):
        log.entry(Replace(topic, merging(log, topic, {0: 3}), tuple(old[1:]), (2,)))
    log.entry(Replace(topic, merging(log, topic, {0: 4}), tuple(old[1:]), (2,)))


@pytest.mark.parametrize("shown", [True, False])
def test_the_number_of_a_transaction_cannot_be_removed(log, topic, shown):
    txn = log.number()
    log.entry(Begin(txn) if shown else Commit(txn))
    with pytest.raises(InvalidTransactionState, match="not visible"):
        log.entry(Replace(topic, merging(log, topic), (txn,), ()))


def test_a_number_that_may_still_become_a_segment_cannot_be_removed(log, topic):
    """It would be invisible from its first day."""
    for number in (500, 1023, 1024, 1 << 40):
        with pytest.raises(InvalidTransactionState, match="not visible"):
            log.entry(Replace(topic, merging(log, topic), (number,), ()))


def test_segments_of_another_topic_are_refused(log, topic):
    other = log.topic("audit")
    log.produce(other, 1)
    theirs = max(log.state.segments)
    txn = merging(log, topic, {0: 1})
    with pytest.raises(InvalidInputError, match="another topic"):
        log.entry(Replace(topic, txn, (theirs,), (5,)))
    txn = merging(log, other, {0: 1})
    with pytest.raises(InvalidInputError, match="cannot replace"):
        log.entry(Replace(topic, txn, (segments(log)[2],), (5,)))


def test_a_dropped_topic_is_not_found(log, topic):
    old = segments(log)
    txn = merging(log, topic, {0: 4})
    log.entry(DropTopic(topic))
    with pytest.raises(TopicNotFound):
        log.entry(Replace(topic, txn, tuple(old[1:]), (2,)))


@pytest.mark.clause("P-56")
def test_a_replacement_needs_an_open_transaction(log, topic):
    with pytest.raises(TransactionNotFound):
        log.entry(Replace(topic, log.number(), (), ()))
    txn = log.number()
    log.entry(Commit(txn))
    with pytest.raises(InvalidTransactionState, match="was committed"):
        log.entry(Replace(topic, txn, (), ()))


@pytest.mark.clause("P-85")
def test_a_transaction_that_does_more_cannot_be_ended_by_a_replacement(log, topic):
    old = segments(log)
    subscription = log.subscription(topic)
    txn = merging(log, topic, {0: 4})
    log.entry(Acknowledge(txn, individually(subscription, {0: [(0, 1)]})))
    with pytest.raises(InvalidTransactionState, match="does more"):
        log.entry(Replace(topic, txn, tuple(old[1:]), (2,)))
    txn = log.number()
    log.entry(Begin(txn, app_id="a", app_version=1))
    with pytest.raises(InvalidTransactionState, match="does more"):
        log.entry(Replace(topic, txn, (), ()))
