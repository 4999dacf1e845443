"""Segments damaged at random under consumers of every kind: what can be read is delivered, also what comes again."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.client.lost_segments import consumer_of, every_kind
from tests.client.support import Place, holding, ids, rows
from tests.effort import tries
from txnlog.errors import CorruptionError

PARTITIONS = 3
_STEPS = 400
_EMPTY = 8
"""So many empty answers in a row are the end: each partition had its turn."""

Position = tuple[int, int]


def history(memory: Place, chance: random.Random) -> tuple[Any, dict[Position, int]]:
    """A topic of small segments, some of several partitions, of which one to three are gone; the rows that are left."""
    ns = memory.orders(partitions=PARTITIONS)
    count = 0
    for _ in range(14):
        with ns.begin() as txn:
            for partition in chance.sample(range(PARTITIONS), chance.choice((1, 1, 2))):
                more = chance.randrange(1, 5)
                txn.produce("orders", rows(*range(count, count + more)), partition=partition)
                count += more
    snapshot = ns.snapshot()
    table = snapshot.read("orders", include_metadata=True)
    left = {(row["_partition"], row["_offset"]): row["id"] for row in table.to_pylist()}
    for segment in chance.sample(list(snapshot.plan("orders").segments), chance.randrange(1, 4)):
        memory.store().delete(f"sales/{segment.key}")
        for item in segment.slices:
            for offset in range(item.offset, item.offset + item.rows):
                del left[item.partition, offset]
    return memory.open(), left


def work_on(ns: Any, consumer: Any, messages: Any, how: str) -> bool:
    """Whether that acknowledges them."""
    if how == "negative":
        consumer.negative_acknowledge(messages)
        return False
    txn = holding(ns, messages)
    getattr(txn, how)()
    return how == "commit"


@every_kind
@pytest.mark.parametrize("seed", range(tries(400, 12)))
def test_what_can_be_read_is_delivered_before_a_seek_passes_over_it(
    memory: Place, seed: int, kind: dict[str, Any]
) -> None:
    chance = random.Random(seed)
    ns, left = history(memory, chance)
    consumer = consumer_of(ns, kind)
    done: list[int] = []
    kept: list[Any] = []

    def acknowledge(messages: Any) -> None:
        consumer.acknowledge(messages)
        done.extend(ids(messages.table))

    empty = errors = 0
    for _ in range(_STEPS):
        try:
            messages = consumer.receive(chance.randrange(1, 9), timeout_ms=0)
        except CorruptionError as error:
            errors += 1
            [(partition, end)] = error.behind.items()
            while kept:  # as the page says: what was received before is acknowledged
                acknowledge(kept.pop())
            if chance.random() < 0.5:
                lost = [i for (p, offset), i in left.items() if p == partition and offset < end and i not in done]
                assert not lost, f"a seek to {end} in partition {partition} would lose {lost}"
                consumer.seek(error.behind, error.topic)
            continue
        if not len(messages):
            empty += 1
            if empty > _EMPTY:
                break
            continue
        empty = 0
        how = chance.choices(("acknowledge", "keep", "commit", "abort", "negative"), (50, 15, 7, 8, 20))[0]
        if how == "acknowledge":
            acknowledge(messages)
        elif how == "keep":
            kept.append(messages)
        elif work_on(ns, consumer, messages, how):
            done += ids(messages.table)
    else:
        pytest.fail("a damaged segment never let the consumer come to its end")
    while kept:
        acknowledge(kept.pop())
    assert sorted(done) == sorted(left.values()), "each once, and all"
    assert errors, "each of these histories has damage in the way"
