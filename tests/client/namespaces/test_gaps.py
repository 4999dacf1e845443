"""A log from which several entries are missing: a copy that ended halfway, or a cleanup of old files.

Where the gap is at the end that is found, what is left is a whole log with an older newest version. Nobody writes
to it, and nobody deletes what the missing entries name.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, raises, read, rows
from txnlog.common.format_limits import ENTRIES_PER_FOLDER
from txnlog.errors import CorruptionError, Durable
from txnlog.format import keys
from txnlog.testing import ManualClock

WEEK_MS = 7 * 86_400_000


def with_rows(place: Place, count: int, clock: ManualClock | None = None) -> dict[str, bytes]:
    """A namespace with so many rows, an entry each; gives its log."""
    ns = place.open() if clock is None else place.open(clock=clock)
    ns.create_topic("orders", SCHEMA)
    for number in range(count):
        ns.produce("orders", rows(number))
    store = place.store()
    return {info.key: store.get(info.key) for info in store.list("sales/_log/0")}


def lose(place: Place, first: int, count: int) -> None:
    """Delete some entries."""
    for version in range(first, first + count):
        place.store().delete(f"sales/{keys.entry_key(version)}")


@pytest.mark.parametrize(("first", "count"), [(1, 2), (1, 14), (1, 40), (15, 5), (15, 29), (40, 3)])
def test_nobody_writes_into_a_gap(place: Place, first: int, count: int) -> None:
    """LOSE: a copy that ended halfway is written to: what was acknowledged is gone when the rest of the copy comes."""
    log = with_rows(place, 43)
    lose(place, first, count)
    with raises(CorruptionError, match=r"entry \d+ is missing .*copy that ended halfway", durable=Durable.NOTHING):
        ns = place.open()
        ns.create_topic("orders", SCHEMA, if_not_exists=True)
        ns.produce("orders", rows(900))
    for key, data in log.items():
        place.store().put(key, data)
    assert read(place.open()) == list(range(43))
    place.open().produce("orders", rows(43))


@pytest.mark.parametrize(("first", "count"), [(1, 3), (1, 15), (9, 12), (5, 1)])
def test_nobody_reads_an_older_version_for_a_gap_that_is_shorter_than_what_is_left(
    memory: Place, first: int, count: int
) -> None:
    """LOSE: a report over 57 of 300 rows."""
    with_rows(memory, 43)
    lose(memory, first, count)
    with raises(CorruptionError, match=rf"entry {first} is missing", durable=Durable.NOTHING):
        memory.open(mode="r")


@pytest.mark.parametrize("call", ["vacuum", "dry run", "maintain"])
def test_nothing_is_deleted_that_a_missing_entry_names(memory: Place, clock: ManualClock, call: str) -> None:
    """LOSE: two days later the segments of the missing entries are deleted: no entry names them."""
    log = with_rows(memory, 30, clock)
    lose(memory, 3, 26)  # only the last ones are there: where it is opened nobody looks so far
    ns = memory.open(clock=clock)
    clock.advance(WEEK_MS)
    ns._connection.session._may_write = True  # as a handle that wrote before
    checkpoint = Durable.MAYBE if call == "maintain" else Durable.NOTHING
    with raises(CorruptionError, match="entry 3 is missing", durable=checkpoint):
        ns.maintain() if call == "maintain" else ns.vacuum(dry_run=call == "dry run")
    for key, data in log.items():
        memory.store().put(key, data)
    assert read(memory.open()) == list(range(30))


def test_a_copy_that_ended_halfway_is_not_adopted(memory: Place) -> None:
    with_rows(memory, 30)
    lose(memory, 3, 26)
    with raises(CorruptionError, match="entry 3 is missing", durable=Durable.NOTHING):
        memory.open()._connection.session.adopt(force=True)


def test_a_vacuum_lists_folders_far_behind_its_own(memory: Place, clock: ManualClock) -> None:
    with_rows(memory, 3, clock)
    ns: Any = memory.open(clock=clock)
    for folder in (1, 2, 4, 256):
        key = f"sales/{keys.entry_key(folder * ENTRIES_PER_FOLDER + 17)}"
        memory.store().put(key, b"")
        with raises(CorruptionError, match="entry 5 is missing"):
            ns.vacuum()
        memory.store().delete(key)
    ns.vacuum()


def test_entries_that_others_append_meanwhile_are_no_gap(memory: Place) -> None:
    with_rows(memory, 3)
    ns, other = memory.open(), memory.open()
    for number in range(40):
        other.produce("orders", rows(number))
    assert ns.produce("orders", rows(99)).version == other.snapshot().version
    ns.vacuum()
