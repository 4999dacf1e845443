"""Headers that lie, checkpoints of another log, entries that a power cut could still take back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.support import Place
from txnlog.errors import CorruptionError


def _namespace(place: Place, produced: int) -> Any:
    """A namespace with a topic and some entries."""
    ns = place.open()
    ns.create_topic("orders")
    for number in range(produced):
        ns.produce("orders", [{"value": str(number).encode()}])
    return ns


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
