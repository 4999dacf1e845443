"""What is no backup, or no place for one, is refused before anything is changed; damage never passes for data."""

from __future__ import annotations

from typing import Any

import pytest

import catalog as txn_catalog
import txnlog
from tests.client.backups import (
    all_shown,
    back_up,
    damaged,
    folder,
    objects,
    of_namespace,
    restore,
    with_everything,
)
from tests.client.copies import copy, remove, with_orders
from tests.client.support import Place, raises, read, rows, unique_name
from tests.faults import failing
from txnlog.errors import (
    AccessDenied,
    CorruptionError,
    Durable,
    InvalidInputError,
    NameNotAllowed,
    NamespaceNotFound,
    StoreError,
    UnsupportedFeature,
)
from txnlog.format import keys
from txnlog.format.backup_manifest import BACKUP_FORMAT, decode_backup_manifest, encode_backup
from txnlog.format.codec import digest_of
from txnlog.store import MemoryStore, Store, StoreCall


def refused_backup(place: Place, to: Store, match: str, name: str = "sales", **options: Any) -> None:
    """Backing up is refused, and the folder is as it was."""
    before = objects(to)
    with raises(InvalidInputError, match=match):
        back_up(place, to, name, **options)
    assert objects(to) == before


def refused_restore(place: Place, backup: Store, kind: Any, match: str, name: str = "copy", **options: Any) -> None:
    """Restoring is refused, and the root is as it was."""
    before = objects(place.store())
    for dry_run in (True, False):
        with raises(kind, match=match):
            restore(place, backup, name, dry_run=dry_run, **options)
    assert objects(place.store()) == before


# --- backing up -------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_no_folder_for_backups(memory: Place) -> None:
    with_everything(memory)
    strangers = folder()
    strangers.put("report.csv", b"a,b")
    refused_backup(memory, strangers, r"has files \(report.csv\), and no backup")
    other = memory.open("other")
    refused_backup(memory, memory.store(), "and no backup")
    live = MemoryStore(unique_name())
    for key, data in of_namespace(memory, "other").items():
        live.put(key, data)
    refused_backup(memory, live, "and no backup")
    assert other.topics() == ()


def test_each_namespace_has_a_folder_of_its_own(memory: Place) -> None:
    with_everything(memory)
    with_orders(memory, "audit")
    backups = folder()
    back_up(memory, backups, "audit")
    refused_backup(memory, backups, "has backups of another namespace, 'audit'")
    interrupted = folder()
    interrupted.put(keys.BACKUP_LOG_KEY, backups.get(keys.BACKUP_LOG_KEY))
    refused_backup(memory, interrupted, "has backups of another namespace, 'audit'")
    made_again = Place("memory", f"memory://{unique_name()}")
    with_orders(made_again, "audit")
    refused_backup(made_again, backups, "of another namespace, also called 'audit'", "audit")


def test_a_log_that_was_put_back_or_went_another_way_is_no_later_state_of_the_backup(memory: Place) -> None:
    ns = with_orders(memory)
    older = Place("memory", f"memory://{unique_name()}")
    copy(memory, "sales", older)
    copy(memory, "_catalog", older)
    ns.produce("orders", rows(1))
    backups = folder()
    made = back_up(memory, backups)
    refused_backup(older, backups, rf"it has entry {made.version}, and the log ends at version")
    again = older.open()
    for number in (2, 3, 4):
        again.produce("orders", rows(number))
    refused_backup(older, backups, f"entry {made.version} of the log is another one")
    backups.delete(keys.backup_key(made.version))  # as a backup that was interrupted
    refused_backup(older, backups, f"entry {made.version} of the log is another one")
    assert back_up(memory, backups).copied_files == 0
    with txnlog.open(memory.root, namespace="sales", mode="r") as reader:
        assert read(reader) == [0, 1]


@pytest.mark.parametrize("below", ["", "/backups", "/_log/backups"])
def test_the_folder_of_the_namespace_is_no_place_for_its_backups(local: Place, below: str) -> None:
    ns = local.orders(1)
    with raises(InvalidInputError, match="is in the folder of the namespace"):
        txnlog.backup(f"{local.root}/sales", f"{local.root}/sales{below}")
    assert read(ns) == [1]


def test_a_namespace_that_is_not_there_is_not_backed_up(memory: Place) -> None:
    with raises(NamespaceNotFound):
        back_up(memory, to := folder())
    assert objects(to) == {}
    for source, destination in ((5, "x"), ("memory://a/b", None), ("memory://a/b", "")):
        with raises(InvalidInputError):
            txnlog.backup(source, destination)  # type: ignore[arg-type]
    for option in ({"verify": 1}, {"progress": 5}, {"storage_options": 5}, {"destination_storage_options": 5}):
        with raises(InvalidInputError):
            txnlog.backup("memory://a/b", "memory://c", **option)  # type: ignore[arg-type]


def test_a_store_that_fails_says_how_the_backup_goes_on(memory: Place) -> None:
    with_everything(memory)
    broken = failing(lambda: StoreError("disk full", durable=Durable.NOTHING), StoreCall.PUT)(backups := folder())
    with raises(StoreError, match="disk full", durable=Durable.MAYBE) as caught:
        back_up(memory, broken)
    assert "call txnlog.backup(...) again, which goes on where this one ended" in caught.value.advice
    back_up(memory, backups)
    denied = failing(lambda: AccessDenied("no", durable=Durable.NOTHING), StoreCall.LIST)(folder())
    with raises(AccessDenied):
        back_up(memory, denied)


def test_a_manifest_that_is_damaged_stands_for_no_backup(memory: Place, caplog: pytest.LogCaptureFixture) -> None:
    ns, _ = with_everything(memory)
    backups = folder()
    first = back_up(memory, backups)
    whole = objects(backups)
    damaged(backups, keys.backup_key(first.version), "flipped")
    refused_restore(memory, backups, CorruptionError, "is damaged")
    assert back_up(memory, backups).copied_files == 0
    assert "cannot be used" in caplog.text
    assert objects(backups) == whole
    damaged(backups, keys.BACKUP_LOG_KEY, "flipped")
    with raises(CorruptionError, match="log.json is damaged"):
        back_up(memory, backups)
    assert read(ns, "audit") != []


def test_a_backup_of_a_later_format_is_refused(memory: Place) -> None:
    with_everything(memory)
    backups = folder()
    made = back_up(memory, backups)
    key = keys.backup_key(made.version)
    manifest = decode_backup_manifest(backups.get(key), key)
    later = encode_backup(manifest).replace(b'"format":%d' % BACKUP_FORMAT, b'"format":%d' % (BACKUP_FORMAT + 1))
    inner = later[later.index(b'"backup":') + 9 : -2]
    backups.put(key, b'{"digest":"%s","backup":%s}\n' % (digest_of(inner).encode(), inner))
    refused_restore(memory, backups, UnsupportedFeature, "has the format '2'")


# --- restoring --------------------------------------------------------------------------------------------------------


def test_nothing_is_restored_where_something_is(memory: Place) -> None:
    ns, _ = with_everything(memory)
    backups = folder()
    back_up(memory, backups)
    refused_restore(memory, backups, InvalidInputError, "where a namespace is", "sales")
    memory.store().put("copy/report.csv", b"a,b")
    refused_restore(memory, backups, InvalidInputError, r"which has files \(report.csv\)", "copy")
    refused_restore(
        memory, backups, NameNotAllowed, "differs from the namespace 'sales' of the root only in case", "Sales"
    )
    refused_restore(memory, backups, NameNotAllowed, "", "_catalog")
    with_orders(memory, "audit").close()
    remove(memory, "audit")
    refused_restore(memory, backups, InvalidInputError, "the root lists another namespace 'audit'.*is empty", "audit")
    with txn_catalog.open(memory.root) as cat:
        cat.drop_namespace("audit")
    restore(memory, backups, "audit")
    refused_restore(memory, backups, InvalidInputError, "where a namespace is", "audit")
    memory.open("audit").produce("orders", rows(9))
    refused_restore(memory, backups, InvalidInputError, "where a namespace is", "audit")
    assert read(ns) != read(memory.open("audit"))


def test_a_folder_without_a_manifest_is_no_backup(memory: Place) -> None:
    with_everything(memory)
    refused_restore(memory, folder(), InvalidInputError, "has no backup: there is no manifest")
    backups = folder()
    made = back_up(memory, backups)
    refused_restore(memory, backups, InvalidInputError, "has no backup of version 1", version=1)
    backups.delete(keys.backup_key(made.version))
    refused_restore(memory, backups, InvalidInputError, "where a backup was interrupted, run it again")
    for option in ({"dry_run": 1}, {"progress": 5}, {"version": "1"}, {"clock": 5}, {"storage_options": 5}):
        with raises(InvalidInputError):
            txnlog.restore("memory://c", "memory://a/b", **option)


def all_kinds(backups: Store) -> list[str]:
    """A key of each kind, and of entries the first, one in between, and the last."""
    found = sorted(objects(backups))
    entries = [key for key in found if isinstance(keys.parse_key(key), keys.EntryKey)]
    kinds = (keys.SegmentKey, keys.PartKey, keys.ManifestKey)
    return [entries[0], entries[4], entries[-1]] + [
        next(key for key in found if isinstance(keys.parse_key(key), kind)) for kind in kinds
    ]


@pytest.mark.parametrize("place_in_list", range(6))
def test_a_damaged_backup_makes_no_namespace(memory: Place, place_in_list: int) -> None:
    with_everything(memory)
    backups = folder()
    made = back_up(memory, backups)
    key = all_kinds(backups)[place_in_list]
    whole = backups.get(key)
    for damage in ("missing", "short"):
        damaged(backups, key, damage)
        refused_restore(memory, backups, CorruptionError, "the backup at .* is damaged")
        backups.put(key, whole)
    damaged(backups, key, "flipped")
    with raises(CorruptionError, match="the backup at .* is damaged"):
        restore(memory, backups, "copy", dry_run=True)
    assert of_namespace(memory, "copy") == {}
    with raises(CorruptionError, match="the backup at .* is damaged", durable=Durable.MAYBE):
        restore(memory, backups, "copy")
    assert not of_namespace(memory, "copy").keys() & {keys.entry_key(0)}
    with raises(NamespaceNotFound):
        memory.open("copy", create=False)
    with raises(InvalidInputError, match="a backup is being restored to"):
        memory.open("copy", create=True)
    with txn_catalog.open(memory.root) as cat:
        assert cat.namespaces() == ("sales",)
    backups.put(key, whole)  # from another copy of the backup
    restore(memory, backups, "copy")
    assert all_shown(memory, made.version, "copy") == all_shown(memory, made.version)


def test_a_dry_run_reads_all_and_writes_nothing(memory: Place) -> None:
    with_everything(memory)
    backups = folder()
    made = back_up(memory, backups)
    other = Place("memory", f"memory://{unique_name()}")
    found = restore(other, backups, dry_run=True)
    assert (found.coordinator, found.dry_run, found.size_bytes) == (None, True, made.size_bytes)
    assert objects(other.store()) == {}


def test_the_restore_of_another_backup_is_not_mixed_with_one_that_was_interrupted(memory: Place) -> None:
    ns, _ = with_everything(memory)
    backups = folder()
    first = back_up(memory, backups)
    ns.produce("audit", rows(7))
    back_up(memory, backups)
    broken = failing(lambda: StoreError("gone"), StoreCall.PUT, where=lambda key: key.startswith("copy/orders"))
    with raises(StoreError, durable=Durable.MAYBE):
        restore(memory, backups, "copy", store=broken(memory.store()), version=first.version)
    refused_restore(memory, backups, InvalidInputError, "another backup was interrupted: of version")
    assert restore(memory, backups, "copy", version=first.version).version == first.version
