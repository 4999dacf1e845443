"""``ns.repair``: what writers do meanwhile or did before, what is refused, and repairs that end anywhere."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import txnlog
from tests.client.backups import Killed, back_up, damaged, objects, of_namespace, shown, stopping
from tests.client.copies import adopt, copy, with_orders
from tests.client.maintenance.repairing import FOLDER, copied, done, entry, first_of, repaired, store_of
from tests.client.support import SCHEMA, Place, raises, read, rows, unique_name
from txnlog.api.checking import check_namespace, repair_namespace
from txnlog.errors import (
    AccessDenied,
    Durable,
    InvalidInputError,
    InvalidTransactionState,
    NamespaceNotFound,
    ReadOnly,
    StoreError,
)
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.results import Repaired
from txnlog.store import HookStore, MemoryStore, PrefixStore, StoreCall
from txnlog.testing import ManualClock
from txnlog.testing.scheduler import START_MS


def left(found: Repaired) -> dict[str, str]:
    return {item.key: item.left for item in found.objects if item.severity}


# --- what is put back -------------------------------------------------------------------------------------------------


def test_a_handle_repairs_what_it_has_open_and_goes_on(memory: Place, whole: Any) -> None:
    ns, content, source = whole
    before, store = shown(ns), store_of(memory)
    for key in (entry(content, 4), first_of(content, keys.SegmentKey), first_of(content, keys.ManifestKey)):
        store.delete(key)
    foreseen = ns.repair(source, dry_run=True)
    assert foreseen.dry_run
    assert keys.entry_key(4) not in objects(store)
    heard: list[str] = []
    found = ns.repair(source, progress=lambda kind, done, known: heard.append(kind))
    assert foreseen.objects == found.objects
    assert found.is_clean
    assert not found.dry_run
    assert done(found) == {
        entry(content, 4): "brought back from the copy",
        first_of(content, keys.SegmentKey): "brought back from the copy",
        first_of(content, keys.ManifestKey): "made again from the log",
    }
    assert {"entry", "segment", "checkpoint"} <= set(heard)
    assert shown(memory.open(mode="r")) == before
    ns.produce("orders", rows(7))
    assert ns.fsck("deep").is_clean


def test_a_backup_is_a_copy(memory: Place, whole: Any) -> None:
    _, content, _ = whole
    name = unique_name()
    back_up(memory, MemoryStore(name))
    for key in (entry(content, 3), first_of(content, keys.SegmentKey)):
        damaged(store_of(memory), key, "flipped")
    assert repaired(memory, f"memory://{name}").is_clean
    kept = {key: data for key, data in of_namespace(memory).items() if "_delta" not in key}
    assert {key: kept.get(key) for key in content if "_delta" not in key} == {
        key: data for key, data in content.items() if "_delta" not in key
    }


def test_several_entries_behind_each_other_come_back_and_prove_each_other(memory: Place, whole: Any) -> None:
    _, content, source = whole
    for place in range(len(content)):
        key = keys.entry_key(place)
        if key in content and key != entry(content, -1):
            store_of(memory).delete(key)
    found = repaired(memory, source)
    assert found.is_clean
    assert {key: data for key, data in of_namespace(memory).items() if key.startswith("_log/0")} == {
        key: data for key, data in content.items() if key.startswith("_log/0")
    }


@pytest.mark.clause("P-254")
def test_the_newest_entry_is_never_put_back(memory: Place, whole: Any) -> None:
    _, content, source = whole
    store, newest = store_of(memory), entry(content, -1)
    version = memory.open(mode="r").snapshot().version
    for harm in (lambda: store.delete(newest), lambda: store.put(newest, content[newest][:-5])):
        harm()
        found = repaired(memory, source)
        assert not found.is_clean
        assert objects(store).get(newest) != content[newest]
    store.delete(newest)
    assert left(repaired(memory, source))[newest] == (
        f"the log ends at version {version - 1}, and the copy goes on behind it: nothing here says which of the two is "
        "right"
    )
    late = memory.open()  # somebody who goes on from what is there has the slot
    late.produce("orders", rows(50))
    assert (
        newest not in left(repaired(memory, source))
        or "is another one in the copy" in left(repaired(memory, source))[newest]
    )
    assert 50 in read(late)


@pytest.mark.clause("P-3", "P-254")
def test_an_entry_that_somebody_put_into_the_gap_is_kept_aside(memory: Place, whole: Any) -> None:
    """By a writer that paused before the entry was written, and woke up when it was lost."""
    ns, content, source = whole
    lost = entry(content, 4)
    other = content[lost].replace(b'"writer":"', b'"writer":"f', 1).replace(b'"timestamp_ms":1', b'"timestamp_ms":2', 1)
    store = store_of(memory)
    store.delete(lost)

    def late(call: StoreCall, key: str) -> None:
        assert call is not StoreCall.DELETE or not key.startswith(f"{FOLDER}/_log/"), "the slot would be free"
        if call is StoreCall.CREATE and key == f"{FOLDER}/{lost}":
            store.create(lost, other)

    found = repaired(memory, source, store=HookStore(memory.store(), before=late))
    kept = keys.replaced_key(lost, digest_of(other))
    assert [item.key for item in found.of("warning")] == [kept], "whoever wrote it may count on it"
    assert not found.of("damage")
    assert store.get(lost) == content[lost]
    assert store.get(kept) == other
    assert ns.fsck("full").is_clean


def test_entries_of_a_copy_that_went_on_by_itself_are_not_taken(memory: Place, whole: Any) -> None:
    _, content, _ = whole
    other = Place("memory", f"memory://{unique_name()}")
    copy(memory, FOLDER, other)
    adopt(other, FOLDER)
    with other.open() as fork:
        fork.produce("orders", rows(70))
    newest = entry(content, -1)
    store_of(memory).delete(newest)
    found = repaired(memory, f"{other.root}/{FOLDER}")
    assert newest not in of_namespace(memory)
    assert done(found) == {}
    store_of(memory).put(newest, content[newest])
    store_of(memory).delete(entry(content, 5))
    assert repaired(memory, f"{other.root}/{FOLDER}").is_clean, "what both have in common is taken"
    assert left(repaired(memory, f"{other.root}/{FOLDER}")) == {}
    other.close()


@pytest.mark.clause("P-254")
def test_what_the_copy_has_damaged_is_not_taken(memory: Place, whole: Any) -> None:
    _, content, _ = whole
    segment, other = first_of(content, keys.SegmentKey), first_of(content, keys.SegmentKey, 1)
    for key in (entry(content, 4), segment, other):
        store_of(memory).delete(key)
    source, store = copied(content)
    damaged(store, entry(content, 4), "flipped")
    damaged(store, segment, "short")
    before = of_namespace(memory)
    found = repaired(memory, source)
    assert "what the copy has is not what the log names" in left(found)[entry(content, 4)]
    assert "what the copy has is not what the log names" in left(found)[segment]
    assert done(found)[other] == "brought back from the copy", "and all others come back"
    after = of_namespace(memory)
    assert {key for key in after if after[key] != before.get(key) and "_delta" not in key} == {other}


def test_an_older_copy_is_asked_for_what_it_has(memory: Place) -> None:
    ns = with_orders(memory)
    older = copied(of_namespace(memory))[0]
    version = ns.produce("orders", rows(1)).version
    ns.produce("orders", rows(2))
    store_of(memory).delete(keys.entry_key(version))
    found = repaired(memory, older)
    assert "the copy does not have it" in left(found)[keys.entry_key(version)]
    assert len(found.of("damage")) == 1


def test_without_a_copy_what_follows_from_the_log_comes_back(memory: Place, whole: Any) -> None:
    _, content, _ = whole
    store = store_of(memory)
    part = first_of(content, keys.PartKey)
    damaged(store, part, "flipped")
    damaged(store, first_of(content, keys.SegmentKey), "flipped")
    damaged(store, keys.delta_commit_key("orders", 0), "missing")
    store.put(keys.COLLECTOR_KEY, b"{")
    store.put(keys.heartbeat_key(3, 4), b"?")
    store.put("_hints/readme", b"of a stranger")
    found = repaired(memory)
    assert done(found) == {
        first_of(content, keys.ManifestKey): "made again from the log",
        "orders": "written again from the log: version 0",
        keys.COLLECTOR_KEY: "removed; its owner writes the next one",
        keys.heartbeat_key(3, 4): "removed; its owner writes the next one",
    }
    assert [item.key for item in found.of("damage")] == [first_of(content, keys.SegmentKey)]
    there = objects(store)
    assert keys.COLLECTOR_KEY not in there
    assert "_hints/readme" in there
    assert there[keys.delta_commit_key("orders", 0)] == content[keys.delta_commit_key("orders", 0)]
    manifest = first_of(content, keys.ManifestKey)
    assert there[keys.replaced_key(manifest, digest_of(content[manifest]))] == content[manifest]


def test_a_table_that_was_never_published_is_not_made(memory: Place) -> None:
    with_orders(memory)
    assert repaired(memory).objects == ()
    assert not any("_delta" in key for key in of_namespace(memory))


def test_a_checkpoint_of_a_newer_txnlog_is_left(memory: Place, whole: Any) -> None:
    _, content, _ = whole
    manifest = first_of(content, keys.ManifestKey)
    store_of(memory).put(manifest, content[manifest].replace(b'"format": 1', b'"format": 2'))
    found = repaired(memory)
    assert "a newer txnlog made it" in left(found)[manifest]
    assert found.of("warning")
    assert done(found) == {}


def test_where_an_entry_is_lost_a_checkpoint_behind_it_is_made_from_one_behind_it(memory: Place) -> None:
    ns = with_orders(memory)
    versions = []
    for number in range(3):
        ns.produce("orders", rows(number))
        versions.append(ns.checkpoint())
    ns.produce("orders", rows(9))
    store = store_of(memory)
    store.delete(keys.entry_key(versions[0] - 1))
    store.delete(keys.manifest_key(versions[2]))
    found = repaired(memory)
    assert done(found) == {keys.manifest_key(versions[2]): "made again from the log"}
    store.delete(keys.manifest_key(versions[0]))
    found = repaired(memory)
    assert "it cannot be made again: entry" in left(found)[keys.manifest_key(versions[0])]
    assert done(found) == {}


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(place: Place, call: Callable[[], Any], kind: Any, match: str) -> None:
    before = objects(place.store())
    with raises(kind, match=match) as caught:
        call()
    assert caught.value.durable is not Durable.MAYBE
    assert objects(place.store()) == before


def test_wrong_sources_are_refused_before_anything_is_written(memory: Place, whole: Any, tmp_path: Any) -> None:
    ns, content, _ = whole
    for harm in ([], [entry(content, 0)], [entry(content, 0), entry(content, 1)]):
        for key in harm:
            store_of(memory).delete(key)
        with_orders(memory, "other")
        for source, match in (
            (f"{memory.root}/{FOLDER}", "is the namespace itself"),
            (f"{memory.root}/{FOLDER}/", "is the namespace itself"),
            (f"{memory.root}/other", "is no copy of this namespace"),
            (copied({})[0], "is no copy of this namespace"),
            (str(tmp_path), "is no copy of this namespace"),
        ):
            for dry_run in (True, False):
                call = partial(repair_namespace, memory.root, FOLDER, source=source, dry_run=dry_run)
                refused(memory, call, InvalidInputError, match)
        for key in harm:
            store_of(memory).put(key, content[key])
    refused(memory, lambda: ns.repair(""), InvalidInputError, "the source is empty")
    refused(memory, lambda: ns.repair(3), InvalidInputError, "a root is a path or a URL")
    refused(memory, lambda: ns.repair(dry_run="no"), InvalidInputError, "dry_run")


def test_the_namespace_itself_is_known_by_whatever_path(tmp_path: Any) -> None:
    place = Place("local", str(tmp_path / "lake"))
    with_orders(place)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with raises(InvalidInputError, match="is the namespace itself"):
        repair_namespace(place.root, FOLDER, source=tmp_path / "link" / FOLDER)
    place.close()


def test_only_a_handle_that_may_write_repairs(memory: Place, whole: Any) -> None:
    ns, content, source = whole
    store_of(memory).delete(entry(content, 4))
    reader = memory.open(mode="r")
    refused(memory, lambda: reader.repair(source), ReadOnly, "")
    assert done(reader.repair(source, dry_run=True)) == {entry(content, 4): "brought back from the copy"}
    ns.close()
    refused(memory, lambda: ns.repair(source), InvalidTransactionState, "")


def test_where_nothing_is_nothing_is_made(memory: Place) -> None:
    refused(memory, lambda: repaired(memory), NamespaceNotFound, "")


# --- what fails -------------------------------------------------------------------------------------------------------


def test_what_could_not_be_written_is_said_and_the_rest_is_repaired(memory: Place, whole: Any) -> None:
    """As with a policy that lets nobody overwrite what is below ``_log/``."""
    _, content, source = whole
    segment, lost = first_of(content, keys.SegmentKey), entry(content, 4)
    damaged(store_of(memory), lost, "flipped")
    store_of(memory).delete(segment)

    def policy(call: StoreCall, key: str) -> None:
        if call is StoreCall.PUT and f"/{keys.LOG_FOLDER}" in key:
            raise AccessDenied("no right to overwrite", right="write", url=key, durable=Durable.NOTHING)

    found = repaired(memory, source, store=HookStore(memory.store(), before=policy))
    assert "could not be repaired: no right to overwrite" in str(found.of("unchecked"))
    assert store_of(memory).get(lost) != content[lost]
    assert repaired(memory, source).is_clean


ERRORS: dict[str, Callable[[], BaseException]] = {
    "killed": Killed,
    "refused": lambda: StoreError("gone", durable=Durable.NOTHING),
}


@pytest.mark.parametrize(
    ("kind", "side", "first", "step"),
    [
        pytest.param(kind, side, first, step, marks=[pytest.mark.long] if step == 1 else [], id=f"{kind}-{side}-{step}")
        for step, firsts in ((29, (0, 7, 14, 21)), (1, (0, 0, 0, 0)))
        for (kind, side), first in zip(itertools.product(ERRORS, ("before", "after")), firsts, strict=True)
    ],
)
def test_wherever_a_repair_ends_the_next_call_finishes_it(
    whole: Any, kind: str, side: str, first: int, step: int
) -> None:
    _, content, source = whole
    for point in itertools.count(first, step):
        place, calls = Place("memory", f"memory://{unique_name()}"), itertools.count()
        store = store_of(place)
        for key, data in content.items():
            store.put(key, data)
        for key in (entry(content, 2), entry(content, 3), first_of(content, keys.SegmentKey)):
            store.delete(key)
        damaged(store, entry(content, 6), "short")
        damaged(store, first_of(content, keys.ManifestKey), "flipped")
        damaged(store, keys.delta_commit_key("orders", 0), "missing")
        store.put(keys.COLLECTOR_KEY, b"{")
        wrapped = stopping(place.store(), calls, point, side, ERRORS[kind])
        with contextlib.suppress(Killed, StoreError):
            repaired(place, source, store=wrapped)
        assert repaired(place, source).is_clean, point
        there = objects(store)
        entries = [key for key in content if isinstance(keys.parse_key(key), keys.EntryKey | keys.SegmentKey)]
        assert {key: there[key] for key in entries} == {key: content[key] for key in entries}
        assert keys.COLLECTOR_KEY not in there
        assert check_namespace("x", FOLDER, level="full", store=place.store(), clock=ManualClock(START_MS)).is_clean
        place.close()
        if next(calls) <= point:
            assert point > 60, "the repair ended at many of its requests"
            return


def test_a_flipped_bit_is_no_entry_of_another_client(memory: Place) -> None:
    """Who believes the warning does again what is there: "it must be done again"."""
    ns = memory.open()
    ns.create_topic("orders", SCHEMA)
    for number in range(4):
        ns.produce("orders", rows(number))
    backup = f"memory://{unique_name()}"
    txnlog.backup(f"{memory.root}/sales", backup)
    store = PrefixStore(memory.store(), "sales")
    key = keys.entry_key(3)
    data = bytearray(store.get(key))
    place = data.index(b'"writer":"') + len(b'"writer":"')
    digit = next(i for i in range(place, place + 32) if chr(data[i]) in "1357")
    data[digit] ^= 1  # the least bit of one digit
    store.put(key, bytes(data))
    done = ns.repair(backup)
    said = [item.left for item in done.objects if item.severity == "warning"]
    assert not said
    assert sorted(ns.snapshot().read("orders").column("id").to_pylist()) == [0, 1, 2, 3]
