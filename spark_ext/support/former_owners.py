"""A warning where a query takes a subscription that belongs to another one: its state does not come along."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from txnlog.fold.state import SubscriptionRecord

_logger: Final = logging.getLogger("txnlog.spark")

UNNAMED: Final = "process-"
"""How the names of runs of ``process`` begin that were given none: each run has another one."""


def is_of_another(record: SubscriptionRecord, name: str) -> bool:
    """Whether a subscription belongs to another query than the one of this name."""
    former = record.stream
    return not (former is None or former == name or (former.startswith(UNNAMED) and name.startswith(UNNAMED)))


def warn_of_former_owner(topic: str, record: SubscriptionRecord, name: str, cursors: Mapping[int, int]) -> None:
    """Log a warning unless a subscription was free, or that of the same query: a lost checkpoint is not noticed else.

    Args:
        topic: the topic's name.
        record: the subscription as it was before.
        name: whom it belongs to from now on.
        cursors: where it goes on, by partition.
    """
    if not is_of_another(record, name):
        return
    seek = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(cursors.items()))
    _logger.warning(
        "the subscription %r of %r belonged to the query %r, and belongs to %r from now on, which has nothing of the "
        "state of the former one: aggregates, windows and joins begin without older rows. If that is not intended, "
        'stop it, call ns.consumer(%r, %r, takeover=True).seek({%s}), and start the former query; takeover="same_name" '
        "of a subscription refuses it",
        record.name,
        topic,
        record.stream,
        name,
        topic,
        record.name,
        seek,
    )


__all__ = ["UNNAMED", "is_of_another", "warn_of_former_owner"]
