"""Segments, the offsets of their rows, and what commits claim of shared ones."""

from __future__ import annotations

import msgspec
import pytest

from tests.memory_log import Log, individually
from txnlog.common.format_limits import MAX_NUMBER
from txnlog.errors import InvalidInputError, InvalidTransactionState, LimitExceeded, TopicNotFound, TransactionNotFound
from txnlog.fold.state import SegmentSlice, TopicRange
from txnlog.format.actions import Abort, Acknowledge, Begin, Commit, DropSubscription, DropTopic, Share, SliceRows


@pytest.fixture
def topic(log) -> int:
    return log.topic(partitions=3)


def begun(log: Log, *segments, **options) -> int:
    """An OPEN transaction with pending segments."""
    txn = log.number()
    log.entry(Begin(txn, **options), *(segment(txn) for segment in segments))
    return txn


# --- when and in which order ------------------------------------------------------------------------------------------


@pytest.mark.clause("P-93")
def test_pending_rows_have_no_offsets(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 5}, txn))
    (number,) = log.transaction(txn).segments
    assert log.state.segments[number].slices == (SegmentSlice(0, 5, None),)
    assert log.state.segments[number].state == "pending"
    assert log.ends(topic) == {0: 0, 1: 0, 2: 0}


@pytest.mark.clause("P-93")
def test_offsets_are_dense_and_in_the_order_of_commits(log, topic):
    one = begun(log, lambda txn: log.segment(topic, {0: 5, 1: 1}, txn))
    two = begun(log, lambda txn: log.segment(topic, {0: 2}, txn))
    log.produce(topic, 1)
    log.entry(Commit(two))
    log.entry(Commit(one))
    assert log.offsets(two) == {(topic, 0): [(1, 3)]}
    assert log.offsets(one) == {(topic, 0): [(3, 8)], (topic, 1): [(0, 1)]}
    assert log.ends(topic) == {0: 8, 1: 1, 2: 0}


@pytest.mark.clause("P-94")
def test_pending_segments_get_their_offsets_in_the_order_they_were_logged(log, topic):
    txn = log.number()
    first, second, third = (log.segment(topic, {0: rows}, txn) for rows in (2, 3, 4))
    log.entry(Begin(txn), second, first)
    log.entry(third)
    log.entry(Commit(txn))
    at = {s.segment: log.state.segments[s.segment].slices[0].offset for s in (first, second, third)}
    assert at == {second.segment: 0, first.segment: 3, third.segment: 5}
    assert log.outcome(txn).offsets == (TopicRange(topic, 0, 0, 9),), "what touches is one range"


@pytest.mark.clause("P-94")
def test_within_an_entry_offsets_are_given_line_by_line(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 4}, txn))
    before, after = log.segment(topic, {0: 1}), log.segment(topic, {0: 2})
    one, two = log.number(), log.number()
    log.entry(
        before,
        Commit(txn),
        after,
        Commit(one, shares=(Share(before.segment, 0, 1),)),
        Commit(two, shares=(Share(after.segment, 0, 2),)),
    )
    assert log.offsets(one) == {(topic, 0): [(0, 1)]}
    assert log.offsets(txn) == {(topic, 0): [(1, 5)]}
    assert log.offsets(two) == {(topic, 0): [(5, 7)]}


@pytest.mark.clause("P-98")
def test_an_abort_takes_no_offsets(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 5}, txn))
    log.entry(Abort(txn))
    log.produce(topic, 1)
    assert log.ends(topic)[0] == 1
    (segment,) = [item for item in log.state.segments.values() if item.txn == txn]
    assert (segment.state, segment.slices[0].offset, segment.ended_version) == ("aborted", None, log.version - 1)


@pytest.mark.clause("P-99")
def test_a_visible_segment_knows_since_when(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 5}, txn))
    version = log.entry(Commit(txn))
    (segment,) = log.state.segments.values()
    assert (segment.state, segment.ended_version, segment.timestamp_ms) == ("visible", version, log.now_ms)
    assert segment.logged_version == version - 1


@pytest.mark.clause("P-36")
def test_offsets_end_at_63_bits(log, topic):
    log.produce(topic, {0: MAX_NUMBER})
    with pytest.raises(LimitExceeded):
        log.produce(topic, 1)
    log.produce(topic, {1: 1})


# --- shared segments --------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-95")
def test_commits_claim_a_shared_segment_in_the_order_of_the_lines(log, topic):
    log.produce(topic, {0: 10})
    shared = log.segment(topic, {0: 6, 2: 1})
    one, two, three = (log.number() for _ in range(3))
    log.entry(
        shared,
        Commit(one, shares=(Share(shared.segment, 0, 2),)),
        Commit(two, shares=(Share(shared.segment, 0, 1), Share(shared.segment, 2, 1))),
        Commit(three, shares=(Share(shared.segment, 0, 2), Share(shared.segment, 0, 1))),
    )
    assert log.offsets(one) == {(topic, 0): [(10, 12)]}
    assert log.offsets(two) == {(topic, 0): [(12, 13)], (topic, 2): [(0, 1)]}
    assert log.offsets(three) == {(topic, 0): [(13, 16)]}


@pytest.mark.clause("P-95")
@pytest.mark.parametrize("claimed", [0, 1, 2])
def test_a_shared_segment_must_be_claimed_completely(log, topic, claimed):
    shared = log.segment(topic, {0: 3})
    shares = (Share(shared.segment, 0, claimed),) if claimed else ()
    with pytest.raises(
        InvalidInputError, match=f"no commit claims {3 - claimed} rows of segment {shared.segment}, partition 0"
    ):
        log.entry(shared, Commit(log.number(), shares=shares))


@pytest.mark.clause("P-95")
@pytest.mark.parametrize("rows", [0, 4, MAX_NUMBER])
def test_no_more_can_be_claimed_than_there_is_and_not_nothing(log, topic, rows):
    shared = log.segment(topic, {0: 3})
    with pytest.raises(InvalidInputError, match="has 3 rows"):
        log.entry(shared, Commit(log.number(), shares=(Share(shared.segment, 0, rows),)))


@pytest.mark.clause("P-95")
def test_what_was_claimed_cannot_be_claimed_again(log, topic):
    shared = log.segment(topic, {0: 3})
    with pytest.raises(InvalidInputError, match="has no shared rows of partition 0 left"):
        log.entry(
            shared,
            Commit(log.number(), shares=(Share(shared.segment, 0, 3),)),
            Commit(log.number(), shares=(Share(shared.segment, 0, 1),)),
        )


@pytest.mark.clause("P-95")
def test_only_shared_segments_of_the_same_entry_can_be_claimed(log, topic):
    log.produce(topic, 3)
    (old,) = log.state.segments
    txn = begun(log, lambda txn: log.segment(topic, {0: 3}, txn))
    (pending,) = log.transaction(txn).segments
    for number in (old, pending, 999):
        with pytest.raises(InvalidInputError, match="no shared rows"):
            log.entry(Commit(log.number(), shares=(Share(number, 0, 3),)))
    shared = log.segment(topic, {0: 3})
    with pytest.raises(InvalidInputError, match="no shared rows of partition 1"):
        log.entry(shared, Commit(log.number(), shares=(Share(shared.segment, 1, 3),)))


@pytest.mark.clause("P-95")
def test_a_commit_before_its_segment_claims_nothing(log, topic):
    shared = log.segment(topic, {0: 3})
    with pytest.raises(InvalidInputError, match="no shared rows"):
        log.entry(Commit(log.number(), shares=(Share(shared.segment, 0, 3),)), shared)


@pytest.mark.clause("P-96")
def test_shared_rows_cannot_overtake_pending_ones_of_their_transaction(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 4}, txn))
    shared = log.segment(topic, {0: 1})
    with pytest.raises(InvalidInputError, match="visible before them"):
        log.entry(shared, Commit(txn, shares=(Share(shared.segment, 0, 1),)))


@pytest.mark.clause("P-96")
def test_shared_rows_of_another_partition_or_topic_may_go_along(log, topic):
    other = log.topic("audit")
    txn = begun(log, lambda txn: log.segment(topic, {0: 4}, txn))
    here, there = log.segment(topic, {1: 1}), log.segment(other, {0: 2})
    log.entry(here, there, Commit(txn, shares=(Share(here.segment, 1, 1), Share(there.segment, 0, 2))))
    assert log.offsets(txn) == {(topic, 0): [(0, 4)], (topic, 1): [(0, 1)], (other, 0): [(0, 2)]}


# --- what a segment must be -------------------------------------------------------------------------------------------


@pytest.mark.clause("P-2")
@pytest.mark.parametrize(
    "file", ["", "x.parquet", "../" + "0" * 29 + ".parquet", "0" * 32, "0" * 32 + ".parquet\n", "A" * 32 + ".parquet"]
)
def test_a_file_name_of_another_form_is_refused(log, topic, file):
    txn = begun(log)
    with pytest.raises(InvalidInputError, match="no segment file name"):
        log.entry(log.segment(topic, {0: 1}, txn, file=file))


@pytest.mark.clause("P-107")
@pytest.mark.parametrize(
    "slices",
    [
        (),
        (SliceRows(0, 4),),
        (SliceRows(0, 6),),
        (SliceRows(0, 5), SliceRows(1, 0)),
        (SliceRows(1, 2), SliceRows(0, 3)),
        (SliceRows(0, 2), SliceRows(0, 3)),
        (SliceRows(3, 5),),
        (SliceRows(MAX_NUMBER, 5),),
    ],
)
def test_slices_must_be_of_the_topic_ascending_and_add_up(log, topic, slices):
    txn = begun(log)
    with pytest.raises(InvalidInputError):
        log.entry(log.segment(topic, {0: 5}, txn, slices=slices))


@pytest.mark.clause("P-107")
def test_a_segment_has_a_slice(log, topic):
    with pytest.raises(InvalidInputError, match="do not add up"):
        log.entry(msgspec.structs.replace(log.segment(topic, {0: 1}, begun(log)), slices=(), rows=0))


@pytest.mark.clause("P-109")
@pytest.mark.parametrize(
    "checksum", ["", "crc32:", "crc32:0000000", "crc32:0000000G", "CRC32:00000000", "md5:00000000"]
)
def test_a_checksum_of_another_form_is_refused(log, topic, checksum):
    txn = begun(log)
    with pytest.raises(InvalidInputError, match="checksum"):
        log.entry(log.segment(topic, {0: 1}, txn, checksum=checksum))
    log.entry(log.segment(topic, {0: 1}, txn, checksum="footer-crc32:0123abcd"))


def test_a_segment_of_no_size_is_refused(log, topic):
    with pytest.raises(InvalidInputError, match="no size"):
        log.entry(log.segment(topic, {0: 1}, begun(log), size_bytes=0))


@pytest.mark.clause("P-143")
@pytest.mark.parametrize("rows", [{0: 1}, {0: 1, 1: 1}])
def test_a_compacted_segment_has_one_slice_and_a_transaction(log, topic, rows):
    with pytest.raises(InvalidInputError, match="compacted"):
        log.entry(log.segment(topic, rows, compacted=True))
    if len(rows) > 1:
        with pytest.raises(InvalidInputError, match="compacted"):
            log.entry(log.segment(topic, rows, begun(log), compacted=True))


@pytest.mark.clause("P-143")
def test_a_compacted_segment_cannot_be_committed(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 1}, txn, compacted=True))
    with pytest.raises(InvalidInputError, match="brings no rows"):
        log.entry(Commit(txn))
    log.entry(Abort(txn))


@pytest.mark.clause("P-56")
def test_a_segment_needs_an_open_transaction(log, topic):
    with pytest.raises(TransactionNotFound):
        log.entry(log.segment(topic, {0: 1}, log.number()))


@pytest.mark.clause("P-28")
def test_the_end_of_a_transaction_is_reported_before_anything_is_found_wrong_with_its_segment(log, topic):
    txn = begun(log)
    log.entry(Commit(txn), DropTopic(topic))
    with pytest.raises(InvalidTransactionState, match="was committed"):
        log.entry(log.segment(topic, {7: 1}, txn, file="x"))


# --- dropped topics ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("P-97")
def test_a_commit_skips_the_rows_of_a_dropped_topic_and_says_so(log, topic):
    other = log.topic("audit")
    txn = begun(
        log,
        lambda txn: log.segment(topic, {0: 4}, txn),
        lambda txn: log.segment(other, {0: 2}, txn),
        lambda txn: log.segment(topic, {1: 4}, txn),
    )
    log.entry(DropTopic(topic))
    log.entry(Commit(txn))
    assert log.outcome(txn).state == "COMMITTED"
    assert log.outcome(txn).dropped_topics == (topic,)
    assert log.offsets(txn) == {(other, 0): [(0, 2)]}
    assert {(item.topic, item.state) for item in log.state.segments.values()} == {
        (topic, "aborted"),
        (other, "visible"),
    }
    assert log.ends(topic)[0] == 0


@pytest.mark.clause("P-89", "P-216")
def test_an_outcome_names_what_was_dropped_before_it_and_nothing_else(log, topic):
    early, late, unread = (log.topic(name) for name in ("early", "late", "unread"))
    log.produce(topic, 3)
    gone, left_out, here = (log.subscription(topic, name) for name in ("gone", "left-out", "here"))
    txn = begun(
        log,
        lambda txn: log.segment(early, {0: 1}, txn),
        lambda txn: log.segment(late, {0: 1}, txn),
        lambda txn: Acknowledge(txn, individually(gone, {0: [(0, 1), (2, 3)]})),
        lambda txn: Acknowledge(txn, individually(here, {0: [(0, 1)]})),
    )
    log.entry(DropTopic(early), DropTopic(unread), DropSubscription(gone), DropSubscription(left_out))
    log.entry(Commit(txn, dropped_topics=(unread, early), dropped_subscriptions=(left_out,)))
    log.entry(DropTopic(late), DropSubscription(here))
    outcome = log.outcome(txn)
    assert outcome.dropped_topics == (early, unread), "what the log held, then what it never did; each once"
    assert outcome.dropped_subscriptions == (gone, left_out)


@pytest.mark.clause("P-216")
def test_a_commit_that_names_something_as_dropped_that_is_there_is_refused(log, topic):
    subscription = log.subscription(topic)
    txn = begun(log)
    for number, commit in (
        (topic, Commit(txn, dropped_topics=(topic,))),
        (900, Commit(txn, dropped_topics=(900,))),
        (subscription, Commit(txn, dropped_subscriptions=(subscription,))),
        (log.version + 9, Commit(txn, dropped_subscriptions=(log.version + 9,))),
    ):
        with pytest.raises(InvalidInputError, match=f"{number} was not dropped"):
            log.entry(commit)
    log.entry(DropTopic(topic))
    log.entry(Commit(txn, dropped_topics=(topic,), dropped_subscriptions=(subscription,)))


@pytest.mark.clause("P-97", "P-33")
def test_a_topic_created_again_does_not_get_the_rows_of_the_old_one(log, topic):
    txn = begun(log, lambda txn: log.segment(topic, {0: 4}, txn))
    log.entry(DropTopic(topic))
    again = log.topic(partitions=3)
    log.entry(Commit(txn))
    assert log.outcome(txn).dropped_topics == (topic,)
    assert log.ends(again)[0] == 0


def test_rows_of_a_dropped_topic_that_are_not_logged_yet_are_refused(log, topic):
    txn = begun(log)
    log.entry(DropTopic(topic))
    with pytest.raises(TopicNotFound):
        log.entry(log.segment(topic, {0: 4}, txn))
