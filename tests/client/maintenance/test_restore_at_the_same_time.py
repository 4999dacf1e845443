"""Attacks on restores and adoptions that pause: each test is a claim that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pyarrow.compute as pc
import pytest

from tests.client.backups import Killed, back_up, before_first, folder, objects, restore, with_everything
from tests.client.maintenance.people import people, put, vacuumed
from tests.client.support import Place, read, rows, unique_name
from txnlog.errors import Durable, InvalidInputError, StoreError
from txnlog.format import keys
from txnlog.store import HookStore, PrefixStore, StoreCall
from txnlog.testing import ManualClock


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place("memory", f"memory://{unique_name()}")
    yield place
    place.close()


def test_a_restore_that_ends_well_can_be_opened_although_another_one_was_killed_meanwhile(place: Place) -> None:
    """LIES, BLOCKS: one has registered its id, and pauses before the adoption; another one registers the next id, and
    is killed before its own. The first wakes up, appends its adoption, deletes the mark, and says that it restored; the
    root lists the other id, so the namespace cannot be opened."""
    with_everything(place)
    backups = folder()
    version = back_up(place, backups).version
    adoption = f"copy/{keys.entry_key(version + 1)}"

    def die() -> None:
        raise Killed

    def other() -> None:
        with pytest.raises(Killed):
            restore(place, backups, "copy", store=before_first(place.store(), StoreCall.CREATE, adoption, die))

    done = restore(place, backups, "copy", store=before_first(place.store(), StoreCall.CREATE, adoption, other))
    with place.open("copy", create=False) as ns:
        ns.produce("audit", rows(900))
        assert 900 in read(ns, "audit")
    assert done.version == version


def test_a_restore_that_wakes_up_puts_no_file_of_erased_rows_back(place: Place) -> None:
    """RESURRECTS: one pauses before it puts a segment; another one restores the same, rows are erased from what it
    restored, and vacuumed, and the erasure says that nothing is left. The first wakes up, puts its segments into the
    folder of the live namespace, and says that it restored it."""
    clock = ManualClock(time.time_ns() // 1_000_000)
    ns = people(place.open(clock=clock))
    put(ns, *range(20))
    backups = folder()
    back_up(place, backups)
    segment = next(key for key in objects(backups) if isinstance(keys.parse_key(key), keys.SegmentKey))
    erased = pc.field("id") == 3

    def live() -> None:
        restore(place, backups, "copy")
        with place.open("copy", create=False, clock=clock) as copy:
            copy.erase("orders", erased)
            vacuumed(copy, clock)
            vacuumed(copy, clock)
            assert copy.erase("orders", erased).is_complete
        assert segment not in objects(PrefixStore(place.store(), "copy"))

    asleep = before_first(place.store(), StoreCall.PUT, segment, live)
    with contextlib.suppress(InvalidInputError):  # a refusal would be right
        restore(place, backups, "copy", store=asleep)
    assert segment not in objects(PrefixStore(place.store(), "copy"))


def test_a_dry_run_does_not_say_that_an_adoption_is_left_that_was_made(place: Place) -> None:
    """LIES: the last request of a restore was refused, which is passed over; the namespace is adopted and listed, and a
    dry run says that "only its last step, the adoption, is left"."""
    with_everything(place)
    backups = folder()
    back_up(place, backups)

    def refused(call: StoreCall, key: str) -> None:
        if call is StoreCall.DELETE and key.endswith(keys.RESTORE_KEY):
            raise StoreError("slow down", durable=Durable.NOTHING)

    restore(place, backups, "copy", store=HookStore(place.store(), before=refused))
    place.open("copy", create=False, mode="r")
    with pytest.raises(InvalidInputError) as caught:
        restore(place, backups, "copy", dry_run=True)
    assert "the adoption, is left" not in str(caught.value)
