"""``ns.repair`` while others write, restore, back up or vacuum, and over stores that do not answer."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.client.backups import (
    Killed,
    back_up,
    damaged,
    folder,
    objects,
    of_namespace,
    restore,
    with_everything,
)
from tests.client.copies import remove
from tests.client.maintenance.people import people, positions, put, vacuumed
from tests.client.maintenance.repairing import (
    FOLDER,
    copied,
    done,
    entry,
    first_of,
    repaired,
    store_of,
)
from tests.client.support import SCHEMA, Place, read, rows
from txnlog.api.checking import check_namespace, repair_namespace
from txnlog.client import consumer_heartbeats
from txnlog.client.checkpointer import checkpoint_of
from txnlog.engine.runtime import Runtime
from txnlog.errors import Durable, InvalidInputError, StoreError, TxnLogError
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.log.checkpoint_codec import encode_manifest
from txnlog.maintenance.repair.repair import repair
from txnlog.maintenance.repair.work import Copy
from txnlog.store import HookStore, MemoryStore, StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


def checked(place: Place, level: Any = "full") -> Any:
    return check_namespace("x", FOLDER, level=level, store=place.store(), clock=ManualClock(START_MS))


def test_a_backup_behind_a_repair_completes_an_interrupted_one_and_can_be_restored(memory: Place, whole: Any) -> None:
    """TEARS, LIES: an interrupted backup left the manifest of a checkpoint; the repair makes another one of the same
    size; the next backup takes the old one for it, by name and size, and seals a backup that cannot be restored."""
    _, content, _ = whole
    backup, manifest = folder(), first_of(content, keys.ManifestKey)

    def at_the_seal(call: StoreCall, key: str) -> None:
        if call is StoreCall.PUT and keys.backup_version(key) is not None:
            raise Killed

    with pytest.raises(Killed):
        back_up(memory, HookStore(backup, before=at_the_seal))
    assert manifest in objects(backup)
    damaged(store_of(memory), manifest, "flipped")
    assert repaired(memory).is_clean
    assert store_of(memory).get(manifest) != content[manifest]
    back_up(memory, backup)
    restore(memory, backup, "again")


def test_a_backup_behind_a_repair_leaves_older_backups_of_the_folder_as_they_are(memory: Place) -> None:
    """LOSES: a part of a newer checkpoint is damaged in the folder of backups, so the next backup copies all
    checkpoints anew: also the manifest that a repair made again, whose old bytes an older, whole backup names."""
    ns = memory.open(clock=ManualClock(START_MS))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    ns.checkpoint()
    backup = folder()
    oldest = back_up(memory, backup).version
    for number in range(2, 5):
        ns.produce("orders", rows(number))
    ns.checkpoint()
    known = set(objects(backup))
    back_up(memory, backup)
    manifest = first_of(of_namespace(memory), keys.ManifestKey)
    damaged(store_of(memory), manifest, "flipped")
    assert repaired(memory).is_clean
    part = next(key for key in sorted(set(objects(backup)) - known) if isinstance(keys.parse_key(key), keys.PartKey))
    backup.delete(part)
    ns.produce("orders", rows(9))
    newest = back_up(memory, backup).version
    restore(memory, backup, "newest", version=newest)
    restore(memory, backup, "oldest", version=oldest)


def test_a_segment_whose_put_had_no_answer_is_not_reported_as_damaged(memory: Place, whole: Any) -> None:
    """LIES (unknown reported as failed): the put lands, its answer is lost, nothing else was repaired: no second check
    is made, and the answer says damage of a namespace that is whole."""
    _, content, source = whole
    segment = first_of(content, keys.SegmentKey)
    store_of(memory).delete(segment)

    def lost(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.PUT and key.endswith(segment):
            raise StoreError("timed out", durable=Durable.MAYBE)

    found = repaired(memory, source, store=HookStore(memory.store(), after=lost))
    assert store_of(memory).get(segment) == content[segment]
    assert checked(memory).is_clean
    assert not found.of("damage"), "nothing is damaged"


def test_one_object_of_the_source_that_cannot_be_read_does_not_end_the_repair(tmp_path: Path) -> None:
    """BLOCKS, LIES ("A damaged object of the source is not used, and the answer says so; all others are"): the newest
    entry of the source cannot be read (here: a link), and no segment is brought back."""
    place = Place("local", str(tmp_path / "lake"))
    with_everything(place)
    here, source = tmp_path / "lake" / FOLDER, tmp_path / "copy"
    shutil.copytree(here, source)
    content = of_namespace(place)
    newest, segment = entry(content, -1), first_of(content, keys.SegmentKey)
    os.rename(source / newest, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", source / newest)
    (here / segment).unlink()
    found = repair_namespace(str(tmp_path / "lake"), FOLDER, source=str(source))
    assert segment in done(found)


def test_no_checkpoint_is_made_from_an_entry_that_is_not_the_one_of_the_log(memory: Place, whole: Any) -> None:
    """LIES (P-254, "If entries that it needs are lost, it is left"): the entry of a checkpoint's own version is another
    one, as the next entry shows, and without a source the checkpoint is made again from that."""
    _, content, _ = whole
    manifest = first_of(content, keys.ManifestKey)
    parsed = keys.parse_key(manifest)
    assert isinstance(parsed, keys.ManifestKey)
    key = keys.entry_key(parsed.version)
    other = content[key].replace(b'"writer":"', b'"writer":"f', 1).replace(b'"timestamp_ms":1', b'"timestamp_ms":2', 1)
    assert other != content[key]
    store_of(memory).put(key, other)
    damaged(store_of(memory), manifest, "flipped")
    found = repaired(memory)
    assert any(key in item.key for item in found.of("damage"))
    assert manifest not in done(found)
    assert digest_of(other).encode() not in store_of(memory).get(manifest)


def with_an_erased_row(memory: Place) -> tuple[ManualClock, Any, str, str]:
    """A row was erased, and the old file that has it is damaged. The clock, the namespace, a copy, and the file."""
    clock = ManualClock(START_MS)
    ns = people(memory.open(clock=clock))
    put(ns, *range(20))
    content = of_namespace(memory)
    ns.erase("orders", pc.field("id") == 3)
    segment = first_of(content, keys.SegmentKey)
    damaged(store_of(memory), segment, "flipped")
    return clock, ns, copied(content)[0], segment


def test_a_vacuum_next_to_a_repair_leaves_no_file_of_erased_rows(memory: Place) -> None:
    """RESURRECTS: a replaced file of erased rows is damaged, and only older versions show it. The repair has checked;
    a vacuum ends these versions and deletes the file; then the repair puts it back from an old copy."""
    clock, ns, source, segment = with_an_erased_row(memory)
    ran: list[str] = []
    erased = pc.field("id") == 3

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.PUT and key.endswith(segment) and not ran:
            ran.append(key)
            vacuumed(ns, clock)
            vacuumed(ns, clock)
            assert segment not in of_namespace(memory)
            assert ns.erase("orders", erased).is_complete, "the caller hears that no file has such a row"

    found = repair_namespace("x", FOLDER, source=source, store=HookStore(memory.store(), before=before), clock=clock)
    assert ran
    assert 3 not in positions(ns)
    assert segment not in of_namespace(memory), found
    assert ns.erase("orders", erased).is_complete


def test_the_next_checkpoint_of_an_open_handle_does_not_name_a_part_that_is_lost(memory: Place) -> None:
    """LIES ("the new one does not depend on it"; "Afterwards fsck finds only what is left"): an open handle goes on
    from the manifest in its memory, and its next checkpoint, behind a clean repair, names the lost part again."""
    clock = ManualClock(START_MS)
    ns, _ = with_everything(memory, clock=clock)
    content = of_namespace(memory)
    parts = [key for key in content if isinstance(keys.parse_key(key), keys.PartKey)]
    for key in parts:
        store_of(memory).delete(key)
    assert repaired(memory).is_clean
    ns.produce("orders", rows(200))
    ns.optimize("orders")
    ns.checkpoint()
    assert [item.message for item in checked(memory).findings if item.severity == "warning"] == []


def test_a_live_writer_is_not_undone_without_a_word(memory: Place, whole: Any) -> None:
    """LOSES, LIES ("An entry is only put into a slot that the log has passed, so no writer can use it"): the newest
    entries are lost, a writer opens and goes on from there, and one that paused appends behind the lost ones. The
    repair replaces what the first one heard is committed, and no line of the answer says so, or where it is kept."""
    paused, content, _ = whole
    paused.produce("orders", rows(300))
    paused.produce("orders", rows(301))
    paused.produce("orders", rows(302))
    content = of_namespace(memory)
    source, _ = copied(content)
    for place in (-1, -2, -3):
        store_of(memory).delete(entry(content, place))
    live = memory.open(clock=ManualClock(START_MS))
    live.produce("audit", rows(400))
    assert 400 in read(live, "audit")
    paused.produce("orders", rows(303))
    found = repaired(memory, source)
    fresh = memory.open(mode="r", clock=ManualClock(START_MS))
    kept = [key for key in of_namespace(memory) if key.startswith("_log/replaced/")]
    assert 400 in read(fresh, "audit") or any(
        kept[0] in text for item in found.objects for text in (item.done, item.left, item.advice)
    ), (found, kept)


def test_a_heartbeat_that_its_owner_has_written_again_stays(memory: Place, whole: Any) -> None:
    """LIES ("What decodes stays, whatever it says"), loses a hint: read as damaged, written anew by its owner, and
    deleted then, without a second look. With ``closed`` in it, the next consumer waits a whole lease for nobody."""
    store, key = store_of(memory), keys.heartbeat_key(3, 4)
    good = b'{"consumer":"a","beat":2,"closed":true}'
    assert consumer_heartbeats.can_be_read(good)
    store.put(key, b"{")

    def after(call: StoreCall, at: str, _result: object) -> None:
        if call is StoreCall.GET and at.endswith(key):
            store.put(key, good)

    repaired(memory, store=HookStore(memory.store(), after=after))
    assert objects(store).get(key) == good


def test_a_backup_behind_a_repair_has_no_wrong_checkpoint(memory: Place) -> None:
    """RESURRECTS damage, LIES (page, step 4: "make a new backup: the same folder takes it"): a checkpoint says
    something else than the entries, and a backup has it. A repair makes it again; the next backup into the folder takes
    over the wrong one from the earlier backup, and a restore of it shows fewer rows than the namespace has."""
    ns = memory.open(clock=ManualClock(START_MS))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    forgetful = ns._connection.follower.state.copy()
    ns.produce("orders", rows(2))
    forgetful.heads.update(ns._connection.follower.state.heads)
    manifest, parts = checkpoint_of(forgetful, None, lambda _part: None, map("{:032x}".format, range(9)).__next__)
    for key, data in parts:
        store_of(memory).put(key, data)
    store_of(memory).put(keys.manifest_key(manifest.version), encode_manifest(manifest))
    assert read(memory.open(mode="r", clock=ManualClock(START_MS))) in ([1], [1, 2])
    backup = folder()
    back_up(memory, backup)
    assert [item.kind for item in checked(memory).of("damage")] == ["checkpoint"]
    assert repaired(memory).is_clean
    ns.produce("orders", rows(3))
    assert checked(memory).is_clean
    back_up(memory, backup)
    restore(memory, backup, "again")
    report = check_namespace("x", "again", level="full", store=memory.store(), clock=ManualClock(START_MS))
    assert not report.of("damage")
    assert read(memory.open("again", mode="r", clock=ManualClock(START_MS))) == [1, 2, 3]


@pytest.mark.parametrize("with_source", [True, False])
def test_an_entry_that_the_disk_cannot_read_does_not_end_the_repair(
    memory: Place,
    whole: Any,
    *,
    with_source: bool,
) -> None:
    """BLOCKS: the newest entry answers EIO. The repair raised, so that what it had done was not said. A missing segment
    stays away: that entry may be the one of a vacuum that deleted it."""
    _, content, source = whole
    newest, segment, manifest = (
        entry(content, -1),
        first_of(content, keys.SegmentKey),
        first_of(content, keys.ManifestKey),
    )
    store_of(memory).delete(segment)
    damaged(store_of(memory), manifest, "flipped")

    def unreadable(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key.endswith(newest):
            raise StoreError("Input/output error", durable=Durable.NOTHING)

    broken = HookStore(memory.store(), before=unreadable)
    assert check_namespace("x", FOLDER, level="full", store=broken, clock=ManualClock(START_MS)).of("unchecked")
    found = repaired(memory, source if with_source else None, store=broken)
    assert manifest in done(found)
    assert {newest, segment} <= {item.key for item in found.of("unchecked")}
    assert segment not in of_namespace(memory)


def test_an_entry_that_the_disk_cannot_read_comes_back(memory: Place, whole: Any) -> None:
    """LIES ("an entry: brought back from the source, if the entry behind it is there and names its digest"; "Disks lose
    blocks"): one that answers EIO is left, although the next one names it and the source has it; so is a segment."""
    _, content, source = whole
    lost, segment = entry(content, 4), first_of(content, keys.SegmentKey)
    bad = {f"{FOLDER}/{lost}", f"{FOLDER}/{segment}"}

    def unreadable(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key in bad:
            raise StoreError("Input/output error", durable=Durable.NOTHING)

    def replaced(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.PUT:
            bad.discard(key)

    found = repaired(memory, source, store=HookStore(memory.store(), before=unreadable, after=replaced))
    assert {lost, segment} <= set(done(found))


def test_a_repair_that_wakes_up_leaves_the_namespace_that_was_restored_meanwhile_alone(memory: Place) -> None:
    """TEARS: a repair pauses before it brings an entry back. Somebody gives up on the folder, removes it, restores a
    backup under the name (as the refusal of a restore advises); writers go on there. The repair wakes up and replaces
    an entry of the living log by one of the log that is gone: what was committed there cannot be read any more."""
    ns = memory.open(clock=ManualClock(START_MS))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    backup = folder()
    back_up(memory, backup)
    for number in range(1, 9):
        ns.produce("orders", rows(number))
    content = of_namespace(memory)
    source, _ = copied(content)
    lost = entry(content, -4)
    store_of(memory).delete(lost)
    ran: list[str] = []

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.CREATE and key.endswith(lost) and not ran:
            ran.append(key)
            remove(memory, FOLDER)
            restore(memory, backup, FOLDER)
            with Place("memory", memory.root).open(FOLDER, create=False) as live:
                for number in range(100, 112):
                    live.produce("orders", rows(number))
            assert checked(memory).is_clean

    with contextlib.suppress(TxnLogError):  # a refusal would be right
        repaired(memory, source, store=HookStore(memory.store(), before=before))
    assert ran
    assert not checked(memory).of("damage")
    assert read(memory.open(FOLDER, mode="r", create=False)) == [0, *range(100, 112)]


def timed_out(on: StoreCall, where: str, times: int = 1_000_000) -> Any:
    """A hook that answers nothing, so many times."""
    left = [None] * times

    def hook(call: StoreCall, key: str, _result: object = None) -> None:
        if call is on and key.endswith(where) and left:
            left.pop()
            raise StoreError("timed out", durable=Durable.MAYBE)

    return hook


def with_another_in_the_gap(memory: Place, paused: Any) -> tuple[str, str, bytes]:
    """The newest entries are lost, a live writer commits in the gap, and one that paused appends behind it.

    Returns the source, the key of the slot, and what the live writer put there.
    """
    for number in (300, 301, 302):
        paused.produce("orders", rows(number))
    content = of_namespace(memory)
    source, _ = copied(content)
    for number in (-1, -2, -3):
        store_of(memory).delete(entry(content, number))
    with memory.open(clock=ManualClock(START_MS)) as live:
        live.produce("audit", rows(400))
    slot = entry(content, -2)  # in the one before it the live writer has reserved numbers
    paused.produce("orders", rows(303))
    data = store_of(memory).get(slot)
    assert b"n400" in data
    return source, slot, data


def test_what_a_live_writer_committed_is_kept_although_one_read_has_no_answer(memory: Place, whole: Any) -> None:
    """LOSES: one read times out, which the next one would not, and the entry of a writer that heard that it
    committed is overwritten: nowhere kept, and no word of it."""
    source, slot, data = with_another_in_the_gap(memory, whole[0])
    asked: list[str] = []
    lost: list[str] = []

    def of_source(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key == slot:
            asked.append(key)  # once to see that it is what the log names, and once to bring it back

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key == slot and len(asked) == 2 and not lost:
            lost.append(key)
            raise StoreError("timed out", durable=Durable.NOTHING)

    copy = Copy(HookStore(MemoryStore(source.removeprefix("memory://")), before=of_source))
    store = HookStore(store_of(memory), before=before)
    found = repair(store, Runtime(ManualClock(START_MS)), copy, dry_run=False, progress=None)
    assert lost
    assert slot in done(found)
    kept = [value for key, value in of_namespace(memory).items() if key.startswith("_log/replaced/")]
    assert data in kept, found


def test_a_put_without_an_answer_does_not_hide_what_was_replaced(memory: Place, whole: Any) -> None:
    """LOSES without a word: the put that replaces the entry of a live writer lands, and its answer is lost. The check
    finds all well, and the answer is clean: nobody hears that what the writer committed must be done again."""
    source, slot, data = with_another_in_the_gap(memory, whole[0])
    store = HookStore(memory.store(), after=timed_out(StoreCall.PUT, slot, 1))
    found = repaired(memory, source, store=store)
    kept = next(key for key, value in of_namespace(memory).items() if "/replaced/" in key and value == data)
    texts = [text for item in found.objects for text in (item.key, item.done, item.left, item.advice)]
    assert any(kept in text for text in texts), found


def test_a_heartbeat_that_could_not_be_removed_is_not_left_out_of_the_answer(memory: Place, whole: Any) -> None:
    """LIES: the delete times out, and did nothing. Before, the answer had a line; now it is clean (exit code 0)."""
    store, key = store_of(memory), keys.heartbeat_key(3, 4)
    store.put(key, b"{")
    found = repaired(memory, store=HookStore(memory.store(), before=timed_out(StoreCall.DELETE, key)))
    assert store.get(key) == b"{"
    assert not found.is_clean, found


def test_a_source_that_gives_no_answer_is_not_said_to_be_no_copy(memory: Place, whole: Any) -> None:
    """LIES (unknown reported as failed): every read of the source times out, and the repair says that the source "is
    no copy of this namespace: it has no first entry of a log", and to name another one."""
    _, content, _ = whole
    store_of(memory).delete(entry(content, 4))
    _, there = copied(content)
    source = HookStore(there, before=timed_out(StoreCall.GET, ""))
    with pytest.raises(TxnLogError) as caught:
        repair(store_of(memory), Runtime(ManualClock(START_MS)), Copy(source), dry_run=False, progress=None)
    assert not isinstance(caught.value, InvalidInputError), str(caught.value)


def test_a_lost_end_is_not_passed_over_where_the_source_gives_no_answer(memory: Place, whole: Any) -> None:
    """LIES: the newest entry is lost here, and only the source shows it. Its read times out: the answer is clean."""
    paused, _, _ = whole
    paused.produce("orders", rows(300))
    content = of_namespace(memory)
    _, there = copied(content)
    newest = entry(content, -1)
    store_of(memory).delete(newest)
    runtime = Runtime(ManualClock(START_MS))
    assert not repair(store_of(memory), runtime, Copy(there), dry_run=True, progress=None).is_clean
    source = HookStore(there, before=timed_out(StoreCall.GET, newest))
    found = repair(store_of(memory), runtime, Copy(source), dry_run=False, progress=None)
    assert not found.is_clean, found


def test_what_was_only_not_read_once_is_not_said_to_be_brought_back(memory: Place, whole: Any) -> None:
    """LIES: one read of an entry times out; it was there all the time, and nothing was written."""
    _, content, source = whole
    there = entry(content, 4)
    wrote: list[str] = []

    def after(call: StoreCall, key: str, _result: object) -> None:
        if call in (StoreCall.PUT, StoreCall.CREATE) and key.endswith(there):
            wrote.append(key)

    store = HookStore(memory.store(), before=timed_out(StoreCall.GET, there, 2), after=after)
    found = repaired(memory, source, store=store)
    assert there not in done(found)


def test_a_repair_that_is_run_again_says_what_the_interrupted_one_replaced(memory: Place, whole: Any) -> None:
    """LOSES without a word: the same at a crash. "If a repair is interrupted, run it again": the second one says that
    all is well, and nobody hears of the entry that the first one replaced."""
    source, slot, data = with_another_in_the_gap(memory, whole[0])

    def die(call: StoreCall, key: str, _result: object) -> None:
        if call is StoreCall.PUT and key.endswith(slot):
            raise Killed

    with pytest.raises(Killed):
        repaired(memory, source, store=HookStore(memory.store(), after=die))
    found = repaired(memory, source)
    kept = next(key for key, value in of_namespace(memory).items() if "/replaced/" in key and value == data)
    texts = [text for item in found.objects for text in (item.key, item.done, item.left, item.advice)]
    assert any(kept in text for text in texts), found


def test_an_entry_that_cannot_be_put_does_not_keep_the_older_ones_away(memory: Place, whole: Any) -> None:
    """BLOCKS ("others are repaired all the same"): three entries are lost, the source has them, the log names all of
    them, and the newest one cannot be put. The two before it stay lost as well, and the answer says of each of them
    that the entry behind it "is another one by now"."""
    _, content, source = whole
    lost = [entry(content, number) for number in (4, 5, 6)]
    for key in lost:
        store_of(memory).delete(key)

    def refused(call: StoreCall, key: str) -> None:
        if call in (StoreCall.PUT, StoreCall.CREATE) and key.endswith(lost[-1]):
            raise StoreError("Input/output error", durable=Durable.NOTHING)

    found = repaired(memory, source, store=HookStore(memory.store(), before=refused))
    assert set(lost[:2]) <= set(done(found))


def test_a_dry_run_does_not_say_that_an_entry_was_replaced(memory: Place, whole: Any) -> None:
    """LIES: nothing was replaced, and what the live writer wrote is where it was. The dry run says that it "was
    replaced", that it is in a file only, which is not there, and that it must be done again."""
    source, _, _ = with_another_in_the_gap(memory, whole[0])
    found = repaired(memory, source, dry_run=True)
    warnings = [item for item in found.objects if "/replaced/" in item.key]
    assert warnings
    assert all("would take the place" in item.left for item in warnings)
    assert not {item.key for item in warnings} & set(of_namespace(memory))


@pytest.mark.parametrize("fails", [False, True])
def test_a_segment_that_was_removed_again_is_not_said_to_be_brought_back(memory: Place, *, fails: bool) -> None:
    """LIES, BLOCKS: a vacuum comes meanwhile, and the segment that was put is deleted again: the answer says that it
    was brought back. Where the delete has no answer, the repair raises, and nobody hears what else it did."""
    clock, ns, source, segment = with_an_erased_row(memory)
    ran: list[str] = []

    def before(call: StoreCall, key: str) -> None:
        if call is StoreCall.PUT and key.endswith(segment) and not ran:
            ran.append(key)
            vacuumed(ns, clock)
            vacuumed(ns, clock)
        elif call is StoreCall.DELETE and key.endswith(segment) and ran and fails:
            raise StoreError("timed out", durable=Durable.MAYBE)

    found = repair_namespace("x", FOLDER, source=source, store=HookStore(memory.store(), before=before), clock=clock)
    assert ran
    assert segment not in done(found)
    assert (segment in of_namespace(memory)) == fails
    assert [item.key for item in found.of("unchecked")] == [segment] * fails


def test_a_checkpoint_of_a_log_that_is_gone_replaces_none_of_the_one_that_was_restored(memory: Place) -> None:
    """LIES ("Right before each put the entry behind is read again"): a repair pauses before it puts a checkpoint.
    Somebody restores an older backup under the name, and goes on there. The repair wakes up, and puts a checkpoint of
    the log that is gone in the place of the living log's."""
    ns = memory.open(clock=ManualClock(START_MS))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(0))
    backup = folder()
    back_up(memory, backup)
    for number in range(1, 5):
        ns.produce("orders", rows(number))
    ns.checkpoint()
    ns.produce("orders", rows(9))
    manifest = first_of(of_namespace(memory), keys.ManifestKey)
    damaged(store_of(memory), manifest, "flipped")
    ran: list[str] = []
    live_manifest: list[bytes] = []

    def before(call: StoreCall, key: str) -> None:
        if call in (StoreCall.CREATE, StoreCall.PUT) and key.endswith(manifest) and not ran:
            ran.append(key)
            remove(memory, FOLDER)
            restore(memory, backup, FOLDER)
            with Place("memory", memory.root).open(FOLDER, create=False) as live:
                parsed = keys.parse_key(manifest)
                assert isinstance(parsed, keys.ManifestKey)
                number = 100
                while live._connection.follower.refresh() < parsed.version:
                    live.produce("orders", rows(number))
                    number += 1
                live.checkpoint()
                live.produce("orders", rows(200))
            live_manifest.append(store_of(memory).get(manifest))

    with contextlib.suppress(TxnLogError):
        repaired(memory, store=HookStore(memory.store(), before=before))
    assert ran
    assert store_of(memory).get(manifest) == live_manifest[0]


def test_a_manifest_that_the_disk_cannot_read_does_not_end_every_backup(memory: Place) -> None:
    """BLOCKS: an earlier backup has the checkpoint, whole. In the namespace its manifest answers EIO from now on, and
    no backup is made any more, of nothing that is needed ("one that is unusable is left out, and nothing is lost")."""
    ns = memory.open(clock=ManualClock(START_MS))
    ns.create_topic("orders", SCHEMA)
    ns.produce("orders", rows(1))
    ns.checkpoint()
    ns.produce("orders", rows(2))
    ns.checkpoint()
    backup = folder()
    back_up(memory, backup)
    ns.produce("orders", rows(3))
    manifest = first_of(of_namespace(memory), keys.ManifestKey)  # the older one, which nobody needs

    def unreadable(call: StoreCall, key: str) -> None:
        if call is StoreCall.GET and key.endswith(manifest):
            raise StoreError("Input/output error", durable=Durable.NOTHING)

    newest = back_up(memory, backup, store=HookStore(memory.store(), before=unreadable)).version
    restore(memory, backup, "again", version=newest)
