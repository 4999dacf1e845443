"""Headers that lie, checkpoints of another log, entries that a power cut could still take back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.client.support import Place
from txnlog import keys
from txnlog.codec import decode_entry, encode_entry
from txnlog.errors import CorruptionError


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
