"""Removing heartbeats and proposals that are damaged: whoever they are of writes the next one, and reads none of these.

What decodes stays, whatever it says: nobody but its owner knows better.
"""

from __future__ import annotations

from functools import partial

from txnlog.client import consumer_heartbeats
from txnlog.common.limits import PARALLEL_REQUESTS
from txnlog.format import keys
from txnlog.log.proposals import proposal_codec, who_collects
from txnlog.maintenance.fsck.findings import all_attempted
from txnlog.maintenance.repair.work import LeftError, Work
from txnlog.results import RepairKind
from txnlog.store.base import ObjectNotFound

_REMOVED = "removed; its owner writes the next one"


def repair_hints(work: Work) -> None:
    """Remove the damaged ones. They are small, and few."""
    found: list[tuple[RepairKind, str]] = []
    found += [("heartbeat", info.key) for info in work.store.list(keys.HEARTBEAT_FOLDER)]
    found += [("proposal", info.key) for info in work.store.list(keys.PROPOSAL_FOLDER)]
    for start in range(0, len(found), PARALLEL_REQUESTS):
        wave = found[start : start + PARALLEL_REQUESTS]
        read = all_attempted(work.runtime, [partial(work.store.get, key) for _, key in wave])
        for (kind, key), data in zip(wave, read, strict=True):
            if isinstance(data, bytes) and _is_damaged(key, data):
                work.attempt(kind, key, _REMOVED, partial(_remove, work, key))


def _remove(work: Work, key: str) -> None:
    """Remove one, unless its owner has written it again by now."""
    try:
        data = work.store.get(key)
    except ObjectNotFound:
        return
    if not _is_damaged(key, data):
        raise LeftError("its owner has written it again")
    work.store.delete(key)


def _is_damaged(key: str, data: bytes) -> bool:
    """Whether an object is one of ours, and says nothing to anybody."""
    match keys.parse_key(key):
        case keys.HeartbeatKey():
            return not consumer_heartbeats.can_be_read(data)
        case keys.MailboxKey(None):
            return not who_collects.can_be_read(data)
        case keys.MailboxKey(str(writer)):
            try:
                proposal_codec.decode(data, writer)
            except proposal_codec.MalformedProposal:
                return True
    return False


__all__ = ["repair_hints"]
