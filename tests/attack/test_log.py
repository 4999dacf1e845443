"""Headers that lie, checkpoints of another log, entries that a power cut could still take back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.client.support import Place
from txnlog import keys
from txnlog.codec import decode_entry, encode_entry
from txnlog.errors import CorruptionError, StoreError
from txnlog.store import Call, HookStore


def _namespace(place: Place, produced: int) -> Any:
    """A namespace with a topic and some entries."""
    ns = place.open()
    ns.create_topic("orders")
    for number in range(produced):
        ns.produce("orders", [{"value": str(number).encode()}])
    return ns


@pytest.mark.clause("P-23", "P-127")
def test_a_header_that_names_a_checkpoint_of_the_future_is_damage(memory: Place) -> None:
    """The manifest is there (a copy that was not made at one moment): the log would go on behind its own end."""
    ns = _namespace(memory, 6)
    version = ns.checkpoint()
    store = memory.store()
    entries = [store.get(f"sales/{keys.entry_key(number)}") for number in range(version + 1)]
    for number in range(4, version + 1):
        store.delete(f"sales/{keys.entry_key(number)}")
    lines = entries[3].splitlines()
    header = msgspec.structs.replace(decode_entry(entries[3], 3).header, checkpoint=version)
    store.put(f"sales/{keys.entry_key(3)}", encode_entry(header, lines[1:]))
    with pytest.raises(CorruptionError, match="entry 3"):
        memory.open(mode="r")


@pytest.mark.clause("P-125", "P-127")
def test_a_checkpoint_of_another_history_is_not_adopted(memory: Place) -> None:
    """A live folder that was copied, checkpoints last: the copy goes on by itself and comes to the same version."""
    ns = _namespace(memory, 3)
    store = memory.store()
    for info in list(store.list("sales/")):
        store.put(info.key.replace("sales/", "copy/", 1), store.get(info.key))
    for _ in range(3):
        ns.produce("orders", [{"value": b"theirs"}])
    version = ns.checkpoint()
    for info in list(store.list("sales/_log/checkpoints/")):
        store.put(info.key.replace("sales/", "copy/", 1), store.get(info.key))
    copy = memory.open("copy", create=False)
    while copy.follower.version < version:
        copy.produce("orders", [{"value": b"ours"}])
    with pytest.raises(CorruptionError, match=f"checkpoint {version}"):
        copy.checkpoint()
    copy.produce("orders", [{"value": b"ours"}])
    copy.produce("orders", [{"value": b"ours"}])
    again = memory.open("copy", mode="r")
    assert again.snapshot().read("orders") == copy.snapshot().read("orders")


@pytest.mark.clause("P-121")
def test_nothing_is_told_of_an_entry_whose_sync_failed(memory: Place) -> None:
    writer = _namespace(memory, 1)
    synced: list[str] = []

    def before(call: Call, key: str) -> None:
        if call is Call.SYNC and keys.kind_of(key) == "entry":
            synced.append(key)
            if len(synced) == 2:
                raise StoreError("the disk does not answer")

    reader = memory.open(wrap=lambda store: HookStore(store, before=before))
    assert len(synced) == 1
    writer.produce("orders", [{"value": b"new"}])
    with pytest.raises(StoreError):
        reader.snapshot()
    version = reader.snapshot().version
    assert synced[2:] == [f"sales/{keys.entry_key(version)}"], "told without having been made durable"


@pytest.mark.clause("P-121")
def test_an_entry_is_made_durable_though_the_next_slot_could_not_be_read(memory: Place) -> None:
    writer = _namespace(memory, 1)
    synced: list[str] = []
    failing: list[str] = []

    def before(call: Call, key: str) -> None:
        if call is Call.SYNC and keys.kind_of(key) == "entry":
            synced.append(key)
        if call is Call.GET and key in failing:
            failing.remove(key)
            raise StoreError("read timed out")

    reader = memory.open(wrap=lambda store: HookStore(store, before=before))
    version = writer.produce("orders", [{"value": b"new"}]).version
    failing.append(f"sales/{keys.entry_key(version + 1)}")
    synced.clear()
    with pytest.raises(StoreError):
        reader.snapshot()
    assert reader.snapshot().version == version
    assert synced == [f"sales/{keys.entry_key(version)}"]
