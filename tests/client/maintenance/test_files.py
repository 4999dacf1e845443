"""Segments and parts of checkpoints are written once, each under a name of its own (P-4)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.client.support import SCHEMA, FaultyStore, Place, begun, read, rows, run_threads
from txnlog.client import transaction_work
from txnlog.errors import StoreError, TxnLogError
from txnlog.format import keys
from txnlog.format.actions import Segment
from txnlog.format.codec import decode_entry
from txnlog.store import Created, ForwardingStore, Store
from txnlog.store.base import ObjectNotFound


class WrittenOnce(ForwardingStore):
    """Notes what is put as a segment or part. A second put of one is a failure, and an entry before its segments."""

    def __init__(self, inner: Store, written: dict[str, bytes]) -> None:
        super().__init__(inner)
        self.written = written
        self.stored: set[str] = set()
        self.named: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        parsed = keys.parse_key(key.partition("/")[2])
        if isinstance(parsed, keys.SegmentKey | keys.PartKey):
            assert key not in self.written, "put twice"
            with pytest.raises(ObjectNotFound):
                self.inner.info(key)
            self.written[key] = data
        super().put(key, data)
        self.stored.add(key.rpartition("/")[2])

    def create(self, key: str, data: bytes) -> Created:
        parsed = keys.parse_key(key.partition("/")[2])
        assert not isinstance(parsed, keys.SegmentKey | keys.PartKey)
        if isinstance(parsed, keys.EntryKey):
            actions = decode_entry(data, parsed.version).actions
            self.named += (named := [action.file for action in actions if isinstance(action, Segment)])
            assert self.stored.issuperset(named), "a reader of the entry would miss them"
        return super().create(key, data)

    def delete(self, key: str) -> None:
        assert key not in self.written
        super().delete(key)


@pytest.fixture
def watched(memory: Place) -> tuple[Any, Store, dict[str, bytes]]:
    """A namespace with ``orders`` and ``audit``, its faults, and what was written; big rows go their own way."""
    written: dict[str, bytes] = {}
    ns, store = memory.wrapped(lambda inner: WrittenOnce(FaultyStore(inner), written))
    ns.create_topic("orders", SCHEMA, partitions=2)
    ns.create_topic("audit", SCHEMA)
    return ns, store.inner, written


@pytest.mark.clause("P-104")
@pytest.mark.parametrize("call", ["produce", "commit", "flush", "prepare"])
@pytest.mark.parametrize("big", [True, False], ids=["big", "small"])
def test_segments_are_on_the_store_before_the_entry_that_names_them(
    memory: Place, monkeypatch: pytest.MonkeyPatch, call: str, big: bool
) -> None:
    ns, store = memory.wrapped(lambda inner: WrittenOnce(inner, {}))
    ns.create_topic("orders", SCHEMA)
    if big:
        monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 1)
    if call == "produce":
        ns.produce("orders", rows(1))
    else:
        txn = begun(ns, 1)
        getattr(txn, call)()
    assert store.named


@pytest.mark.clause("P-4")
@pytest.mark.parametrize("big", [True, False])
def test_no_name_of_a_file_is_used_twice_whatever_fails(
    watched: Any, memory: Place, monkeypatch: pytest.MonkeyPatch, big: bool
) -> None:
    ns, faults, written = watched
    if big:
        monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 1)
    rival = memory.open()
    chance = random.Random(7)
    committed: list[int] = []
    for number in range(60):
        kind = chance.choice(["fine", "put", "entry", "race", "flush", "drop"])
        txn = begun(ns, number)
        txn.produce("audit", rows(number))
        if kind == "put":
            faults.puts.extend(chance.choice([["broken"], ["ok", "refused"], ["refused"]]))
        elif kind == "entry":
            faults.script.append(chance.choice(["refused", "lost", "dropped", "broken-after"]))
        elif kind == "race":
            faults.script.extend([lambda: rival.produce("audit", rows(-1)) for _ in range(2)])
        elif kind == "drop":
            rival.drop_topic("audit")
        for _ in range(4):
            try:
                if kind == "flush":
                    txn.flush()
                txn.commit()
                committed.append(number)
                break
            except TxnLogError:
                continue
        faults.puts.clear()
        faults.script.clear()
        if kind == "drop":
            rival.create_topic("audit", SCHEMA)
        if number % 10 == 9:
            ns.checkpoint()
    assert sorted(read(ns)) == committed == list(range(60))
    store = memory.store()
    stored = {info.key: store.get(info.key) for info in store.list("sales/") if info.key in written}
    assert stored.items() <= written.items(), "what was written stays as it was written"
    names = [key.rpartition("/")[2] for key in written]
    assert len(set(names)) == len(names) > 100


@pytest.mark.clause("P-4", "P-44")
def test_a_number_whose_file_failed_is_not_used_for_another_file(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ns, faults, written = watched
    monkeypatch.setattr(transaction_work, "SMALL_PRODUCE_BYTES", 1)
    txn = begun(ns, 1)
    faults.puts.append("broken")
    with pytest.raises(StoreError):
        txn.commit()
    txn.commit()
    numbers = [key.segment for name in written if isinstance(key := keys.parse_key(name[6:]), keys.SegmentKey)]
    assert len(numbers) == len(set(numbers))
    assert read(ns) == [1]


@pytest.mark.clause("P-4", "P-129")
def test_checkpoints_at_once_share_no_part(watched: Any, memory: Place) -> None:
    ns, _, written = watched
    ns.produce("orders", rows(1))
    others = [memory.open(wrap=lambda store: WrittenOnce(store, written)) for _ in range(3)]
    versions = run_threads(*[handle.checkpoint for handle in (ns, *others)])
    assert set(versions) == {ns.snapshot().version}
    parts = [name for name in written if isinstance(keys.parse_key(name[6:]), keys.PartKey)]
    assert len(parts) >= 4
    ns.produce("orders", rows(2))
    assert sorted(read(memory.open())) == [1, 2]
