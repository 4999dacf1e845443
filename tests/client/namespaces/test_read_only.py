"""Handles that may not write, and stores that take nothing: reading goes on, and every error says why."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import SCHEMA, Place, Unchanged, begun, ids, prepared, raises, read, rows
from tests.faults import failing
from txnlog.errors import Durable, ReadOnly, StoreError
from txnlog.store import StoreCall


@pytest.mark.clause("P-115", "P-123")
def test_reading_needs_get_alone(ns: Any, place: Place) -> None:
    ns.produce("orders", rows(1), partition=0)
    ns.create_subscription("orders", "billing")
    txn = begun(ns, 2, flush=True)
    ns.checkpoint()
    ns.produce("orders", rows(3), partition=0)
    reader, counting = place.counted(mode="r")
    assert read(reader) == [1, 3]
    assert reader.topics() == ("orders",)
    assert reader.topic("orders").partitions == 2
    assert reader.subscriptions("orders") == ("billing",)
    assert reader.subscription("orders", "billing").cursors[0].cursor == 0
    assert reader.lag("orders", "billing")[0].behind_messages == 2
    assert {info.state for info in reader.transactions()} >= {"OPEN", "COMMITTED"}
    assert reader.transaction(txn.id).state == "OPEN"
    assert reader.last_txn_version("nightly") is None
    reader.snapshot().scan("orders", isolation_level="read_uncommitted", include_metadata=True).read_all()
    assert reader.snapshot(timestamp=4_000_000_000_000).version == ns.snapshot().version
    assert {call for call, _ in counting.counts()} <= {"get", "get_range", "sync"}


@pytest.mark.clause("P-123")
def test_every_write_through_a_reader_is_refused(ns: Any, place: Place) -> None:
    txn = ns.begin()
    ns.create_subscription("orders", "billing")
    ns.producer("loader")
    token = prepared(ns, 1)
    reader, counting = place.counted(mode="r")
    for call in (
        lambda: reader.create_topic("audit", SCHEMA),
        lambda: reader.drop_topic("orders"),
        reader.begin,
        lambda: reader.produce("orders", rows(1)),
        reader.producer,
        lambda: reader.producer("loader"),
        lambda: reader.create_subscription("orders", "other"),
        lambda: reader.drop_subscription("orders", "billing"),
        lambda: reader.consumer("orders", "billing"),
        lambda: reader.consumer("orders", "new"),
        lambda: reader.abort(txn.id),
        lambda: reader.complete(token, commit=True),
        lambda: reader.fence("loader"),
        lambda: reader.forget_app("nightly"),
        reader.checkpoint,
        reader.vacuum,
        reader.maintain,
        lambda: reader.optimize("orders"),
        lambda: reader.alter_topic("orders", properties={"user.owner": "ann"}),
        lambda: reader.transact(lambda _: None),
        lambda: reader._connection.reserve_block(1),
    ):
        with Unchanged(place), raises(ReadOnly, match='mode="r"'):
            call()
    assert not {"put", "create", "delete", "list"} & {call for call, _ in counting.counts()}


def test_read_only_credentials_say_so_and_write_nothing(memory: Place) -> None:
    """mode="rw" with a store that refuses: nothing was written, and reading goes on."""
    memory.open().create_topic("orders", SCHEMA)
    denied = failing(lambda: StoreError("access denied", durable=Durable.NOTHING), StoreCall.CREATE, StoreCall.PUT)
    ns = memory.open(wrap=denied)
    for call in (lambda: ns.create_topic("audit", SCHEMA), lambda: ns.produce("orders", rows(1)), ns.begin):
        with Unchanged(memory), raises(StoreError, match="access denied"):
            call()
    assert read(ns) == []


def test_a_full_disk_is_said_and_costs_nothing(place: Place) -> None:
    full: list[bool] = []
    no_space = failing(
        lambda: StoreError("no space left on device", durable=Durable.NOTHING),
        StoreCall.CREATE,
        StoreCall.PUT,
        where=lambda _key: bool(full),
    )
    ns = place.orders(0, wrap=no_space)
    txn = begun(ns, 1)
    full.append(True)
    for call in (
        txn.commit,
        txn.flush,
        lambda: ns.produce("orders", rows(2)),
        lambda: ns.create_topic("audit"),
        lambda: ns.producer("loader"),
        lambda: ns.consumer("orders", "billing"),
        ns.checkpoint,
    ):
        with Unchanged(place), raises(StoreError, match="no space left"):
            call()
    assert isinstance(txn.commit_async().exception(30), StoreError)
    assert read(ns) == [0], "reading goes on"
    full.clear()
    txn.commit()
    assert read(ns) == [0, 1]
    assert ids(ns.consumer("orders", "billing").receive(timeout_ms=0).table) == [0, 1]
