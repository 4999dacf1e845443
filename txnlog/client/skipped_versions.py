"""Versions of an application that are skipped: silently where they were done before, else with a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from txnlog.fold.state import AppRecord

from txnlog.engine.log_lines import LogLines

_logger: Final = LogLines("txnlog.transaction")


def warn_of_larger(last: AppRecord, wanted: int) -> None:
    """Warn of work that is not done since a larger version was committed before: one mistyped number skips all to come.

    The same version again is a repetition, as it should be.
    """
    if wanted >= last.app_version:
        return
    _logger.warning(
        "The transaction with txn_version %d of the txn_app_id %r was skipped, and its work was dropped: the larger "
        "txn_version %d was committed before, at version %d of the log. ns.last_txn_version(%r) shows the last one. If "
        "it is wrong, ns.forget_app(%r), or the command apps forget, lets the next transaction bring any txn_version, "
        "one that was done included.",
        wanted,
        last.app_id,
        last.app_version,
        last.version,
        last.app_id,
        last.app_id,
    )


__all__ = ["warn_of_larger"]
