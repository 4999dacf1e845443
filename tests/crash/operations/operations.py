"""The operations that are killed: what each needs to be there, what it calls, and what it leaves that is compared.

One more is a function that makes its calls, and a line in :data:`OPERATIONS`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

import catalog as txn_catalog
import txnlog
from tests.crash.operations.deaths import Deaths
from txnlog.api.checking import repair_namespace
from txnlog.api.namespace import Namespace
from txnlog.errors import InvalidInputError
from txnlog.format import keys
from txnlog.store import open_store
from txnlog.testing import ManualClock

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS

NAMESPACE: Final = "sales"
AGAIN: Final = "again"
"""The namespace that is restored, in another root: in its own one nobody could open it before it is adopted."""

ERASED: Final = "secret-7"
"""The customer whose rows are erased."""

_ORDERS: Final = pa.schema([("id", pa.int64()), ("customer", pa.string())])
_PRICES: Final = pa.schema([("name", pa.string()), ("price", pa.int64())])
_EVENTS: Final = pa.schema([("value", pa.int64())])

_ROUNDS: Final = 12


class Ticking:
    """A clock that begins at a time, and goes on as all clocks do."""

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms
        self._began = time.monotonic()

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self._start_ms + int(1e3 * (time.monotonic() - self._began))


@dataclass(frozen=True)
class Site:
    """Where an operation works: the same folder each time, so that the store is the same one to whoever tested it.

    Attributes:
        folder: with the root, and the folder of backups.
        start_ms: the time at which the operation is called.
    """

    folder: Path
    start_ms: int

    @property
    def root(self) -> str:
        """The root of the namespace."""
        return str(self.folder / "lake")

    def root_of(self, name: str) -> str:
        """The root of any namespace."""
        return str(self.folder / "elsewhere") if name == AGAIN else self.root

    @property
    def backups(self) -> str:
        """The folder of backups."""
        return str(self.folder / "backups")

    @property
    def clock(self) -> Ticking:
        """The time of the operation."""
        return Ticking(self.start_ms)

    @property
    def whole(self) -> Site:
        """What a repair has to come to."""
        return Site(self.folder / "whole", self.start_ms)

    def later(self, milliseconds: int) -> Site:
        """The same, so much later."""
        return Site(self.folder, self.start_ms + milliseconds)

    def open(self, name: str = NAMESPACE, **options: Any) -> Namespace:
        """A handle on a namespace."""
        return txnlog.open(self.root_of(name), name, clock=self.clock, **options)

    def watched(self, deaths: Deaths) -> Namespace:
        """A handle whose calls of the store are counted."""
        return self.open(store=deaths.over(open_store(self.root)))

    def begin(self, kept: Path) -> None:
        """Put there what was prepared: links, since no file is ever changed in its place."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(kept, self.folder, copy_function=_link)


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        name: what it is called.
        call: makes its calls, in a process that is killed.
        prepare: what it needs besides what :func:`prepare` makes.
        makes: what it changes, which decides what is looked at besides: the ``namespace`` alone, ``tables`` of Delta,
            a ``backup``, another namespace that is ``restored`` from one, or what is ``repaired``.
        erases: values of :data:`ERASED` are not to be found any more.
    """

    name: str
    call: Callable[[Site, Deaths], object]
    prepare: Callable[[Site], object] = lambda _site: None
    makes: Literal["namespace", "tables", "backup", "restored", "repaired"] = "namespace"
    erases: bool = False


# --- what is there ----------------------------------------------------------------------------------------------------


def prepare(site: Site) -> None:
    """A small namespace with some of everything: replaced, aborted, prepared, dropped, acknowledged, a checkpoint.

    All of it is hours old, but for the newest events.
    """
    clock = ManualClock(site.start_ms - 5 * HOUR_MS)
    with txnlog.open(site.root, NAMESPACE, create=True, clock=clock) as ns:
        ns.enable("holes")
        ns.create_topic("orders", _ORDERS, partitions=2, key="id", statistics="off", merge="manual")
        ns.create_topic("prices", _PRICES, key="name", cleanup_policy="compact", merge="manual")
        ns.create_topic("events", _EVENTS, retention_ms=2 * HOUR_MS, merge="manual")
        ns.create_topic("old", _EVENTS)
        ns.produce("old", [{"value": 1}])
        with txn_catalog.open(site.root, clock=clock) as cat:
            cat.publish(NAMESPACE, "old")
        consumer = ns.consumer("orders", "billing")
        for number in range(_ROUNDS):
            clock.advance(MINUTE_MS)
            _produce(ns, number)
            if number == 1:
                consumer.acknowledge(consumer.receive(3, timeout_ms=10_000))
                ns.optimize("orders")
                ns.checkpoint()
        consumer.close()
        ns.drop_topic("old")
        with ns.begin() as txn:
            txn.produce("orders", _orders(90))
            txn.flush()
            txn.abort()
        txn = ns.begin()
        txn.produce("orders", _orders(91)[:1])
        txn.prepare()
        clock.advance(5 * HOUR_MS - (_ROUNDS + 10) * MINUTE_MS)
        ns.produce("events", [{"value": 1_000}])


def _produce(ns: Namespace, number: int) -> None:
    with ns.begin() as txn:
        txn.produce("orders", _orders(number))
        txn.produce("prices", [{"name": name, "price": number} for name in ("a", f"b{number % 2}", f"c{number}")])
        txn.produce("events", [{"value": 10 * number + item} for item in range(2)])


def _orders(number: int) -> list[dict[str, Any]]:
    return [{"id": 10 * number + item, "customer": ERASED if item == 2 else f"other-{item}"} for item in range(4)]


def _with_backup(site: Site) -> None:
    txnlog.backup(f"{site.root}/{NAMESPACE}", site.backups)


def _with_backup_and_root(site: Site) -> None:
    """A backup, and a root that had a namespace before: its store was tested then."""
    _with_backup(site)
    txnlog.open(site.root_of(AGAIN), "other", create=True, clock=site.clock).close()


def _with_older_backup(site: Site) -> None:
    """A backup, and then more of everything."""
    _with_backup(site)
    with site.open() as ns:
        _produce(ns, 50)
        ns.optimize("orders")
        ns.checkpoint()
        _produce(ns, 51)


def _with_older_tables(site: Site) -> None:
    """Delta tables, and then more of everything."""
    with txn_catalog.open(site.root, clock=site.clock) as cat:
        cat.publish(NAMESPACE)
    with site.open() as ns:
        _produce(ns, 50)
        ns.optimize("orders")
        _produce(ns, 51)


def _with_damage(site: Site) -> None:
    """A backup of everything, and then damage to each kind of object that a repair puts back or makes again."""
    _with_older_tables(site)
    _with_backup(site)
    shutil.copytree(site.root, site.whole.root)
    for key, data in damage(site).items():
        path = Path(site.root, NAMESPACE, key)
        path.unlink()  # a new file: what lies there is linked to what is whole
        if data is not None:
            path.write_bytes(data)


def damage(site: Site) -> dict[str, bytes | None]:
    """By key what is damaged, and the bytes that are there instead; None: none are."""
    folder = Path(site.whole.root, NAMESPACE)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def of(kind: type) -> list[str]:
        return sorted(key for key in found if isinstance(keys.parse_key(key), kind))

    entries, tables = of(keys.EntryKey), of(keys.DeltaKey)
    segments = [key for key in of(keys.SegmentKey) if key.startswith("orders/")]
    part = of(keys.PartKey)[-1]
    table = next(key for key in reversed(tables) if key.startswith("prices/") and key.endswith(".json"))
    return {
        entries[3]: None,
        entries[6]: found[entries[6]][:-20],
        segments[-1]: None,
        segments[0]: bytes([found[segments[0]][0] ^ 1]) + found[segments[0]][1:],
        part: found[part][:-10],
        table: found[table][:-5],
    }


# --- what is called ---------------------------------------------------------------------------------------------------


def _of_namespace(call: Callable[[Namespace], object]) -> Callable[[Site, Deaths], None]:
    def work(site: Site, deaths: Deaths) -> None:
        with site.watched(deaths) as ns:
            call(ns)

    return work


def _maintain(ns: Namespace) -> None:
    done = ns.maintain(retain_ms=HOUR_MS, grace_ms=HOUR_MS)
    assert not done.failures, done.failures


def _delete(ns: Namespace) -> None:
    ns.delete_records("orders", {0: 4, 1: 3}, allow_unacknowledged=True)


def _erase(ns: Namespace) -> None:
    ns.erase("orders", pc.field("customer") == ERASED)


def _publish(site: Site, deaths: Deaths) -> None:
    with txn_catalog.open(site.root, clock=site.clock, store=deaths.over(open_store(site.root))) as cat:
        cat.publish(NAMESPACE)


def _back_up(site: Site, deaths: Deaths) -> None:
    txnlog.backup(
        f"{site.root}/{NAMESPACE}",
        site.backups,
        store=deaths.over(open_store(site.root)),
        destination_store=deaths.over(open_store(site.backups)),
    )


def restore(site: Site, name: str, deaths: Deaths | None = None, **options: Any) -> Any:
    """Restore the backup as a namespace of this name."""
    over: Mapping[str, Any] = {}
    if deaths is not None:
        over = {
            "store": deaths.over(open_store(site.backups)),
            "destination_store": deaths.over(open_store(site.root_of(name))),
        }
    return txnlog.restore(site.backups, f"{site.root_of(name)}/{name}", clock=site.clock, **over, **options)


def _restore(site: Site, deaths: Deaths) -> None:
    try:
        restore(site, AGAIN, deaths)
    except InvalidInputError as error:
        # Killed behind its last step, before it could say so: to the next call it is a namespace as any other.
        marked = (Path(site.root_of(AGAIN)) / AGAIN / keys.RESTORE_KEY).exists()
        if marked or "where a namespace is" not in error.message:
            raise


def _repair(site: Site, deaths: Deaths) -> None:
    store = deaths.over(open_store(site.root))
    done = repair_namespace(site.root, NAMESPACE, source=site.backups, store=store, clock=site.clock)
    assert done.is_clean, done


OPERATIONS: Final[Mapping[str, Operation]] = {
    operation.name: operation
    for operation in (
        Operation("retention", _of_namespace(_maintain)),
        Operation("delete_records", _of_namespace(_delete)),
        Operation("compact", _of_namespace(lambda ns: ns.compact("prices"))),
        Operation("erase", _of_namespace(_erase), erases=True),
        Operation("optimize", _of_namespace(lambda ns: ns.optimize("orders"))),
        Operation("vacuum", _of_namespace(lambda ns: ns.vacuum(retain_ms=HOUR_MS, grace_ms=HOUR_MS))),
        Operation("checkpoint", _of_namespace(lambda ns: ns.checkpoint())),
        Operation("publish", _publish, _with_older_tables, makes="tables"),
        Operation("backup", _back_up, makes="backup"),
        Operation("next backup", _back_up, _with_older_backup, makes="backup"),
        Operation("repair", _repair, _with_damage, makes="repaired"),
        Operation("restore", _restore, _with_backup_and_root, makes="restored"),
    )
}

__all__ = [
    "AGAIN",
    "ERASED",
    "HOUR_MS",
    "MINUTE_MS",
    "NAMESPACE",
    "OPERATIONS",
    "Operation",
    "Site",
    "damage",
    "prepare",
    "restore",
]
