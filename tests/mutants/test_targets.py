"""Short tests of single rules, for bugs that otherwise only long or random tests catch."""

from __future__ import annotations

import pytest

from tests.memory_log import WRITER, Log
from txnlog.errors import CoordinatorFenced
from txnlog.fold.leases import available
from txnlog.fold.state import CumulativeHold, Cursor, Hold
from txnlog.fold.visibility import is_visible
from txnlog.format.actions import Abort, Begin, Close, Commit, Replace, Reserve
from txnlog.log import checkpoint_codec


def visible(log: Log, number: int, version: int) -> bool:
    return is_visible(log.state.segments[number], version, log.state.removals)


def test_a_segment_is_visible_from_its_commit_on():
    log = Log()
    topic = log.topic()
    segment = log.segment(topic, {0: 1}, 100, segment=101)
    logged = log.entry(Begin(100), segment)
    committed = log.entry(Commit(100))
    seen = [version for version in range(committed + 3) if visible(log, 101, version)]
    assert logged < committed
    assert seen == list(range(committed, committed + 3))


def test_an_aborted_segment_is_never_visible():
    log = Log()
    topic = log.topic()
    log.entry(Begin(100), log.segment(topic, {0: 1}, 100, segment=101))
    aborted = log.entry(Abort(100, "user"))
    assert not any(visible(log, 101, version) for version in range(aborted + 3))


def test_a_replaced_segment_is_visible_up_to_its_replacement():
    log = Log()
    topic = log.topic()
    log.entry(Begin(100), log.segment(topic, {0: 2}, 100, segment=101))
    committed = log.entry(Commit(100))
    compacted = log.segment(topic, {0: 2}, 102, segment=103, compacted=True)
    replaced = log.entry(Begin(102), compacted, Replace(topic, 102, (101,), (0,)))
    assert [version for version in range(replaced + 2) if visible(log, 101, version)] == [committed]
    assert [version for version in range(replaced + 2) if visible(log, 103, version)] == [replaced, replaced + 1]


def test_a_number_of_a_closed_block_does_not_fall_to_the_block_before():
    log = Log()
    log.entry(Reserve(WRITER, 1024, 256))
    log.entry(Close(1024))
    with pytest.raises(CoordinatorFenced, match="closed"):
        log.entry(Begin(1030))


def test_a_checkpoint_holds_what_is_pending():
    log = Log()
    topic = log.topic()
    log.entry(Begin(100), log.segment(topic, {0: 3}, 100, segment=101))
    part, data = checkpoint_codec.encode_hot(log.state, "0" * 32)
    assert sorted(checkpoint_codec.decode_hot(checkpoint_codec.read_part(data, part)).segments) == [101]


def test_trimming_keeps_what_is_pending():
    log = Log()
    topic = log.topic()
    log.entry(Begin(100), log.segment(topic, {0: 3}, 100, segment=101))
    checkpoint_codec.trim(log.state, log.version)
    log.entry(Commit(100))
    assert log.ends(topic) == {0: 3}


def test_trimming_keeps_what_ended_after_the_checkpoint():
    log = Log()
    version = log.entry(Abort(100, "user"))
    log.entry(Abort(101, "user"))
    checkpoint_codec.trim(log.state, version)
    assert sorted(log.state.outcomes) == [101]


def test_what_is_pending_is_not_delivered():
    cursor = Cursor(2, acknowledged=((4, 5),), holds=(Hold(100, ((6, 8),)),))
    assert available(cursor, 0, 12, ((9, 10),)) == ((2, 4), (5, 6), (8, 9), (10, 12))
    assert available(Cursor(2, cumulative=CumulativeHold(100, 7)), 0, 12, ()) == ((7, 12),)
