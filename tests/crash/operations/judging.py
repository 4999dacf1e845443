"""What must hold of an operation: behind each kill, and at its end. Each function works in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import deltalake

import txnlog
from tests.catalog import judging as of_tables
from tests.catalog.replaying import difference
from tests.client.backups import objects
from tests.crash.operations.looking import (
    Left,
    Shown,
    differences,
    fsck_problems,
    left_in,
    odd_amid,
    shown,
    temporary_in,
    with_erased,
)
from tests.crash.operations.operations import AGAIN, HOUR_MS, NAMESPACE, Operation, Site, damage, restore
from txnlog.api.namespace import Namespace
from txnlog.errors import CorruptionError, InvalidInputError, NamespaceNotFound
from txnlog.format import keys
from txnlog.format.codec import digest_of
from txnlog.store import Store, open_store
from txnlog.store.key_guard import TEMPORARY_PREFIX

PROOF = "proof"
"""The namespace that a backup is restored as."""


@dataclass(frozen=True)
class End:
    """What an operation came to.

    Attributes:
        shown: by the namespace, at its end.
        backup: all that lies in the folder of backups.
        tables: by name, what the versions of Delta tables show.
        left: behind the next vacuum.
        problems: what is wrong, whatever an undisturbed run does.
    """

    shown: Shown
    backup: dict[str, bytes] = field(repr=False)
    tables: dict[str, list[int]]
    left: Left
    problems: tuple[str, ...]


def look(operation: Operation, site: Site) -> Shown:
    """What there is before it."""
    with (site.whole if operation.makes == "repaired" else site).open(mode="r") as ns:
        return shown(ns)


# --- behind a kill ----------------------------------------------------------------------------------------------------


def amid(operation: Operation, site: Site, before: Shown, after: Shown) -> list[str]:
    """What is wrong behind a kill: whoever comes sees what there was, or what there will be, and nothing in part."""
    if operation.makes == "restored":
        return list(_restored_in_part(site, after))
    if operation.makes == "backup":
        return list(_broken_backups(site))
    if operation.makes == "repaired":
        return list(_repaired_in_part(site))
    with site.open(mode="r") as ns:
        found = list(odd_amid(shown(ns), before, after))
        if operation.makes == "tables":
            _tables(ns, complete=False)
        return found


def _restored_in_part(site: Site, after: Shown) -> Iterator[str]:
    """Nobody can open it before all of it is there. Amid its adoption nobody can, which an error says."""
    try:
        ns = site.open(AGAIN, mode="r")
    except (NamespaceNotFound, InvalidInputError):
        return
    with ns:
        seen = shown(ns)
    for version in range(seen.oldest, seen.newest + 1):
        if seen.topics[version] != after.topics[version]:
            yield f"version {version} of what is being restored can be opened, and shows something else"


def _broken_backups(site: Site) -> Iterator[str]:
    """What has a manifest is all there."""
    versions = sorted(v for v in map(keys.backup_version, (info.key for info in _backup_store(site).list(""))) if v)
    for version in versions:
        try:
            restore(site, PROOF, version=version, dry_run=True)
        except CorruptionError as error:
            yield f"the backup of version {version} is there, and cannot be restored: {error}"


def _repaired_in_part(site: Site) -> Iterator[str]:
    """Each entry and segment is as it was before the damage, or still as damaged."""
    damaged = damage(site)
    folder = Path(site.whole.root, NAMESPACE)
    for path in folder.rglob("*"):
        key = str(path.relative_to(folder))
        if not isinstance(keys.parse_key(key), keys.EntryKey | keys.SegmentKey):
            continue
        there = Path(site.root, NAMESPACE, key)
        data = there.read_bytes() if there.exists() else None
        whole = path.read_bytes()
        if data not in (whole, damaged.get(key, whole)):
            yield f"{key} is neither what it was nor what it was damaged to"


def _not_kept(site: Site) -> Iterator[str]:
    """What a repair replaced in the log lies next to it."""
    for key, data in damage(site).items():
        if data is not None and isinstance(keys.parse_key(key), keys.EntryKey):
            kept = Path(site.root, NAMESPACE, keys.replaced_key(key, digest_of(data)))
            if not kept.exists() or kept.read_bytes() != data:
                yield f"what was in the place of {key} is not kept"


# --- at the end -------------------------------------------------------------------------------------------------------


def end(operation: Operation, site: Site) -> End:
    """Look at everything; then let hours go by, vacuum, and look again."""
    problems: list[str] = []
    backup: dict[str, bytes] = {}
    if operation.makes == "backup":
        backup = objects(_backup_store(site))
        restore(site, PROOF)
    name = {"restored": AGAIN, "backup": PROOF}.get(operation.makes, NAMESPACE)
    tables: dict[str, list[int]] = {}
    with site.open(name, mode="r") as ns:
        seen = shown(ns)
        problems += fsck_problems(ns)
        if operation.makes in ("tables", "repaired"):
            tables = _tables(ns, complete=operation.makes == "tables")
            problems += _rows_of_tables(site, ns, tables)
    if operation.makes == "repaired":
        problems += _not_kept(site)
    later = site.later(3 * HOUR_MS)
    with later.open(name) as ns:
        ns.vacuum(retain_ms=0, grace_ms=HOUR_MS, allow_short_retention=True)
        after = shown(ns)
        if after.topics[after.newest] != seen.topics[seen.newest]:
            problems.append("a vacuum changes what is there")
        left = left_in(ns, Path(site.root_of(name)) / name)
        problems += left.strays
        problems += fsck_problems(ns, "quick")
        ns.produce("events", [{"value": 7}])
        if ns.snapshot().read("events").num_rows != len(after.topics[after.newest]["events"][0]) + 1:
            problems.append("what is produced behind it is not there")
    if operation.makes == "backup":
        problems += _next_backup(site, backup)
    if operation.erases:
        problems += with_erased(Path(site.root))
    return End(seen, backup, tables, left, tuple(problems))


def _next_backup(site: Site, backup: dict[str, bytes]) -> Iterator[str]:
    """Hours later a backup finds everything there, and leaves nothing that is not finished."""
    hours_ago_s = site.start_ms / 1e3 - 3 * 3_600
    for path in Path(site.backups).rglob(f"{TEMPORARY_PREFIX}*"):
        os.utime(path, (hours_ago_s, hours_ago_s))
    txnlog.backup(f"{site.root}/{NAMESPACE}", site.backups)
    if objects(_backup_store(site)) != backup:
        yield "the next backup has something to do"
    yield from temporary_in(Path(site.backups))


def compared(found: End, wanted: End, before: Shown) -> Iterator[str]:
    """What is otherwise than at the end of an undisturbed run."""
    yield from differences(found.shown, wanted.shown, before.newest)
    for key in sorted(found.backup.keys() | wanted.backup.keys()):
        if found.backup.get(key) != wanted.backup.get(key):
            yield f"{key} is another one in the folder of backups, or in one of the two alone"
    if found.tables != wanted.tables:
        yield f"the Delta tables show {found.tables}, and not {wanted.tables}"


def _backup_store(site: Site) -> Store:
    return open_store(site.backups)


def _tables(ns: Namespace, *, complete: bool) -> dict[str, list[int]]:
    """What the versions of all tables show. Raises AssertionError where one is not what it must be."""
    found = {topic: of_tables.check_table(ns, topic, complete=complete) for topic in ns.snapshot().topics()}
    found[keys.SEGMENTS_TABLE] = of_tables.check_segments_table(ns, complete=complete)
    return found


def _rows_of_tables(site: Site, ns: Namespace, tables: dict[str, list[int]]) -> Iterator[str]:
    """The rows that deltalake reads of each version are those of the topic."""
    for topic, versions in tables.items():
        for version, shows in enumerate(versions if topic != keys.SEGMENTS_TABLE else ()):
            found = deltalake.DeltaTable(f"{site.root}/{NAMESPACE}/{topic}", version=version).to_pyarrow_table()
            wanted = ns.snapshot(version=shows).read(topic)
            odd = difference(found.drop_columns([keys.SEGMENT_COLUMN]), wanted, wanted.column_names)
            if odd is not None:
                yield f"version {version} of the Delta table of {topic}: {odd}"


__all__ = ["End", "amid", "compared", "end", "look"]
