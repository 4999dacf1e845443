"""Who backs the namespace up, restores it next to the original, and goes on in what was restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txnlog.api.opening import open_namespace
from txnlog.client.connection import Connection
from txnlog.common.names import parse_namespace_name
from txnlog.errors import CorruptionError, Durable, InvalidInputError, StoreError, VersionNotAvailable
from txnlog.maintenance import backup, restore
from txnlog.maintenance.backup_folder import BackupFolder
from txnlog.store.wrappers import PrefixStore
from txnlog.testing import restored
from txnlog.testing.actors.ending import table_of
from txnlog.testing.client import Client, Rows, live, rows_of
from txnlog.testing.world import BACKUPS, ROOT, SCHEMA, TOPICS

if TYPE_CHECKING:
    from txnlog.api.namespace import Namespace
    from txnlog.results import BackedUp

_OLDER = 10
"""By how many versions an older one is older at most."""


def copier(client: Client) -> None:
    """Makes backups, restores some of them, and goes on with restores that somebody began and did not end."""
    world = client.world

    def step() -> None:
        client.sleep(client.chance.random() * 300)
        for name in world.restoring:
            restored.check_visible(world.shared_store, name, world.restoring[name])
        if world.restoring and client.hits(0.7):
            name = client.chance.choice(sorted(world.restoring))
            client.scheduler.label("a restore was repeated")
        elif world.backups and client.hits(0.4):
            name = new_name(client, client.chance.choice(sorted(world.backups)))
        else:
            back_up(client)
            return
        bring_back(client, name)
        if client.hits(0.5):
            go_on(client, name, world.restored[name])

    live(client, step, lambda: None)


def folder_of(client: Client) -> BackupFolder:
    """The folder of the backups, as a client sees it."""
    return BackupFolder(PrefixStore(client.store, BACKUPS), client.runtime)


def back_up(client: Client, *, newest: bool = False) -> None:
    """Back the newest version up, or an older one."""
    ns = client.open(mode="r")
    known = ns._connection.follower.version
    version = client.chance.randint(max(0, known - _OLDER), known) if not newest and client.hits(0.2) else None
    verify = client.hits(0.2)

    def make() -> BackedUp:
        return backup.backup(ns._connection, folder_of(client), version, verify=verify, progress=None)

    try:
        done = client.call("backup", make, lambda done: {"version": done.version}, version=version)
    except VersionNotAvailable:
        raise
    except InvalidInputError as error:
        _excuse(client, error)
        raise
    client.scheduler.label("a backup was made")
    if client.world.backups:
        client.scheduler.label("a backup was continued")
    if done.copied_files == 0:
        client.scheduler.label("a backup had nothing to copy")
    client.world.backups.add(done.version)


def new_name(client: Client, version: int) -> str:
    """A namespace that nobody restored yet, for a backup."""
    world = client.world
    world.next_restored += 1
    name = f"restored{world.next_restored}"
    world.restoring[name] = version
    return name


def bring_back(client: Client, name: str, *, newest: bool = False) -> None:
    """Restore a namespace, or go on with that.

    ``newest``: do not say which version, it is the newest one.
    """
    world = client.world
    version = world.restoring[name]

    def make() -> tuple[int, int | None]:
        target = restore.Target(
            client.store,
            parse_namespace_name(name),
            lambda: Connection(ROOT, name, store=client.store, runtime=client.runtime),
        )
        wanted = None if newest else version
        try:
            done = restore.restore(folder_of(client), target, client.runtime, wanted, dry_run=False, progress=None)
        except InvalidInputError:
            coordinator = restored.adopted_as(world.shared_store, name, version)
            if coordinator is None:
                raise
            client.scheduler.label("a restore was refused, since it had ended")
            return version, coordinator
        return done.version, done.coordinator

    try:
        done, _ = client.call(
            "restore",
            make,
            lambda found: {"version": found[0], "coordinator": found[1]},
            name=name,
            version=version,
        )
    except InvalidInputError as error:
        _excuse(client, error)
        raise
    except CorruptionError as error:
        if not world.shared_store.listed_wrong:
            raise
        raise StoreError("a listing lacked something of the backup", durable=Durable.MAYBE) from error
    if name in world.restoring:
        client.scheduler.label("a namespace was restored")
        if done < max(world.backups):
            client.scheduler.label("an earlier backup was restored")
        world.restored[name] = world.restoring.pop(name)


def go_on(client: Client, name: str, version: int) -> Namespace:
    """Open what was restored, write to it, and read what there was at the version of its backup."""

    def use() -> tuple[Namespace, str, Rows]:
        ns = open_namespace(ROOT, name, store=client.store, runtime=client.runtime)
        there = [topic for topic in TOPICS if topic in ns.snapshot().topics()]
        if not there:  # it is older than the first topic
            there = list(TOPICS)[:1]
            ns.create_topic(there[0], schema=SCHEMA, if_not_exists=True)
        txn = ns.begin()
        txn.produce(client.chance.choice(there), table_of(client.world.values(2)), 0)
        txn.commit()
        return ns, str(txn.id), rows_of(ns, ns.snapshot(version))

    try:
        ns, _, _ = client.call(
            "read_restored",
            use,
            lambda found: {"txn": found[1], "rows": found[2]},
            name=name,
            version=version,
        )
    except InvalidInputError as error:
        raise AssertionError(f"what was restored cannot be used: {error}") from error
    client.scheduler.label("somebody went on in what was restored")
    return ns


def _excuse(client: Client, error: InvalidInputError) -> None:
    """A refusal for good is right where the store damaged something, or listed it wrong, and nowhere else."""
    if not (client.world.shared_store.was_damaged or client.world.shared_store.listed_wrong):
        raise AssertionError(f"refused for no reason: {error}") from error


__all__ = ["back_up", "bring_back", "copier", "folder_of", "go_on", "new_name"]
