"""Golden roots about transactions, who ends them, checkpoints, and logs that were adopted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from txnlog.api.namespace import Namespace
from txnlog.client.connection import Connection
from txnlog.common.names import parse_namespace_name
from txnlog.format.actions import (
    Abort,
    Acknowledge,
    Acknowledgement,
    Begin,
    Close,
    Commit,
    Consumer,
    DeleteRecords,
    DropSubscription,
    ForgetApp,
    Lease,
    PartitionRanges,
    Prepare,
    Producer,
    Release,
    Renew,
    Seek,
    SliceRows,
    StreamBatch,
    Verdict,
)
from txnlog.format.keys import CATALOG_FOLDER, entry_key
from txnlog.log.root_log import Root
from txnlog.testing.conformance.roots_of_entries import line
from txnlog.testing.conformance.workshop import SCHEMA, Workshop, table_of


def transactions(shop: Workshop) -> str:
    """Transactions that are open, prepared, committed out of order, aborted, and over several topics."""
    with shop.open() as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        ns.create_topic("audit", SCHEMA)
        versions = [shop.produce(ns, "orders", 1, 1)]
        early, late, lost, decided, undecided, refused = (ns.begin() for _ in range(6))
        for txn, count in ((early, 2), (late, 1), (lost, 2), (decided, 1), (undecided, 1), (refused, 1)):
            txn.produce("orders", shop.rows(count), 0)
            txn.produce("orders", shop.rows(1), 1)
            txn.flush()
            versions.append(ns.snapshot().version)
        early.produce("orders", shop.rows(2), 1)
        early.flush()
        early.produce("audit", shop.rows(2))
        late.produce("audit", shop.rows(1))
        tokens = [txn.prepare() for txn in (decided, undecided, refused)]
        versions.append(late.commit().version)
        lost.abort()
        versions.append(ns.snapshot().version)
        versions.append(shop.produce(ns, "orders", 1, 0))
        versions.append(early.commit().version)
        shop.tick()
        ns.complete(tokens[0], commit=True)
        ns.complete(tokens[2], commit=False)
        versions.append(ns.snapshot().version)
        never = ns._connection.reserve_block(1)[0]
        versions.append(shop.append(ns, Abort(never, "admin", by="ada", why="it never came")))
        versions.append(_pending_and_shared(shop, ns))
    shop.ask("orders", "audit", versions=(*versions, "latest"))
    return transactions.__doc__ or ""


def _pending_and_shared(shop: Workshop, ns: Namespace) -> int:
    """An entry in which a transaction with pending rows claims shares of another partition, before a plain one."""
    txn, own, shared, plain = ns._connection.reserve_block(4)[:4]
    shop.append(ns, Begin(txn), shop.lay(ns, "orders", own, table_of(shop.rows(2)), {0: 2}, txn))
    segment, commits = shop.shared(ns, "orders", shared, [(txn, 1, 2), (plain, 0, 1), (plain, 1, 1)])
    return shop.append(ns, segment, *commits)


def fences(shop: Workshop) -> str:
    """Transactions that a producer's restart, a consumer that opens, and a timeout abort; prepared ones stay."""
    with shop.open() as ns:
        ns.create_topic("orders", SCHEMA, partitions=2)
        source = ns.create_topic("source", SCHEMA).id
        shop.produce(ns, "source", 8)
        ns.create_subscription("source", "billing")
        ns.create_subscription("source", "fraud", type="shared", lease_ms=5_000)
        versions = [ns.snapshot().version]
        numbers = iter(ns._connection.reserve_block(64))
        loader = shop.append(ns, Producer("loader"))
        lost, kept = _sequenced(shop, ns, numbers, loader, 100), _sequenced(shop, ns, numbers, loader, 102)
        versions.append(shop.append(ns, Prepare(kept, "")))
        versions.append(shop.append(ns, Producer("loader")))
        billing = ns._connection.topic_record("source").id + 2
        holders = [_claiming(shop, ns, numbers, billing, billing, place) for place in (0, 1)]
        versions.append(shop.append(ns, Prepare(holders[1], "held")))
        versions.append(shop.append(ns, Consumer(billing, "billing-2")))
        versions.append(shop.append(ns, Commit(holders[1])))
        epoch = versions[-2]
        empty = next(numbers)
        file = shop.lay(ns, "orders", next(numbers), table_of(shop.rows(1)), {1: 1}, empty)
        shop.append(ns, Begin(empty), file, Acknowledge(empty, Acknowledgement(billing, epoch)))
        versions.append(shop.append(ns, Consumer(billing, "billing-3", stream="carriers")))
        versions.append(shop.append(ns, Commit(empty)))
        overdue = _sequenced(shop, ns, numbers, None, None)
        versions.append(shop.append(ns, Abort(overdue, "timeout")))
        versions.append(shop.append(ns, Commit(kept)))
        versions.append(shop.append(ns, Producer("loader", fenced_by="ada")))
        versions += _leases(shop, ns, billing + 1)
        assert source < billing, "the subscriptions were created one behind the other"
        assert ns._connection.follower.outcome(lost) is not None, "the restart of its producer ended it"
    shop.ask("orders", versions=versions)
    shop.ask("source")
    return fences.__doc__ or ""


def _sequenced(shop: Workshop, ns: Namespace, numbers: Iterator[int], epoch: int | None, sequence: int | None) -> int:
    """An open transaction with two rows in partition 0; its number."""
    txn, number = next(numbers), next(numbers)
    segment = shop.lay(ns, "orders", number, table_of(shop.rows(2)), {0: 2}, txn, slices=(SliceRows(0, 2, sequence),))
    shop.append(ns, Begin(txn, 60_000, None if epoch is None else "loader", epoch), segment)
    return txn


def _claiming(shop: Workshop, ns: Namespace, numbers: Iterator[int], subscription: int, epoch: int, place: int) -> int:
    """An open transaction with a row that claims a message; its number."""
    txn, number = next(numbers), next(numbers)
    segment = shop.lay(ns, "orders", number, table_of(shop.rows(1)), {1: 1}, txn)
    claimed = Acknowledgement(subscription, epoch, (PartitionRanges(0, ((place, place + 1),)),))
    shop.append(ns, Begin(txn), segment, Acknowledge(txn, claimed))
    return txn


def _leases(shop: Workshop, ns: Namespace, shared: int) -> list[int]:
    """The actions that change no row: whoever stumbles over one of them reads nothing."""
    block = ns._connection.reserve_block(8)
    leased = (PartitionRanges(0, ((0, 3), (5, 6))),)
    stream = StreamBatch("carriers", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", 41, "3fdba35f")
    acknowledged = Acknowledgement(shared, shared, (PartitionRanges(0, ((1, 2),)),))
    versions = [shop.append(ns, Lease(shared, "a/5d41402a", leased), Release(shared, "a/5d41402a", leased, True))]
    shop.append(ns, Consumer(shared, "a"), Renew(block[0]), Verdict("local", "9f86d081884c7d65", 8))
    shop.append(ns, Commit(block[0], acknowledgements=(acknowledged,), app_id="nightly", app_version=-3, stream=stream))
    shop.append(ns, ForgetApp("nightly"), Seek(shared, ((0, 0),)), Close(block[0]))
    versions.append(shop.append(ns, DropSubscription(shared)))
    versions.append(shop.append(ns))
    return versions


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoints(shop: Workshop) -> str:
    """Three checkpoints with all that rows depend on, and entries behind them that go on with what they hold."""
    with shop.open() as ns:
        versions = first_checkpoint(shop, ns)
        versions += second_checkpoint(shop, ns)
    shop.ask("orders", "gone", versions=(*versions, "latest"))
    return checkpoints.__doc__ or ""


def first_checkpoint(shop: Workshop, ns: Namespace) -> list[int]:
    """A log with pending, aborted, replaced and deleted rows, and a dropped topic; then a checkpoint."""
    topic = ns.create_topic("orders", SCHEMA, partitions=2).id
    ns.create_topic("gone", SCHEMA)
    versions = [shop.produce(ns, "orders", 2, 1), shop.produce(ns, "gone", 2), shop.produce(ns, "orders", 2, 0)]
    numbers = ns._connection.reserve_block(8)
    for place in (0, 2, 4):
        txn, number = numbers[place], numbers[place + 1]
        segment = shop.lay(ns, "orders", number, table_of(shop.rows(2)), {0: 1, 1: 1}, txn, partition_column=True)
        shop.append(ns, Begin(txn), segment)
    shop.append(ns, Abort(numbers[0]))
    ns.optimize("orders")
    ns.drop_topic("gone")
    versions.append(shop.append(ns, DeleteRecords(topic, ((0, 1),))))
    assert ns.checkpoint() == versions[-1]
    return versions


def second_checkpoint(shop: Workshop, ns: Namespace) -> list[int]:
    """Ends of what was pending in the first checkpoint, and two checkpoints more."""
    txns = [info.txn_id.number for info in ns.transactions("OPEN")]
    topic = ns._connection.topic_record("orders").id
    versions = [shop.append(ns, Commit(max(txns)))]
    versions.append(shop.produce(ns, "orders", 1, 1))
    versions.append(shop.append(ns, Abort(min(txns))))
    ns.alter_topic("orders", properties={"user.owner": "billing"})
    ns.checkpoint()
    versions.append(shop.append(ns, DeleteRecords(topic, ((1, 1),))))
    versions.append(shop.produce(ns, "orders", 2, 0))
    shop.tick()
    ns.optimize("orders")
    numbers = ns._connection.reserve_block(8)
    for place in (0, 2, 4):
        pending = shop.lay(ns, "orders", numbers[place + 1], table_of(shop.rows(1)), {1: 1}, numbers[place])
        shop.append(ns, Begin(numbers[place]), pending)
    versions.append(ns.checkpoint())
    versions.append(shop.append(ns, Commit(numbers[2])))
    versions.append(shop.append(ns, Abort(numbers[0])))
    versions += [shop.produce(ns, "orders", 1, 0) for _ in range(2)]
    ns.optimize("orders")
    versions.append(shop.append(ns, DeleteRecords(topic, ((0, 2),))))
    return versions


# --- the root log -----------------------------------------------------------------------------------------------------


def adopted(shop: Workshop) -> str:
    """A namespace, its copy that was adopted, a copy that was not, one that was dropped, and one without entry 0."""
    with shop.open() as ns:
        ns.create_topic("orders", SCHEMA)
        first = shop.produce(ns, "orders", 2)
        txn = ns._connection.reserve_block(4)[0]
        shop.append(ns, Begin(txn), shop.lay(ns, "orders", txn + 1, table_of(shop.rows(1)), {0: 1}, txn))
    with shop.open("dropped") as dropped:
        dropped.create_topic("orders", SCHEMA)
        dropped.produce("orders", shop.rows(1))
    shutil.copytree(shop.root / "sales", shop.root / "copy")
    connection = Connection(str(shop.root), "copy", store=shop.store(), runtime=shop.runtime())
    connection.session.adopt(force=False)
    connection.close()
    with shop.open("copy") as ns:
        shop.append(ns, Commit(txn))
        second = shop.produce(ns, "orders", 1)
        ns.optimize("orders")
        third = ns.checkpoint()
        shop.produce(ns, "orders", 1)
    Root(shop.store(), shop.runtime()).unregister(parse_namespace_name("dropped"))
    with shop.open() as ns:
        shop.produce(ns, "orders", 3)
    shutil.copytree(shop.root / "sales", shop.root / "ghost")
    with shop.open("headless") as ns:
        ns.create_topic("orders", SCHEMA)
    (shop.home / entry_key(0)).unlink()
    for namespace in ("sales", "copy", "dropped", "ghost", "headless", "nowhere"):
        shop.ask("orders", namespace=namespace)
    shop.ask("orders", namespace="copy", versions=(first, second, third))
    return adopted.__doc__ or ""


def root_log(shop: Workshop) -> str:
    """A root log that only a later reader understands: its namespaces are read all the same."""
    with shop.open() as ns:
        ns.create_topic("orders", SCHEMA)
        shop.produce(ns, "orders", 2)
    shop.namespace = CATALOG_FOLDER
    shop.forge(line("protocol", reader_version=2, writer_version=2))
    shop.ask("orders", namespace="sales")
    return root_log.__doc__ or ""


__all__ = ["adopted", "checkpoints", "fences", "first_checkpoint", "root_log", "second_checkpoint", "transactions"]
