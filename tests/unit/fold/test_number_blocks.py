from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_log import WRITER
from txnlog.common.format_limits import MAX_BLOCK_NUMBERS, MAX_NUMBER
from txnlog.errors import CoordinatorFenced, InvalidInputError, InvalidTransactionState, LimitExceeded
from txnlog.fold import number_blocks
from txnlog.fold.state import Block, State
from txnlog.format.actions import Abort, Begin, Close, Commit, Header, Prepare, Renew, Reserve
from txnlog.testing.scheduler import START_MS


@pytest.mark.clause("P-42")
def test_blocks_follow_each_other(log):
    log.entry(Reserve("another", 1024, 256))
    assert log.state.head.next_number == 1280
    assert log.state.head.open_blocks == (0, 1024)
    assert log.state.blocks[1024] == Block(1024, 256, "another", log.now_ms)


@pytest.mark.clause("P-42")
@pytest.mark.parametrize("first", [0, 768, 1023, 1280, 2048])
def test_a_block_that_does_not_begin_at_the_next_number_is_refused(log, first):
    with pytest.raises(InvalidInputError, match="cannot begin"):
        log.entry(Reserve(WRITER, first, 256))


@pytest.mark.clause("P-42")
@pytest.mark.parametrize("count", [0, 1, 255, 257, 1000])
def test_a_block_that_is_not_a_multiple_of_256_is_refused(log, count):
    with pytest.raises(InvalidInputError, match="cannot begin"):
        log.entry(Reserve(WRITER, 1024, count))


@pytest.mark.clause("P-36")
def test_a_block_beyond_the_limit_is_refused(log):
    with pytest.raises(LimitExceeded):
        log.entry(Reserve(WRITER, 1024, MAX_BLOCK_NUMBERS + 256))
    log.entry(Reserve(WRITER, 1024, MAX_BLOCK_NUMBERS))


@pytest.mark.clause("P-36")
def test_the_numbers_of_a_namespace_end_at_63_bits():
    state = State()
    draft = state.draft()
    begin = (MAX_NUMBER // 256) * 256
    draft.head = type(draft.head)(next_number=begin)
    with pytest.raises(LimitExceeded):
        number_blocks.reserve(draft, Reserve(WRITER, begin, 256), Header(0, WRITER, 0))


@pytest.mark.clause("P-40")
def test_a_number_is_used_once_by_a_transaction_or_a_segment(log):
    topic = log.topic()
    txn = log.produce(topic)
    segment = max(log.state.segments)
    for used in (txn, segment):
        with pytest.raises(InvalidTransactionState):
            log.entry(Begin(used))
        with pytest.raises(InvalidTransactionState, match="used before"):
            log.entry(log.segment(topic, {0: 1}, segment=used), Commit(log.number()))
    with pytest.raises(InvalidTransactionState, match="used before"):
        log.entry(Abort(segment))


@pytest.mark.clause("P-40")
def test_one_entry_cannot_use_a_number_twice(log):
    with pytest.raises(InvalidTransactionState, match="used before"):
        log.entry(Begin(5), Begin(5))


@pytest.mark.clause("P-41")
@pytest.mark.parametrize("number", [1024, 5_000, MAX_NUMBER])
def test_a_number_that_was_never_reserved_is_refused(log, number):
    with pytest.raises(InvalidInputError, match="never given"):
        log.entry(Begin(number))


@pytest.mark.clause("P-41")
def test_a_new_number_of_a_closed_block_is_refused(log):
    log.entry(Reserve(WRITER, 1024, 256))
    log.entry(Close(0))
    for action in (Begin(0), Commit(0), Abort(0)):
        with pytest.raises(CoordinatorFenced, match="closed"):
            log.entry(action)
    log.entry(Begin(1024))


@pytest.mark.clause("P-41")
def test_a_segment_of_a_closed_block_is_refused_though_its_transaction_lives_in_another(log):
    topic = log.topic()
    log.entry(Reserve(WRITER, 1024, 256))
    log.entry(Begin(1024), Close(0))
    with pytest.raises(CoordinatorFenced):
        log.entry(log.segment(topic, {0: 1}, 1024, segment=3))


@pytest.mark.clause("P-43")
@pytest.mark.parametrize("prepared", [False, True])
def test_a_block_with_a_transaction_that_has_not_ended_cannot_be_closed(log, prepared):
    log.entry(Begin(0), *([Prepare(0, "")] if prepared else []))
    with pytest.raises(InvalidTransactionState, match="PREPARED" if prepared else "OPEN"):
        log.entry(Close(0))
    log.entry(Abort(0), Close(0))
    assert log.state.blocks == {}


def test_closing_forgets_which_numbers_were_used_and_nothing_of_other_blocks(log):
    log.entry(Reserve(WRITER, 1024, 256))
    log.entry(Begin(1023), Begin(1024), Abort(1023))
    log.entry(Close(0))
    assert set(log.state.used) == {1024 // number_blocks.CHUNK}
    assert log.state.head.open_blocks == (1024,)


def test_what_is_no_open_block_cannot_be_closed_or_renewed(log):
    with pytest.raises(InvalidInputError, match="no open block"):
        log.entry(Close(256))
    with pytest.raises(CoordinatorFenced):
        log.entry(Renew(256))
    log.entry(Close(0))
    with pytest.raises(InvalidInputError, match="no open block"):
        log.entry(Close(0))
    with pytest.raises(CoordinatorFenced):
        log.entry(Renew(0))


def test_a_block_shows_life_when_it_is_used_or_renewed(log):
    assert log.state.blocks[0].touched_ms == START_MS + 1_000
    log.entry(Begin(0), after_ms=59_000)
    assert log.state.blocks[0].touched_ms == START_MS + 1_000, "to the minute"
    log.entry(Begin(1), after_ms=1_000)
    assert log.state.blocks[0].touched_ms == log.now_ms
    log.entry(Renew(0), after_ms=5)
    assert log.state.blocks[0].touched_ms == log.now_ms


@pytest.mark.clause("P-40", "P-41")
@given(st.lists(st.integers(0, 1500), max_size=60))
def test_the_bitmap_is_a_set_of_numbers(wanted):
    state = State()
    draft = state.draft()
    at = Header(0, WRITER, 0)
    number_blocks.reserve(draft, Reserve(WRITER, 0, 512), at)
    number_blocks.reserve(draft, Reserve(WRITER, 512, 256), at)
    number_blocks.reserve(draft, Reserve(WRITER, 768, 256), at)
    number_blocks.close(draft, Close(512), at)
    used: set[int] = set()
    for number in wanted:
        if number in used:
            error: type[Exception] | None = InvalidTransactionState
        elif 512 <= number < 768:
            error = CoordinatorFenced
        else:
            error = InvalidInputError if number >= 1024 else None
        if error is None:
            number_blocks.use(draft, number, at)
            used.add(number)
        else:
            with pytest.raises(error):
                number_blocks.use(draft, number, at)
        assert number_blocks.is_used(draft, number) == (number in used)
