"""What a store's refusal means: which right is missing, where, and what txnlog needs it for.

``docs/operations/access.md`` has the rights of whoever reads, consumes, produces and so on.
"""

from __future__ import annotations

from typing import Final

from txnlog.errors import AccessDenied, Durable
from txnlog.format import keys

_RIGHTS: Final = {"create": "write", "put": "write", "write": "write", "list": "list", "delete": "delete"}
"""By call; every other call reads."""

_APPENDING: Final = "to produce, consume, acknowledge or change anything is to append to the log of the namespace"

_WRITING: Final = {
    "entry": _APPENDING,
    "probe": f"{_APPENDING}, and before the first append a client tests the store and the clock below _probe/",
    "segment": "to produce to a topic, or to merge its small segments, is to write segments into its folder",
    "hint": "the consumer of a subscription with leases writes heartbeats",
    "checkpoint": "maintenance writes checkpoints of the log",
    "delta": "to publish topics as Delta tables is to write the logs of the tables",
    "root": "to create, adopt or drop a namespace is to append to the log of the root",
}
_READING: Final = {
    "segment": "to read or consume a topic is to read its segments",
    "hint": "a consumer that may take over a subscription with leases reads the heartbeats of the active one",
    "delta": "to publish topics as Delta tables is to read the logs of the tables",
    "root": "a client that appends to a namespace asks the log of its root if it was dropped and if the store is safe",
}
_DELETING: Final = {
    "probe": "a client that tests the store or the clock deletes the objects of the test",
    "hint": "heartbeats of consumers that were replaced are deleted",
    "delta": "publishing deletes replaced files of the segments table, vacuum the tables of dropped topics",
}
_LOG: Final = "all calls of a namespace read its log"


def denied(call: str, key: str, url: str, why: str, durable: Durable) -> AccessDenied:
    """The error for a call that the store refused for want of a right.

    Args:
        call: the name of the store's call.
        key: the key, or the prefix of a listing, relative to the root.
        url: its address.
        why: what the store said.
        durable: whether something may have been written all the same.
    """
    right = _RIGHTS.get(call, "read")
    kind = keys.kind_of(key)
    if right == "write":
        purpose = _WRITING.get(kind, "whoever writes this object needs it")
    elif right == "delete":
        purpose = _DELETING.get(kind, "vacuum deletes what nobody can need any more")
    elif right == "list":
        purpose = "vacuum, fsck, publishing and creating a namespace list what is there"
    else:
        purpose = _READING.get(kind, _LOG)
    return AccessDenied(f"no right to {right} {url} ({why}): {purpose}", right=right, url=url, durable=durable)


__all__ = ["denied"]
