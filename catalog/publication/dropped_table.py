"""The objects of the Delta log of a dropped topic, in the order in which a vacuum deletes them.

The hint is first, since its readers need the checkpoint that it names. As long as all commits exist they are the whole
table, with or without checkpoints. Without the first commit and without a checkpoint, the rest is no table to any
reader. So whoever lists the log meanwhile finds the whole table or none, and never an older or a shorter one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from catalog.delta_log.commit import Identity
from catalog.delta_log.commit_stamp import DamagedCommitError, stamp_of
from catalog.delta_log.objects import DeltaLog
from txnlog.format import keys
from txnlog.store.base import ObjectInfo

_logger = logging.getLogger("txnlog.publisher")


def remains(log: DeltaLog, identity: Identity) -> Sequence[Sequence[ObjectInfo]]:
    """All objects in the log of a table that ended: the hint, checkpoints, the first commit, the other commits.

    Empty where the table, or its newest version, was not written by txnlog: its files may belong to somebody else.
    """
    hint: list[ObjectInfo] = []
    commits: dict[int, ObjectInfo] = {}
    others: list[ObjectInfo] = []
    for key, info in log.objects().items():
        match keys.parse_key(key):
            case keys.DeltaKey(version=int() as version, checkpoint=False):
                commits[version] = info
            case keys.DeltaKey(version=None):
                hint.append(info)
            case _:
                others.append(info)
    if not commits:
        return ()
    if not _is_ours(log, identity, sorted(commits)):
        _logger.info("%s stays: not all of it was written by txnlog for this topic", log.url())
        return ()
    first, *rest = sorted(commits)
    return hint, others, [commits[first]], [commits[version] for version in rest]


def _is_ours(log: DeltaLog, identity: Identity, versions: Sequence[int]) -> bool:
    """Whether the first and the newest readable commit belong to this table."""
    return all(_first_readable(log, identity, order) for order in (versions, versions[::-1]))


def _first_readable(log: DeltaLog, identity: Identity, versions: Sequence[int]) -> bool:
    for version in versions:
        data = log.get(version)
        if data is None:
            continue  # another vacuum deleted it meanwhile
        try:
            return stamp_of(data).is_of(identity)
        except DamagedCommitError:
            continue  # nobody repairs the table of a dropped topic
    return False


__all__ = ["remains"]
