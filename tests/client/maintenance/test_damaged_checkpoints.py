"""Checkpoints that are lost or damaged: nobody needs them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.client.checkpoints import Warnings, agrees, checkpointed, objects_of, warnings
from tests.client.support import SCHEMA, FaultyStore, Place, busy, raises, read, rows, run_threads
from txnlog.client import checkpointer
from txnlog.client.checkpointer import Checkpointer
from txnlog.common.names import parse_namespace_name
from txnlog.engine.runtime import Runtime
from txnlog.errors import CorruptionError, StoreError
from txnlog.format import keys
from txnlog.log import checkpoint_codec
from txnlog.log.checkpoint_codec import decode_manifest
from txnlog.log.checkpoint_reader import UnusableCheckpoint
from txnlog.log.follower import Follower
from txnlog.log.log_reader import Log
from txnlog.log.root_log import Root
from txnlog.store.wrappers import PrefixStore

__all__ = ["checkpointed", "warnings"]  # fixtures


HARMS = ["delete", "flip", "truncate", "empty", "swap"]
COLD = checkpoint_codec.COLD_KINDS
CASES = [(what, harm) for what in ("manifest", "hot") for harm in HARMS] + [(what, "delete") for what in COLD]
CASES.append(("segments", "flip"))


def _harm(store: Any, key: str, how: str, other: str) -> None:
    data = store.get(key)
    if how == "delete":
        store.delete(key)
    elif how == "flip":
        middle = len(data) // 2
        store.put(key, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif how == "truncate":
        store.put(key, data[: len(data) // 2])
    elif how == "empty":
        store.put(key, b"")
    else:
        store.put(key, store.get(other))


def _compacted(ns: Any) -> None:
    """Several small segments merged, so that there are removals."""
    ns.create_topic("merged", SCHEMA)
    for number in range(3):
        ns.produce("merged", rows(number))
    assert ns.optimize("merged").merged_segments == 3


def _sequenced(ns: Any) -> None:
    """More batches than the state remembers of each producer."""
    producer = ns.producer("archive")
    for number in range(8):
        producer.produce("merged", rows(number))


def _requests(place: Place) -> dict[tuple[str, str], int]:
    """What opening a handle and reading all rows asks of the store."""
    fresh, counting = place.counted(mode="r")
    fresh.snapshot().read("orders")
    return dict(counting.counts())


@pytest.mark.clause("P-127", "P-225", "P-226")
@pytest.mark.some(8)
@pytest.mark.parametrize(
    ("what", "harm", "older"),
    [*((*case, True) for case in CASES), *((what, "delete", False) for what in ("manifest", "segments", "outcomes"))],
)
def test_a_lost_or_damaged_checkpoint_closes_nothing(
    memory: Place, warnings: Warnings, what: str, harm: str, older: bool
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    _compacted(ns)
    first = ns.checkpoint() if older else None
    _sequenced(ns)
    busy(ns, 2, steps=4)
    ns.optimize("orders")
    live = memory.open()
    ns.checkpoint()
    ns.produce("orders", rows(5))
    versions = range(0, ns.snapshot().version + 1, 15)
    expected = [
        ns.snapshot(version).read("orders") if "orders" in ns.snapshot(version).topics() else None
        for version in versions
    ]
    harmed = objects_of(ns, what)[-1]
    _harm(store, harmed, harm, objects_of(ns, "hot" if what != "hot" else "outcomes")[0])
    live.snapshot()
    live._connection.follower.adopt_checkpoint()
    for mode in ("live", "r", "rw"):
        client = live if mode == "live" else memory.open(mode=mode)
        agrees(client)
        if client is not live or what != "hot":
            base = client._connection.follower.base
            assert (None if base is None else base.version) == first
            (warning,) = warnings.take()
            # A flipped bit of a manifest may lead to a part that is not there.
            assert (
                "/sales/_log/checkpoints/" if (what, harm) == ("manifest", "flip") else memory.store().url(harmed)
            ) in warning
            assert "ns.repair()" in warning
        found = [
            client.snapshot(version).read("orders") if table is not None else None
            for version, table in zip(versions, expected, strict=True)
        ]
        assert found == expected
        assert warnings.take() == [], "once"
    live.produce("orders", rows(99))
    agrees(live)
    agrees(ns)


def test_one_that_two_threads_meet_at_once_is_warned_of_once(memory: Place, warnings: Warnings) -> None:
    ns = memory.open()
    busy(ns, 1, steps=4)
    ns.checkpoint()
    follower = ns._connection.follower
    (part,) = follower.base.runs("hot")
    both = threading.Barrier(2)

    def look() -> None:
        if follower.base is not None:
            both.wait(10)
            raise UnusableCheckpoint(part, "it is missing")

    run_threads(*[lambda: follower.over_checkpoints(look)] * 2)
    (warning,) = warnings.take()
    assert keys.part_key(part.unique) in warning


@pytest.mark.clause("P-227")
@pytest.mark.parametrize(("what", "harm"), CASES)
@pytest.mark.parametrize("who", ["who made it", "who opens then"])
def test_the_next_checkpoint_is_a_whole_one_again(
    memory: Place, warnings: Warnings, who: str, what: str, harm: str
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    _compacted(ns)
    old = ns.checkpoint()
    ns.produce("orders", rows(5))
    healthy = _requests(memory)
    kept = {info.key: store.get(info.key) for info in store.list("sales/_log/")}
    harmed = objects_of(ns, what)[0]
    _harm(store, harmed, harm, objects_of(ns, "hot" if what != "hot" else "outcomes")[0])
    maker = ns if who == "who made it" else memory.open()
    assert maker.checkpoint() > old
    assert warnings.take()
    for key, data in kept.items():
        assert key == harmed or store.get(key) == data, "nothing was overwritten"
    found = _requests(memory)
    assert {key: count for key, count in found.items() if key[1] == "checkpoint"} == {
        key: count for key, count in healthy.items() if key[1] == "checkpoint"
    }
    assert found["get", "entry"] <= healthy["get", "entry"] + 4
    for client in (memory.open(), memory.open(mode="r")):
        agrees(client)
        client._connection.follower.verify_checkpoints()
    assert warnings.take() == []
    version = maker.snapshot().version
    assert maker.checkpoint() == version, "what names the new one is the only entry that was appended"


@pytest.mark.clause("P-3", "P-227")
@pytest.mark.parametrize("what", ["manifest", "hot"])
def test_a_slot_that_holds_something_else_is_not_overwritten(memory: Place, warnings: Warnings, what: str) -> None:
    """The newest version has a checkpoint, which no header names yet."""
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    other = memory.open()
    version = ns.checkpoint()
    key = objects_of(ns, what)[0]
    _harm(store, key, "flip", key)
    damaged = store.get(key)
    for client in (other, ns, memory.open()):
        assert client.checkpoint() == version + 1
    assert store.get(key) == damaged
    ns.produce("orders", rows(5))
    warnings.take()
    fresh = memory.open(mode="r")
    assert fresh._connection.follower.base.version == version + 1
    agrees(fresh)
    assert warnings.take() == []


@pytest.mark.clause("P-226")
def test_a_reader_goes_from_header_to_header_to_the_newest_usable_one(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    ns.create_topic("orders", SCHEMA)
    made = []
    for number in range(5):
        for _ in range(20):
            ns.produce("orders", rows(number))
        made.append(ns.checkpoint())
    ns.produce("orders", rows(9))
    store.delete(objects_of(ns, "manifest")[0])
    second = decode_manifest(store.get(f"sales/{keys.manifest_key(made[3])}"), made[3])
    store.put(f"sales/{keys.part_key(second.runs('hot')[0].unique)}", b"PAR1")
    store.put(f"sales/{keys.manifest_key(made[2])}", b"{}")
    fresh, counting = memory.counted(mode="r")
    assert fresh._connection.follower.base.version == made[1]
    assert len(warnings.take()) == 3
    counts = counting.counts()
    assert counts["get", "checkpoint"] == 3 + 3, "four manifests, and the hot parts of two"
    assert counts["get", "entry"] < 100
    assert ("list", "checkpoint") not in counts
    agrees(fresh)


@pytest.mark.clause("P-226")
def test_a_run_that_older_checkpoints_name_too_makes_them_unusable(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    for seed in range(4):
        busy(ns, seed, steps=2)
        ns.checkpoint()
    ns.produce("orders", rows(5))
    store.delete(objects_of(ns, "outcomes")[1])
    fresh = memory.open(mode="r")
    assert fresh._connection.follower.base is not None
    agrees(fresh)
    assert len(warnings.take()) == 1
    runs = fresh._connection.follower.base.runs("outcomes")
    assert len(runs) == 1, "the first checkpoint is the only one that does not name it"


@pytest.mark.clause("P-226")
def test_everybody_goes_on_while_a_base_is_replaced(memory: Place, warnings: Warnings) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=3)
    ns.checkpoint()
    busy(ns, 2, steps=3)
    ns.checkpoint()
    ns.produce("orders", rows(5))
    live = memory.open()
    for kind in checkpoint_codec.COLD_KINDS[:2]:
        store.delete(objects_of(ns, kind)[-1])
    before = len(read(ns))

    def commit() -> None:
        for number in range(10):
            live.produce("orders", rows(1_000 + number))

    def look() -> None:
        for _ in range(5):
            assert len(read(live)) >= before
            for number in list(live._connection.follower.state.outcomes):
                assert live._connection.follower.outcome(number) is not None

    assert run_threads(commit, look, look, commit) == [None] * 4
    assert len(read(live)) == before + 20
    agrees(live)
    assert 1 <= len(warnings.take()) <= 2


@pytest.mark.clause("P-225")
def test_an_entry_that_is_gone_is_corruption_with_or_without_checkpoints(checkpointed: Any, memory: Place) -> None:
    ns, store = checkpointed
    entry = f"sales/{keys.entry_key(2)}"
    data = store.get(entry)
    store.put(entry, data[:-1])
    assert memory.open(mode="r").snapshot().version == ns.snapshot().version, "the checkpoint stands for it"
    store.delete(objects_of(ns, "manifest")[0])
    with raises(CorruptionError, match="entry 2"):
        memory.open(mode="r")


@pytest.mark.clause("P-225")
@pytest.mark.parametrize("what", ["manifest", "hot", "segments"])
def test_a_store_that_fails_is_no_damage(checkpointed: Any, memory: Place, warnings: Warnings, what: str) -> None:
    ns, _ = checkpointed
    key = objects_of(ns, what)[0]
    failing = [True]

    class Fails(FaultyStore):
        def get(self, wanted: str) -> bytes:
            if wanted == key and failing:
                raise StoreError("the store is down")
            return super().get(wanted)

    def look() -> Any:
        return memory.open(wrap=Fails, mode="r").snapshot().read("orders")

    with raises(StoreError, match="is down"):
        look()
    failing.clear()
    assert look() == ns.snapshot().read("orders")
    assert warnings.take() == []


@pytest.mark.clause("P-129", "P-227")
def test_a_writer_makes_a_new_one_by_itself_once_the_tail_is_long(
    memory: Place, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns, store = memory.open(), memory.store()
    busy(ns, 1, steps=4)
    old = ns.checkpoint()
    ns.produce("orders", rows(5))
    store.delete(objects_of(ns, "hot")[0])
    monkeypatch.setattr(checkpointer, "CHECKPOINT_ENTRIES", 10)
    monkeypatch.setattr(checkpointer, "_SPREAD_ENTRIES", 0)
    writer = memory.open()
    assert warnings.take()
    assert writer._connection.follower.base is None
    writer.produce("orders", rows(6))
    writer._connection.session.checkpointer.close()
    made: Any = writer._connection.follower.base
    writer.produce("orders", rows(7))
    reader = memory.open(mode="r")
    assert reader._connection.follower.base == made
    assert made.version > old
    agrees(reader)
    assert warnings.take() == []


@pytest.mark.clause("P-225")
def test_a_checkpoint_of_the_root_log_closes_nothing_either(memory: Place, warnings: Warnings) -> None:
    """No client makes one, yet a reader goes by it."""
    memory.open()
    whole = memory.store()
    runtime = Runtime()
    store = PrefixStore(whole, keys.CATALOG_FOLDER)
    follower = Follower(Log(store, runtime), runtime)
    version = Checkpointer(follower, store, runtime).make().version
    root = Root(whole, runtime)
    root.follower.rebase(follower.log.checkpoints.manifest(version))
    root.register(parse_namespace_name("audit"))
    assert Root(whole, runtime).follower.base is not None
    store.delete(keys.manifest_key(version))
    assert sorted(item.name for item in Root(whole, runtime).namespaces()) == ["audit", "sales"]
    assert len(warnings.take()) == 1
    memory.open("audit").create_topic("orders", SCHEMA)


@pytest.mark.clause("P-115", "P-123")
def test_a_healthy_checkpoint_costs_its_manifest_and_one_part(checkpointed: Any, memory: Place) -> None:
    ns, _ = checkpointed
    assert ns._connection.follower.base is not None
    _, counting = memory.counted(mode="r")
    assert counting.counts()["get", "checkpoint"] == 2
