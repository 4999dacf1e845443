"""Which segments are merged: what comes out holds the same rows, files get fewer, and it comes to an end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping

import pytest
from hypothesis import HealthCheck, given, settings

from tests.histories import history, planned, states
from tests.memory_log import WRITER, Log
from tests.unit.random_entries import entries
from txnlog.errors import TopicNotFound
from txnlog.fold.state import SegmentRecord, SegmentSlice
from txnlog.format.actions import Begin, DropTopic, Header, Replace, Reserve
from txnlog.log.commands import Answer
from txnlog.maintenance.merge_plan import LEAST_WEIGHT_BYTES, Merge, Output, ReplaceCommand, merges, newest, parts_of

MIB = 1 << 20
TARGET = 128 * MIB


def segment(
    number: int, size_bytes: int, rows: Mapping[int, tuple[int, int]], *, compacted: bool = False
) -> SegmentRecord:
    """A visible segment; ``rows`` by partition: offset and number."""
    slices = tuple(SegmentSlice(partition, count, offset) for partition, (offset, count) in sorted(rows.items()))
    return SegmentRecord(
        number,
        1,
        f"{number:032x}.parquet",
        rows=sum(item.rows for item in slices),
        size_bytes=size_bytes,
        checksum="crc32:00000000",
        slices=slices,
        state="visible",
        logged_version=number,
        ended_version=number,
        timestamp_ms=number,
        compacted=compacted,
    )


def in_a_row(*sizes: int) -> list[SegmentRecord]:
    """Neighbours of one partition with ten rows each, of these sizes."""
    return [segment(number, size, {0: (10 * number, 10)}) for number, size in enumerate(sizes)]


def numbers(found: Iterable[Merge]) -> list[list[int]]:
    return [[record.number for record in merge.removed] for merge in found]


def plan(
    records: Iterable[SegmentRecord], starts: Mapping[int, int] | None = None, target: int = TARGET
) -> list[Merge]:
    return merges(records, {}, 1_000_000, starts or {}, target)


def test_small_neighbours_become_one():
    (merge,) = plan(in_a_row(5 * MIB, 5 * MIB, 5 * MIB))
    assert numbers([merge]) == [[0, 1, 2]]
    assert merge.outputs == (Output(0, 0, 30),)
    assert merge.size_bytes == 15 * MIB


@pytest.mark.parametrize("sizes", [(), (5 * MIB,), (65 * MIB, 65 * MIB), (TARGET, 1)])
def test_one_and_big_ones_are_left_alone(sizes):
    assert plan(in_a_row(*sizes)) == []


def test_files_are_filled_up_to_the_target_and_not_beyond():
    found = plan(in_a_row(*[10 * MIB] * 30))
    assert numbers(found) == [[*range(12)], [*range(12, 24)], [*range(24, 30)]]
    assert all(merge.size_bytes <= TARGET for merge in found)


def test_big_ones_in_between_are_not_read():
    assert numbers(plan(in_a_row(MIB, MIB, 100 * MIB, MIB, MIB))) == [[0, 1], [3, 4]]


def test_neighbours_of_other_partitions_and_holes_are_not_joined():
    records = [
        segment(0, MIB, {0: (0, 5)}),
        segment(1, MIB, {1: (0, 5)}),
        segment(2, MIB, {0: (5, 5)}),
        segment(3, MIB, {1: (6, 5)}),
        segment(4, MIB, {0: (10, 1)}),
    ]
    assert numbers(plan(records)) == [[0, 2, 4]]


def test_what_is_added_to_a_big_file_waits_until_it_is_as_big():
    assert numbers(plan(in_a_row(60 * MIB, 5 * MIB))) == []
    assert numbers(plan(in_a_row(60 * MIB, 5 * MIB, 5 * MIB))) == [[1, 2]]
    assert numbers(plan(in_a_row(60 * MIB, 30 * MIB, 30 * MIB))) == [[0, 1, 2]]
    assert numbers(plan(in_a_row(60 * MIB, 40 * MIB, 40 * MIB))) == [[0, 1]], "a file that is full waits for nothing"


def test_the_smallest_files_are_merged_whatever_their_sizes():
    assert numbers(plan(in_a_row(LEAST_WEIGHT_BYTES, 1))) == [[0, 1]]


def test_a_row_is_written_again_a_few_times_only():
    """Small segments that come one by one, with an optimize after each."""
    records: list[SegmentRecord] = []
    written = 0
    for number in range(500):
        records.append(segment(10_000 + number, MIB, {0: (number, 1)}))
        while found := plan(records):
            records = applied(records, found)
            written += sum(merge.size_bytes for merge in found)
    assert len(records) < 15
    assert written < 500 * MIB * 9


_made = itertools.count(100_000)


def applied(records: list[SegmentRecord], found: list[Merge]) -> list[SegmentRecord]:
    """The segments after some merges: files of as many bytes as went into them."""
    result = list(records)
    for merge in found:
        for record in merge.removed:
            result.remove(record)
        rows = sum(output.width for output in merge.outputs)
        for output in merge.outputs:
            size = max(1, merge.size_bytes * output.width // rows)
            place = {output.partition: (output.offset, output.width)}
            result.append(segment(next(_made), size, place, compacted=True))
    return result


# --- segments of several partitions -----------------------------------------------------------------------------------


def shared(count: int, partitions: int = 4, size_bytes: int = MIB) -> list[SegmentRecord]:
    """Segments that each hold one row of every partition."""
    return [segment(n, size_bytes, dict.fromkeys(range(partitions), (n, 1))) for n in range(count)]


def test_shared_segments_become_one_of_each_partition():
    (merge,) = plan(shared(20))
    assert numbers([merge]) == [[*range(20)]]
    assert merge.outputs == tuple(Output(partition, 0, 20) for partition in range(4))


def test_shared_segments_wait_until_half_of_the_files_come_of_them():
    assert plan(shared(7)) == []
    assert len(plan(shared(8))) == 1
    assert plan(shared(20, partitions=1_001)) == []


def test_what_lies_between_shared_segments_goes_along_and_what_lies_next_to_them_does_not():
    records = [
        segment(0, MIB, {0: (0, 10)}),
        segment(1, MIB, {0: (10, 1), 1: (0, 1)}),
        segment(2, MIB, {0: (11, 10)}),
        segment(3, MIB, {1: (1, 10)}),
        segment(4, MIB, {0: (21, 1), 1: (11, 1)}),
        segment(5, MIB, {1: (12, 10)}),
    ]
    (merge,) = plan(records)
    assert numbers([merge]) == [[1, 2, 3, 4]]
    assert merge.outputs == (Output(0, 10, 12), Output(1, 0, 12))


def test_a_big_file_between_shared_segments_stays_and_cuts_its_partition():
    records = [*shared(10, partitions=2), segment(10, 100 * MIB, {1: (10, 50)})]
    records += [segment(11 + n, MIB, {0: (10 + n, 1), 1: (60 + n, 1)}) for n in range(10)]
    (merge,) = plan(records)
    assert 10 not in [record.number for record in merge.removed]
    assert merge.outputs == (Output(0, 0, 20), Output(1, 0, 10), Output(1, 60, 10))


# --- retention --------------------------------------------------------------------------------------------------------


def test_what_retention_has_passed_goes_without_being_read():
    records = [segment(0, 100 * MIB, {0: (0, 10)}), segment(1, MIB, {0: (10, 10)}), segment(2, MIB, {0: (20, 10)})]
    found = plan(records, {0: 15})
    assert numbers(found) == [[0], [1, 2]]
    assert found[0].outputs == ()
    assert found[0].size_bytes == 0
    assert found[1].outputs == (Output(0, 15, 15),)
    assert parts_of(records[1], {0: 15})[0].first_row == 5


# --- random segments --------------------------------------------------------------------------------------------------


def random_segments(chance: random.Random) -> list[SegmentRecord]:
    partitions = chance.randrange(1, 6)
    ends = dict.fromkeys(range(partitions), 0)
    found: list[SegmentRecord] = []
    for number in range(chance.randrange(120)):
        chosen = chance.sample(
            range(partitions), chance.choice([1, 1, partitions, chance.randrange(1, partitions + 1)])
        )
        rows = {partition: (ends[partition], chance.randrange(1, 5)) for partition in chosen}
        for partition, (offset, count) in rows.items():
            ends[partition] = offset + count
        size = chance.choice([1_000, 100_000, MIB, 10 * MIB, 60 * MIB, 200 * MIB])
        found.append(segment(number, size, rows))
    return found


def content(records: Iterable[SegmentRecord], starts: Mapping[int, int]) -> list[tuple[int, int]]:
    """All rows, by partition and offset."""
    return sorted(
        (part.partition, offset)
        for record in records
        for part in parts_of(record, starts)
        for offset in range(part.offset, part.end)
    )


@pytest.mark.parametrize("seed", range(150))
def test_of_any_segments_the_rows_stay_and_it_comes_to_an_end(seed):
    chance = random.Random(seed)
    records = random_segments(chance)
    starts = {0: chance.choice([0, 0, 7, 100])}
    before = content(records, starts)
    for _ in range(60):
        chance.shuffle(records)
        found = plan(records, starts)
        if not found:
            break
        gone = [record.number for merge in found for record in merge.removed]
        assert len(gone) == len(set(gone)), "no segment goes twice"
        for merge in found:
            assert merge.size_bytes <= TARGET
            assert len(merge.outputs) < len(merge.removed), "files get fewer"
        records = applied(records, found)
        assert content(records, starts) == before
    assert plan(records, starts) == []
    for record in records:
        assert record.rows, "nothing is left of what retention has passed"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(entries)
@pytest.mark.clause("P-90", "P-99", "P-143")
def test_a_random_log_accepts_all_merges_and_every_version_shows_the_same_offsets(todo):
    log = history(todo)
    before = {
        (topic.id, version): offsets(planned(log, topic.id, version))
        for topic in log.state.topics.values()
        for version in range(topic.id, log.version + 1)
        if topic.exists_at(version)
    }
    first = log.state.head.next_number
    log.entry(Reserve(WRITER, first, 1 << 20))
    fresh = itertools.count(first)
    for topic in [item for item in log.state.topics.values() if not item.dropped]:
        while found := merges_of(log, topic.id):
            for merge in found:
                replace(log, topic.id, merge, fresh)
        assert merges_of(log, topic.id) == []
        assert offsets(planned(log, topic.id)) == before[topic.id, max(v for t, v in before if t == topic.id)]
    for (topic_id, version), expected in before.items():
        assert offsets(planned(log, topic_id, version)) == expected
    assert sum(1 for _ in states(log)) == log.version + 1, "every entry folds again"


def merges_of(log: Log, topic: int) -> list[Merge]:
    records = [record for record in log.state.segments.values() if record.topic == topic]
    partitions = range(log.state.topics[topic].partitions)
    starts = {partition: log.state.starts.get((topic, partition), 0) for partition in partitions}
    return merges(records, log.state.removals, log.version, starts, TARGET)


def replace(log: Log, topic: int, merge: Merge, fresh: Iterator[int]) -> None:
    txn = next(fresh)
    made = [
        log.segment(topic, {item.partition: item.width}, txn, compacted=True, segment=next(fresh))
        for item in merge.outputs
    ]
    removed = tuple(record.number for record in merge.removed)
    log.entry(Begin(txn), *made, Replace(topic, txn, removed, tuple(item.offset for item in merge.outputs)))


def offsets(scan) -> list[tuple[int, int]]:
    return sorted(
        (item.partition, item.offset + row)
        for found in scan.segments
        for item in found.slices
        for row in range(item.rows)
    )


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(log) -> int:
    topic = log.topic(partitions=1)
    for _ in range(3):
        log.produce(topic, 2)
    return topic


def command(log: Log, topic: int, forgotten: int = -1, known: int | None = None) -> ReplaceCommand:
    (merge,) = merges_of(log, topic)
    txn = log.number()
    made = tuple(log.segment(topic, {item.partition: item.width}, txn, compacted=True) for item in merge.outputs)
    removed = tuple(record.number for record in merge.removed)
    return ReplaceCommand(txn, topic, made, (0,), removed, log.version if known is None else known, lambda: forgotten)


def decided(log: Log, wanted: ReplaceCommand):
    return wanted.decide(log.state.draft(), log.header(), {})


def test_it_is_one_entry_with_all_that_comes_in(log, topic):
    wanted = command(log, topic)
    actions = decided(log, wanted)
    assert [type(action).__name__ for action in actions] == ["Begin", "Segment", "Replace"]
    version = log.entry(*actions)
    assert wanted.result(log.state.draft(), Header(version, "", 0)) == version
    again = decided(log, wanted)
    assert (again.value, again.settled) == (version, True), "asked once more it is what was done"


@pytest.mark.clause("P-91")
def test_what_is_gone_by_now_is_not_replaced_again(log, topic):
    first, second = command(log, topic), command(log, topic)
    log.entry(*decided(log, first))
    assert decided(log, second) == Answer(None)


@pytest.mark.clause("P-91")
def test_what_the_fold_has_let_go_of_is_replaced_only_if_it_was_known_to_be_there(log, topic):
    wanted = command(log, topic)
    known = log.version
    log.produce(topic, 1)
    for record in list(log.state.segments.values()):
        if record.ended_version <= known:
            del log.state.segments[record.number]
    assert isinstance(decided(log, command_of(wanted, forgotten=known)), list)
    assert decided(log, command_of(wanted, forgotten=known + 1)) == Answer(None)


def command_of(wanted: ReplaceCommand, forgotten: int) -> ReplaceCommand:
    return ReplaceCommand(
        wanted.txn, wanted.topic, wanted.segments, wanted.offsets, wanted.removed, wanted.known, lambda: forgotten
    )


def test_a_topic_that_was_dropped_is_reported(log, topic):
    wanted = command(log, topic)
    log.entry(DropTopic(topic))
    with pytest.raises(TopicNotFound, match="'orders' was dropped"):
        decided(log, wanted)


# --- the newest ones --------------------------------------------------------------------------------------------------


def one_by_one(count: int, interval: int) -> tuple[list[SegmentRecord], int]:
    """What is left of so many segments of one row each, merged whenever so many are there; and rows written for it."""
    live: list[SegmentRecord] = []
    written = 0
    names = itertools.count(count)
    for number in range(count):
        live.append(segment(number, 2_000, {0: (number, 1)}))
        if len(live) < interval:
            continue
        chosen = newest(random.Random(number).sample(live, len(live)), 1 << 30)
        for merge in merges(chosen, {}, 1_000_000, {}, 1 << 30):
            (output,) = merge.outputs
            gone = {record.number for record in merge.removed}
            live = [record for record in live if record.number not in gone]
            live.append(segment(next(names), output.width * 100, {0: (output.offset, output.width)}, compacted=True))
            written += output.width
    return live, written


def test_the_newest_are_merged_and_what_is_left_is_few_and_was_seldom_written():
    live, written = one_by_one(10_000, 32)
    assert sum(record.rows for record in live) == 10_000
    assert len(live) <= 32 + 12
    assert written <= 10_000 * 12


def test_the_newest_ends_at_a_merged_one_that_is_bigger_than_all_behind_it():
    found = [
        segment(0, 100, {0: (0, 50)}, compacted=True),
        segment(1, 100, {0: (50, 9)}, compacted=True),
        *(segment(number, 100, {0: (49 + 10 * (number - 1), 10)}) for number in range(2, 4)),
    ]
    assert [record.number for record in newest(found, 1_000)] == [1, 2, 3]
    assert [record.number for record in newest(found, 250)] == [2, 3]
    assert newest([], 1_000) == []
