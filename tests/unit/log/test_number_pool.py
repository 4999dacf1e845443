"""A writer's stock of numbers: each once, from blocks of its own, in time."""

from __future__ import annotations

import pytest

from tests.memory_log import PROTOCOL, Log
from txnlog.fold.number_blocks import CHUNK, is_used
from txnlog.format.actions import Abort, Close, Namespace, Reserve
from txnlog.log.number_pool import NumberPool


@pytest.fixture
def log() -> Log:
    log = Log(begun=False)
    log.entry(PROTOCOL, Namespace("sales", 7))
    return log


def reserve(log: Log, pool: NumberPool) -> Reserve:
    action = pool.reservation(log.state.draft())
    log.entry(action)
    pool.add(action)
    return action


def test_an_empty_supply_says_so_and_wants_a_block(log: Log) -> None:
    pool = NumberPool("w")
    assert pool.take() is None
    assert pool.wants()
    block = reserve(log, pool)
    assert (block.first, block.writer, block.count % CHUNK) == (0, "w", 0)
    assert not pool.wants()
    assert pool.take(3) == [0, 1, 2]


@pytest.mark.clause("P-42", "P-44")
def test_every_number_is_given_once_over_many_blocks(log: Log) -> None:
    pool, other = NumberPool("w"), NumberPool("v")
    given: list[int] = []
    while len(given) < 20_000:
        taken = pool.take(77)
        if taken is None:
            reserve(log, other)
            reserve(log, pool)
            continue
        given += taken
    assert len(set(given)) == len(given)
    mine = [range(b.first, b.first + b.count) for b in log.state.blocks.values() if b.writer == "w"]
    assert all(any(number in block for block in mine) for number in given)


def test_blocks_grow_and_have_a_bound(log: Log) -> None:
    pool = NumberPool("w")
    counts = [reserve(log, pool).count for _ in range(12)]
    assert counts[:3] == [1024, 2048, 4096]
    assert counts[-1] == counts[-2] == 256 * CHUNK


def test_a_block_is_wanted_while_there_is_still_some_supply(log: Log) -> None:
    pool = NumberPool("w")
    reserve(log, pool)
    while not pool.wants():
        assert pool.take(16) is not None
    left = 0
    while pool.take() is not None:
        left += 1
    assert left >= 128, "taking a number almost never waits"


def test_a_demand_is_met_at_once(log: Log) -> None:
    pool = NumberPool("w")
    reserve(log, pool)
    assert pool.take(5_000) is None
    pool.demand(5_000)
    assert pool.wants()
    reserve(log, pool)
    taken = pool.take(5_000)
    assert taken is not None
    assert len(set(taken)) == 5_000
    assert pool.take(1 << 20) is None


@pytest.mark.clause("P-41")
def test_numbers_of_a_closed_block_are_let_go(log: Log) -> None:
    pool = NumberPool("w")
    first, second = reserve(log, pool), reserve(log, pool)
    pool.drop_closed(log.state.draft())
    assert pool.take() == [0]
    log.entry(Close(first.first))
    pool.drop_closed(log.state.draft())
    assert pool.take() == [second.first]
    log.entry(Close(second.first))
    pool.drop_closed(log.state.draft())
    assert pool.take() is None
    assert pool.wants()


@pytest.mark.clause("P-57")
def test_numbers_that_were_used_up_from_outside_are_passed_over(log: Log) -> None:
    pool = NumberPool("w", lambda number: is_used(log.state.draft(), number))
    block = reserve(log, pool)
    log.entry(Abort(1), Abort(2), Abort(block.count - 1))
    assert pool.take(3) == [0, 3, 4]
    assert pool.take(block.count - 7) == list(range(5, block.count - 2))
    assert pool.take(2) is None, "one is left, and the last is used"
    pool.demand(2)
    assert pool.wants()
    following = reserve(log, pool)
    taken = pool.take(2)
    assert taken is not None
    assert sorted(taken) == [block.count - 2, following.first]


@pytest.mark.clause("P-250")
def test_a_client_is_said_once_also_where_another_writer_reserved_the_block(log: Log) -> None:
    writer = "f" * 32
    pool = NumberPool(f"{writer} nightly")
    assert pool.wants_to_say_client()
    by_another = Reserve(writer, 0, 1024)
    log.entry(by_another)
    pool.add(log.state.blocks[0])
    assert pool.take() == [0]
    assert pool.wants_to_say_client(), "nobody else knows who the client is"
    action = pool.reservation(log.state.draft())
    assert action.writer == f"{writer} nightly"
    log.entry(action)
    pool.add_own([Reserve("e" * 32, 9_000, 256), action])
    assert not pool.wants_to_say_client()
    assert pool.take(1023 + action.count) == [*range(1, 1024 + action.count)], "all of both blocks, and nobody else's"
    assert not NumberPool(writer).wants_to_say_client(), "there is nothing to say"
